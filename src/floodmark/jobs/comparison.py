"""Two tables held against each other by key: which rows one lacks, has too many, or has otherwise.

Also how the rows of a table sink are read back for it with Spark; what is compared with what is said in `reconcile`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError
from floodmark.locations import quote
from floodmark.postgres import Address
from floodmark.probes.postgres import PostgresProbe, connect_read_only
from floodmark.probes.tables import RequestedCursor
from floodmark.probes.tables.relation import Relation, for_jdbc
from floodmark.sinks import Delta, Postgres
from floodmark.sinks.contract import written_columns
from floodmark.sources.tables.postgres import jdbc_properties, jdbc_url, select_columns
from floodmark.sources.tables.reading import partitions_for
from floodmark.spark.schemas import comparable, digest_of
from floodmark.step.intents import GONE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from floodmark.sinks.contract import Sink


ORDER, DIGEST, WHAT, COLUMNS = "_fm_order", "_fm_digest", "_fm_what", "_fm_columns"
MISSING, EXTRA, DIFFERENT = "missing", "extra", "different"
MOST_LITERALS = 500
"""So many keys go into a query as they are, where an index can find them; more are joined."""
FETCH_ROWS = 10_000
PAGES_WORTH_SPLITTING = 2_000
PAGES = """
SELECT CASE WHEN c.relkind = 'r' THEN pg_relation_size(c.oid) / current_setting('block_size')::int ELSE 0 END
FROM pg_class c WHERE c.oid = to_regclass(%s)
"""


@dataclass(frozen=True)
class Side:
    """Rows of one side. `order` says which of two rows of a key is newer; rows for which `gone` holds delete theirs."""

    rows: DataFrame
    key: tuple[str, ...]
    order: Column
    columns: tuple[str, ...]
    gone: Column

    def narrow(self) -> DataFrame:
        """One row per key: the key, and a digest of all columns that are compared."""
        from pyspark.sql import functions as F

        slim = self.rows.select(
            *map(quote, self.key), self.order.alias(ORDER), digest(self).alias(DIGEST), self.gone.alias(GONE)
        )
        newest = F.max_by(F.struct(DIGEST, GONE), ORDER).alias("newest")
        return slim.groupBy(*map(quote, self.key)).agg(newest).where(f"NOT newest.{GONE}")

    def whole(self) -> DataFrame:
        """One row per key, with its columns in a struct."""
        from pyspark.sql import functions as F

        row = F.struct(*map(quote, written_columns(self.rows)))
        slim = self.rows.select(*map(quote, self.key), self.order.alias(ORDER), row.alias("row"), self.gone.alias(GONE))
        newest = F.max_by(F.struct("row", GONE), ORDER).alias("newest")
        kept = slim.groupBy(*map(quote, self.key)).agg(newest).where(f"NOT newest.{GONE}")
        return kept.select(*map(quote, self.key), "newest.row")

    def only(self, keys: DataFrame, count: int) -> Side:
        """The rows of these keys."""
        return replace(self, rows=rows_of_keys(self.rows, self.key, keys, count))


def digest(side: Side) -> Column:
    """64 bits over the columns and over what is NULL in them."""
    from pyspark.sql import functions as F

    kinds = {field.name.lower(): field.dataType for field in side.rows.schema.fields}
    return digest_of([(F.col(quote(name)), kinds[name.lower()]) for name in side.columns])


def differing_keys(source: Side, sink: Side) -> tuple[dict[str, int], DataFrame]:
    """How many keys agree and how many do not, and those that do not."""
    from pyspark.sql import functions as F

    left = source.narrow().select(*map(quote, source.key), F.col(f"newest.{DIGEST}").alias("ours"))
    right = sink.narrow().select(*map(quote, source.key), F.col(f"newest.{DIGEST}").alias("theirs"))
    joined = left.join(right, list(source.key), "full_outer").withColumn(
        WHAT,
        F.when(F.col("theirs").isNull(), MISSING)
        .when(F.col("ours").isNull(), EXTRA)
        .when(F.col("ours") != F.col("theirs"), DIFFERENT)
        .otherwise("same"),
    )
    counts = {row[WHAT]: row["count"] for row in joined.groupBy(WHAT).count().collect()}
    return counts, joined.where(f"{WHAT} <> 'same'").select(*map(quote, source.key))


def differences(source: Side, sink: Side, sequence: Sequence[str] = ()) -> DataFrame:
    """The differing rows as they should be: all columns of the source, or the key alone where the row has to go.

    Of such a row the `sequence` is that of the table, for whoever remembers what was deleted. Beside them what was
    wrong, and in which columns.
    """
    from pyspark.sql import functions as F

    key = source.key
    left = source.whole().withColumnRenamed("row", "ours")
    right = sink.whole().withColumnRenamed("row", "theirs")
    ours, theirs = F.col("ours"), F.col("theirs")
    unlike = F.array_compact(
        F.array(*(F.when(~same(ours[n], theirs[n], source, n), F.lit(n)) for n in source.columns if n not in key))
    )
    what = F.when(theirs.isNull(), MISSING).when(ours.isNull(), EXTRA).when(F.size(unlike) > 0, DIFFERENT)
    joined = left.join(right, list(key), "full_outer").withColumn(WHAT, what).where(f"{WHAT} IS NOT NULL")
    stored = {name.lower() for name in sequence} & {name.lower() for name in sink.rows.columns}
    others = [
        (F.coalesce(ours[name], theirs[name]) if name.lower() in stored else ours[name]).alias(name)
        for name in written_columns(source.rows)
        if name not in key
    ]
    columns = F.when(F.col(WHAT) == DIFFERENT, unlike).otherwise(F.array().cast("array<string>"))
    return joined.select(*map(quote, key), *others, WHAT, ours.isNull().alias(GONE), columns.alias(COLUMNS))


def same(one: Column, other: Column, side: Side, name: str) -> Column:
    """Whether two values agree; maps cannot be compared as they are."""
    kind = side.rows.schema[name].dataType
    return comparable(one, kind).eqNullSafe(comparable(other, kind))


def rows_of_keys(rows: DataFrame, key: Sequence[str], keys: DataFrame, count: int) -> DataFrame:
    """The rows of these keys; a few are named in the query itself, so that a database finds them by its index."""
    if count > MOST_LITERALS:
        return rows.join(keys, list(key), "left_semi")
    return rows.where(one_of(key, [tuple(row) for row in keys.collect()]))


def one_of(key: Sequence[str], values: Sequence[tuple[Any, ...]]) -> Column:
    """The condition for rows with one of these keys."""
    from pyspark.sql import functions as F

    if len(key) == 1:
        return F.col(quote(key[0])).isin([value for (value,) in values])
    each = [
        reduce(lambda a, b: a & b, [F.col(quote(n)) == v for n, v in zip(key, value, strict=True)]) for value in values
    ]
    return any_of(each) if each else F.lit(False)


def any_of(conditions: Sequence[Column]) -> Column:
    """Any of them, as a tree that is as flat as can be: a long chain would be too deep for Spark."""
    if len(conditions) == 1:
        return conditions[0]
    middle = len(conditions) // 2
    return any_of(conditions[:middle]) | any_of(conditions[middle:])


def table_sink(sinks: tuple[Sink, ...], name: str | None, job: str) -> Delta | Postgres:
    """The sink that is meant: the one of that name, or the job's only table. Raises ConfigError."""
    tables = [sink for sink in sinks if isinstance(sink, (Delta, Postgres)) and name in (None, sink.name)]
    if len(tables) == 1:
        return tables[0]
    if name is None and tables:
        said, hint = f"job '{job}' has {len(tables)} tables", f"--sink {' or --sink '.join(t.name for t in tables)}"
    else:
        said = f"job '{job}' has no table that could be compared" if name is None else f"sink '{name}' is no such table"
        hint = "Delta tables (but not scd1 and scd2) and PostgreSQL tables can be"
    raise ConfigError(f"{said}.", hint=hint)


