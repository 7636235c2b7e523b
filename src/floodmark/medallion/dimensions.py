"""Dimensions: members under surrogate keys that a replay reproduces, kept by the changes of a silver table; and as-of
joins to the version of a member, or of a price, that was valid at a moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError, KeysCollide
from floodmark.jobs.job import Job
from floodmark.locations import quote
from floodmark.sinks.contract import POSITION, Sink
from floodmark.sinks.delta import Delta, members_table
from floodmark.sinks.delta.merge import GONE
from floodmark.sinks.scd.events import INTERVAL, IS_CURRENT, VALID_FROM, VALID_TO
from floodmark.sources.delta import Delta as DeltaSource
from floodmark.sources.delta import commit_order
from floodmark.spark.faults import raise_in_plan
from floodmark.spark.table_files import CHANGE
from floodmark.step.repeatable import why_expression_volatile
from floodmark.step.transform import short_hash

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column, DataFrame


UNKNOWN = -1
"""The member that stands for "not known": facts without a partner point to it. No computed key is negative."""
SUCCESSOR = "successor"
"""Of a version that is no longer so: the key of the one that holds at its start now, or UNKNOWN; NULL in all others."""
ORDER = "_fm_order"
MARKED = {"floodmark.successor": True}
"""In the metadata of that column: a table may have one of that name that means something else."""


def dimension(
    name: str,
    *,
    source: str,
    path: str,
    key: str,
    natural: Sequence[str],
    columns: Mapping[str, str],
    versions: bool = True,
    keep_superseded: bool = False,
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    **options: Any,  # noqa: ANN401 - the other fields of a job
) -> Job:
    """The job that keeps a dimension at `path` by the change feed of the Delta table at `source`.

    `columns` gives each column of a member as SQL over a row of the source, those of the natural key among them. The
    key is a hash of the natural key, and of `valid_from` if the source has versions; member -1 is the unknown one.
    Several jobs may fill one dimension, each with members of its own.
    A version that a late event moves gets another key. With `keep_superseded` its old row stays, with the new key as
    its `successor`, for facts that were built before and are frozen; `current_members` leaves such rows out.

    >>> dimension(
    ...     "customers",
    ...     source="/lake/silver",
    ...     path="/lake/customers",
    ...     key="customer_sk",
    ...     natural=["customer"],
    ...     columns={"customer": "id", "name": "name"},
    ... )
    Job(customers: Delta /lake/silver → delta table /lake/customers)
    """
    members = Members(key, tuple(natural), dict(columns), versions, keep_superseded)
    table = members_table(path, key=(key,), name=name, partition_by=partition_by, cluster_by=cluster_by)
    sink = members.guard(table)
    return Job(name=name, source=DeltaSource(source, changes="feed"), sinks=[sink], transform=members, **options)


@dataclass(frozen=True)
class Members:
    """Changes of a table as members of a dimension, keyed; versions that are gone are marked."""

    key: str
    natural: tuple[str, ...]
    columns: Mapping[str, str]
    versions: bool
    keep_superseded: bool = False

    def __post_init__(self) -> None:
        if self.keep_superseded and not self.versions:
            raise ConfigError(
                "a dimension without versions has none that are superseded.",
                hint="leave out keep_superseded: members without versions stay anyway",
            )

    def apply(self, frames: Mapping[str, DataFrame], *, job: str, attempt: str, batch_time: datetime) -> DataFrame:
        from pyspark.sql import functions as F

        [feed] = frames.values()
        # Facts point to members, so one without versions stays; a version that never was has to go.
        gone = F.col(CHANGE) == "delete" if self.versions else F.lit(False)
        chosen = [F.expr(sql).alias(name) for name, sql in self.columns.items()]
        interval = INTERVAL if self.versions else ()
        carried = [POSITION] if POSITION in feed.columns else []
        images = feed.where(F.col(CHANGE) != "update_preimage")
        order = [commit_order().alias(ORDER)] if self.keep_superseded else []
        members = images.select(*chosen, *interval, *carried, *order, gone.alias(GONE))
        keyed = members.select(surrogate_key(members, self.identity).alias(self.key), "*")
        known = self._with_successors(keyed) if self.keep_superseded else keyed
        every = self._without_collisions(known).unionByName(unknown_member(known, self.key))
        return every.withMetadata(SUCCESSOR, MARKED) if self.keep_superseded else every

    def guard(self, sink: Sink) -> Sink:
        """The table as it refuses a member whose key it has for another one: a merge would take the two for one."""
        return sink.refusing_others(self.identity) if isinstance(sink, Delta) else sink

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that tell one member from another."""
        return (*self.natural, VALID_FROM) if self.versions else self.natural

    def fingerprint(self) -> str:
        kept = ("keeps superseded",) if self.keep_superseded else ()
        return short_hash(self.key, *self.identity, *(f"{name} {sql}" for name, sql in self.columns.items()), *kept)

    def is_deterministic(self) -> bool:
        return not any(map(why_expression_volatile, self.columns.values()))

    def _with_successors(self, keyed: DataFrame) -> DataFrame:
        """Every version as the batch leaves it; one that is gone stays, and points to the one that holds at its start.

        That one is in the same batch: nothing else held at that moment before, so the commit that took the version
        away has begun or lengthened it.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        newest = Window.partitionBy(quote(self.key)).orderBy(F.col(ORDER).desc())
        ranked = keyed.withColumn("_fm_rank", F.row_number().over(newest)).where("_fm_rank = 1")
        last = ranked.drop(ORDER, "_fm_rank")
        live, gone = last.where(f"NOT {GONE}"), last.where(GONE)
        pairs = {column: column for column in self.natural}
        heirs = _partners(live, pairs, {self.key: "_fm_heir"})
        successor = F.coalesce(F.col("_fm_heir"), F.lit(UNKNOWN)).cast("long")
        pointed = gone.join(heirs, _is_partner(pairs, VALID_FROM), "left").withColumns(
            {SUCCESSOR: successor, IS_CURRENT: F.lit(False), GONE: F.lit(False)}
        )
        now = live.withColumn(SUCCESSOR, F.lit(None).cast("long"))
        return now.unionByName(pointed.select(*map(quote, now.columns)))

    def _without_collisions(self, keyed: DataFrame) -> DataFrame:
        """Refuses a batch in which two members have one key."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        key, member = F.col(quote(self.key)), F.struct(*map(quote, self.identity))
        same = Window.partitionBy(quote(self.key))
        alone = F.min(member).over(same).eqNullSafe(F.max(member).over(same))
        reason = F.concat(F.lit(f"two members have the {self.key} "), key.cast("string"))
        return keyed.withColumn(self.key, F.when(alone, key).otherwise(raise_in_plan("sink", reason).cast("long")))


