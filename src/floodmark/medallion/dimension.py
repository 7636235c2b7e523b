"""A dimension: the members of a silver table under surrogate keys, kept by the changes of that table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodmark.jobs.job import Job
from floodmark.medallion.keys import surrogate_key, unknown_member
from floodmark.sinks.contract import POSITION, Sink
from floodmark.sinks.delta import Delta, members_table
from floodmark.sinks.delta_merge import GONE
from floodmark.sinks.refusals import refuse
from floodmark.sinks.scd_versions import INTERVAL, VALID_FROM
from floodmark.sources.delta import CHANGE
from floodmark.sources.delta import Delta as DeltaSource
from floodmark.spark.delta_tables import quoted
from floodmark.step.transform import short_hash

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Members:
    """Changes of a table as members of a dimension, keyed; versions that are gone are marked."""

    key: str
    natural: tuple[str, ...]
    columns: Mapping[str, str]
    versions: bool

    def apply(self, frames: Mapping[str, DataFrame], *, job: str, attempt: str, batch_time: datetime) -> DataFrame:
        from pyspark.sql import functions as F

        [feed] = frames.values()
        # Facts point to members, so one without versions stays; a version that never was has to go.
        gone = F.col(CHANGE) == "delete" if self.versions else F.lit(False)
        chosen = [F.expr(told).alias(name) for name, told in self.columns.items()]
        interval = INTERVAL if self.versions else ()
        carried = [POSITION] if POSITION in feed.columns else []
        named = feed.where(F.col(CHANGE) != "update_preimage")
        members = named.select(*chosen, *interval, *carried, gone.alias(GONE))
        keyed = members.select(surrogate_key(members, self.named_by).alias(self.key), "*")
        return _without_collisions(keyed, self.key, self.named_by).unionByName(unknown_member(keyed, self.key))

    @property
    def named_by(self) -> tuple[str, ...]:
        return (*self.natural, VALID_FROM) if self.versions else self.natural

    def fingerprint(self) -> str:
        return short_hash(self.key, *self.named_by, *(f"{name} {told}" for name, told in self.columns.items()))

    def is_deterministic(self) -> bool:
        return True


def dimension(
    name: str,
    *,
    source: str,
    path: str,
    key: str,
    natural: Sequence[str],
    columns: Mapping[str, str],
    versions: bool = True,
    **options: Any,  # noqa: ANN401 - the other fields of a job
) -> Job:
    """The job that keeps a dimension at `path` by the change feed of the Delta table at `source`.

    `columns` gives each column of a member as SQL over a row of the source, those of the natural key among them. The
    key is a hash of the natural key, and of `valid_from` if the source has versions; member -1 is the unknown one.
    Several jobs may fill one dimension, each with members of its own.
    """
    members = Members(key, tuple(natural), dict(columns), versions)
    sink = guarded(members, members_table(path, key=(key,), name=name))
    return Job(name=name, source=DeltaSource(source, changes="feed"), sinks=[sink], transform=members, **options)


def guarded(members: Members, sink: Sink) -> Sink:
    """The table as it refuses a member whose key it has for another one: a merge would take the two for one."""
    return sink.refusing_others(members.named_by) if isinstance(sink, Delta) else sink


def _without_collisions(keyed: DataFrame, key: str, named_by: Sequence[str]) -> DataFrame:
    """Refuses a batch in which two members have one key."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    same, member = Window.partitionBy(quoted(key)), F.struct(*map(quoted, named_by))
    alone = F.min(member).over(same).eqNullSafe(F.max(member).over(same))
    reason = F.concat(F.lit(f"two members have the {key} "), F.col(quoted(key)).cast("string"))
    return keyed.withColumn(key, F.when(alone, F.col(quoted(key))).otherwise(refuse(reason).cast("long")))
