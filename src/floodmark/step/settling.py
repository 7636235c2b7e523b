"""Transforms that tell of each record what became of it: frozen first, so that the user's code runs once per batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from floodmark.errors import ConfigError, TransformFailed
from floodmark.step.spool import Counted, Spool

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.step.work import Work
    from floodmark.stores.record import Intent


@runtime_checkable
class Settling(Protocol):
    """A transform whose frame holds the rows of records that succeeded and a row for each that failed."""

    @property
    def puts_aside(self) -> bool:
        """Whether failed records become dead letters; else they fail the run."""

    def healed(self, outcomes: DataFrame) -> DataFrame:
        """The rows that go on."""

    def failed(self, outcomes: DataFrame) -> DataFrame:
        """The failed records as (file, line, text, reason) and, to be run again, in JSON with a schema (record, shape).

        A record that came from the dead letters is named by `letter` as well.
        """


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of one batch, beside its spool."""

    transform: Settling
    spool: Spool

    @classmethod
    def of(cls, work: Work, intent: Intent) -> Outcomes | None:
        """None for a transform that knows nothing of single records."""
        if not isinstance(work.transform, Settling) or intent.spool is None:
            return None
        if work.transform.puts_aside and work.dead_letters is None:
            raise ConfigError(
                f"job '{work.name}' puts failed records aside and has no place for them.",
                hint="give it dead_letters, a folder for a Delta table",
            )
        return cls(work.transform, Spool(f"{intent.spool}-outcomes"))

    def freeze(self, rows: DataFrame, job: str) -> DataFrame:
        """Run the user's code, once; the rows that go on. Raises TransformFailed for a failure that may not pass."""
        self.spool.write(rows)
        failed = self.transform.failed(self.spool.read(rows.sparkSession))
        dead = failed.count()
        if dead and not self.transform.puts_aside:
            raise TransformFailed(job, reason=told(failed, dead))
        self.spool.finish(Counted(read=0, dead=dead))
        return self.transform.healed(self.spool.read(rows.sparkSession))

    def dead(self, spark: SparkSession) -> DataFrame | None:
        """The records that were put aside, if there are any."""
        counted = self.spool.counted()
        return self.transform.failed(self.spool.read(spark)) if counted and counted.dead else None


def told(failed: DataFrame, count: int) -> str:
    """The first of the failed records and why, and how many more there are."""
    first = failed.orderBy("file", "line", "text").first()
    place = [str(first[name]) for name in ("file", "line") if first[name] is not None] if first else []
    where = ":".join(place) or (first["text"] if first else "")
    more = f", and {count - 1} more" if count > 1 else ""
    return f"record {where}: {first['reason'] if first else ''}{more}."