def surrogate_key(rows: DataFrame, columns: Sequence[str]) -> Column:
    """A whole number from 0 to 2^63 - 1 that depends on the values of these columns alone.

    Each value goes in with its place, so that NULL and an empty text, or two values that change places, differ. It goes
    in as text, so that a wider type of the same value keeps its key; a moment as a number, so that no zone matters.

    >>> people = spark.sql("SELECT 'a' AS id, 1 AS region")
    >>> people.select(surrogate_key(people, ["id", "region"]).alias("person_sk")).first().person_sk > 0
    True
    """
    from pyspark.sql import functions as F

    parts: list[Column] = []
    for place, name in enumerate(columns):
        value, kind = F.col(quote(name)), rows.schema[name].dataType.simpleString()
        text = (F.unix_micros(value) if kind == "timestamp" else value).cast("string")
        parts += [F.lit(place), text.isNull(), text]
    return F.shiftrightunsigned(F.xxhash64(*parts), 1)


def with_key(rows: DataFrame, name: str, natural: Sequence[str], *, versions: bool = True) -> DataFrame:
    """The rows of a dimension with their surrogate key in front: of the natural key, and of `valid_from` if it has
    versions.

    >>> people = spark.sql("SELECT 'a' AS id, 'Ann' AS name")
    >>> with_key(people, "person_sk", ["id"], versions=False).columns
    ['person_sk', 'id', 'name']
    """
    columns = (*natural, VALID_FROM) if versions else tuple(natural)
    return rows.select(surrogate_key(rows, columns).alias(name), *map(quote, rows.columns))


def with_unknown(rows: DataFrame, name: str) -> DataFrame:
    """The dimension with the member for "not known": its key is -1, everything else is NULL.

    >>> people = with_key(spark.sql("SELECT 'a' AS id"), "person_sk", ["id"], versions=False)
    >>> [row.id for row in with_unknown(people, "person_sk").where("person_sk = -1").collect()]
    [None]
    """
    return rows.unionByName(unknown_member(rows, name))


def unknown_member(rows: DataFrame, name: str) -> DataFrame:
    """That member alone, with the columns of these rows."""
    from pyspark.sql import functions as F

    key = F.lit(UNKNOWN).cast("long").alias(name)
    columns = [key if f.name == name else F.lit(None).cast(f.dataType).alias(f.name) for f in rows.schema]
    return rows.sparkSession.range(1).select(*columns)


def require_distinct(rows: DataFrame, name: str) -> DataFrame:
    """The rows again, after a look that no key is there twice. Raises KeysCollide, which names one.

    >>> require_distinct(spark.sql("SELECT 1 AS id UNION ALL SELECT 1"), "id")
    Traceback (most recent call last):
    floodmark.errors.data.KeysCollide: ...
    """
    from pyspark.sql import functions as F

    twice = rows.groupBy(quote(name)).agg(F.count(F.lit(1)).alias("n")).where("n > 1").limit(1).collect()
    if twice:
        raise KeysCollide(name, key=twice[0][0], rows=twice[0]["n"])
    return rows


def current_members(rows: DataFrame) -> DataFrame:
    """A dimension without the versions that are no longer so; any other table as it is.

    Lookups of facts and as-of joins read a dimension through this.

    >>> current_members(spark.sql("SELECT 7 AS person_sk, 'a' AS id")).count()
    1
    """
    return rows.where(f"{SUCCESSOR} IS NULL") if has_superseded(rows) else rows