def held_rows(sink: Delta | Postgres, spark: SparkSession) -> DataFrame:
    """All rows of the target. Raises ConfigError if it is not there."""
    rows = sink.read(lambda: spark) if isinstance(sink, Delta) else postgres_rows(sink, spark)
    if rows is None:
        raise ConfigError(f"{sink.describe()} is not there.", hint="floodmark run makes it")
    return rows


def postgres_rows(sink: Postgres, spark: SparkSession) -> DataFrame | None:
    """The table through JDBC, in as many parts as there are cores, each of them some of its pages."""
    from pyspark.sql import functions as F

    if sink.schema(lambda: spark) is None:
        return None
    address, relation = Address.parse(sink.url), Relation(sink.table)
    probe = PostgresProbe(address, relation, RequestedCursor(()), f"{sink.name}/reconcile")
    columns = select_columns(probe.columns(), {}, sink.describe())
    table = relation.sql(lambda name: quote(name, '"'), {})
    probe.close()
    items = ", ".join(column.item for column in columns)
    rows = spark.read.jdbc(
        jdbc_url(address),
        for_jdbc(f"(SELECT {items}, ctid AS _fm_place FROM {table} fm) fm"),
        predicates=parts_of(pages_of(address, table), partitions_for(spark, None)),
        properties=jdbc_properties(address, FETCH_ROWS, f"floodmark/{sink.name}"),
    )
    arrivals = {each.name: F.expr(each.arrival.format(f"`{each.name}`")) for each in columns if each.arrival}
    return rows.drop("_fm_place").withColumns(arrivals)


def pages_of(address: Address, table: str) -> int:
    """How large the table is; 0 for a view, or one in partitions, which is read in one part."""
    with connect_read_only(address, "floodmark/reconcile") as connection:
        found = connection.execute(PAGES, [table]).fetchone()
    return int(found[0]) if found else 0


def parts_of(pages: int, parts: int) -> list[str]:
    """Conditions that cut a table into ranges of pages; the last one takes what is appended meanwhile."""
    if pages < PAGES_WORTH_SPLITTING or parts < 2:
        return ["1 = 1"]
    cuts = [pages * part // parts for part in range(1, parts)]
    ends = [f"_fm_place < '({cut},0)'::tid" for cut in cuts]
    starts = [f"_fm_place >= '({cut},0)'::tid" for cut in cuts]
    return [ends[0], *(f"{low} AND {high}" for low, high in zip(starts, ends[1:], strict=False)), starts[-1]]