def has_superseded(rows: DataFrame) -> bool:
    """Whether these are rows of a dimension that keeps superseded versions."""
    marks = {field.name: field.metadata for field in rows.schema.fields}
    return bool(marks.get(SUCCESSOR, {}).get(next(iter(MARKED))))


def with_superseded(rows: DataFrame, held: DataFrame, name: str, natural: Sequence[str]) -> DataFrame:
    """The dimension under `freeze`: a version that is no longer so keeps its row, and points to its successor.

    `held` is the dimension as it was, with its `successor` column from the second time on. A late event moves the
    start of a version and so its key; facts that were built before still have the old one.

    >>> query = "SELECT 'a' AS id, DATE'%s' AS valid_from, DATE'9999-01-01' AS valid_to, true AS is_current"
    >>> before = with_key(spark.sql(query % "2026-01-05"), "person_sk", ["id"])
    >>> now = with_key(spark.sql(query % "2026-01-02"), "person_sk", ["id"])  # a late event moved its start
    >>> with_superseded(now, before, "person_sk", ["id"]).where("successor IS NOT NULL").count()
    1
    """
    from pyspark.sql import functions as F

    now = rows.withColumn(SUCCESSOR, F.lit(None).cast("long"))
    old = held.join(rows.select(quote(name)), [name], "left_anti").where(F.col(quote(name)) != UNKNOWN)
    natural_pairs = {column: column for column in natural}
    heirs = _partners(rows, natural_pairs, {name: "_fm_heir"})
    pointed = old.drop(SUCCESSOR).join(heirs, _is_partner(natural_pairs, VALID_FROM), "left")
    successor = F.coalesce(F.col("_fm_heir"), F.lit(UNKNOWN)).cast("long")
    superseded = pointed.withColumns({SUCCESSOR: successor, IS_CURRENT: F.lit(False)})
    return now.unionByName(superseded.select(*map(quote, now.columns))).withMetadata(SUCCESSOR, MARKED)


def asof(
    facts: DataFrame, versions: DataFrame, *, on: Mapping[str, str], at: str, take: Mapping[str, str]
) -> DataFrame:
    """Each fact once, with columns of the version that was valid at `at`: from its start on, up to before its end.

    `on` pairs the facts' columns with the versions'; `take` names the versions' columns and what they are called
    here. A fact without a partner is kept, with NULL.

    >>> prices = spark.sql("SELECT 'a' AS sku, 10 AS price, 1 AS valid_from, 5 AS valid_to")
    >>> orders = spark.sql("SELECT 'a' AS item, 3 AS day UNION ALL SELECT 'a', 7")
    >>> priced = asof(orders, prices, on={"item": "sku"}, at="day", take={"price": "price"})
    >>> sorted((row["day"], row["price"]) for row in priced.collect())
    [(3, 10), (7, None)]
    """
    return facts.join(_partners(versions, on, take), _is_partner(on, at), "left").select(
        *map(quote, facts.columns), *map(quote, take.values())
    )


def asof_key(facts: DataFrame, dimension: DataFrame, *, on: Mapping[str, str], at: str, key: str) -> DataFrame:
    """Each fact once, with the surrogate key of the version that was valid at `at`, or that of the unknown member.

    >>> people = spark.sql("SELECT 7 AS person_sk, 'a' AS id, 1 AS valid_from, 5 AS valid_to")
    >>> orders = spark.sql("SELECT 'a' AS buyer, 3 AS day UNION ALL SELECT 'b', 3")
    >>> keyed = asof_key(orders, people, on={"buyer": "id"}, at="day", key="person_sk")
    >>> sorted((row["buyer"], row["person_sk"]) for row in keyed.collect())
    [('a', 7), ('b', -1)]
    """
    from pyspark.sql import functions as F

    joined = asof(facts, dimension, on=on, at=at, take={key: key})
    return joined.withColumn(key, F.coalesce(F.col(quote(key)), F.lit(UNKNOWN)))


def _partners(versions: DataFrame, on: Mapping[str, str], take: Mapping[str, str]) -> DataFrame:
    """The versions under names that no fact has."""
    from pyspark.sql import functions as F

    joined = [F.col(quote(theirs)).alias(f"_fm_on_{place}") for place, theirs in enumerate(on.values())]
    taken = [F.col(quote(theirs)).alias(ours) for theirs, ours in take.items()]
    return current_members(versions).select(
        *joined, F.col(VALID_FROM).alias("_fm_from"), F.col(VALID_TO).alias("_fm_to"), *taken
    )


def _is_partner(on: Mapping[str, str], at: str) -> Column:
    from pyspark.sql import functions as F

    moment = F.col(quote(at))
    same = [F.col(quote(ours)) == F.col(f"_fm_on_{place}") for place, ours in enumerate(on)]
    open_end = F.col("_fm_to").isNull() | (moment < F.col("_fm_to"))
    return reduce(and_, same) & (moment >= F.col("_fm_from")) & open_end
