"""A Delta source that serves as the log of a table with history, so that no event is stored twice.

Whatever the history of a key follows from is read again from the source whenever the key is touched. So the source
must give the same rows for ever: it only gets rows added (anything else stops the job), none may be removed from it,
and the transform and rules judge each row by itself, the same at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from floodmark.errors import ConfigError
from floodmark.hwm import Span, VersionHWM
from floodmark.rules import RuleSet
from floodmark.sinks.contract import Sink
from floodmark.sources import Delta
from floodmark.step.batch import without_malformed
from floodmark.step.transform import RowByRow, Sql, Transform, over_sources

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.sinks.contract import Batch
    from floodmark.sinks.scd import EventsOfBatch
    from floodmark.sources.contract import Source


@runtime_checkable
class Borrowing(Protocol):
    """A sink whose log of events may be the source of its job."""

    @property
    def name(self) -> str: ...

    def borrows_events(self) -> bool: ...

    def reading_events(self, read: EventsOfBatch) -> Sink: ...


def borrows(sink: object) -> bool:
    """Whether what the sink holds follows from the source alone: rows from anywhere else would be lost again."""
    return isinstance(sink, Borrowing) and sink.borrows_events()


def with_borrowed_events(
    sinks: Sequence[Sink], sources: Sequence[Source], transform: Transform, rules: RuleSet
) -> tuple[Sink, ...]:
    """The sinks, those that borrow their events with a way to read them. Raises ConfigError where there is none."""
    return tuple(
        sink.reading_events(SourceEvents.of(sink.name, sources, transform, rules).rows)
        if isinstance(sink, Borrowing) and sink.borrows_events()
        else sink
        for sink in sinks
    )


@dataclass(frozen=True)
class SourceEvents:
    """All rows of a job up to a batch, made again from its source."""

    source: Delta
    transform: Transform
    rules: RuleSet

    @classmethod
    def of(cls, sink: str, sources: Sequence[Source], transform: Transform, rules: RuleSet) -> SourceEvents:
        """Raises ConfigError for a job whose rows could be others when they are read again."""
        source = sources[0]
        if len(sources) != 1 or not isinstance(source, Delta) or source.changes != "append":
            raise refusal(sink, "the job does not read one Delta table by `changes: append`")
        if source.start != "earliest":
            raise refusal(sink, "the job does not read its source from the beginning")
        made = over_sources(transform, [source.name])
        if not (isinstance(made, RowByRow) and made.is_row_by_row() and made.is_deterministic()):
            raise refusal(sink, "the transform is not known to make the same rows of each row at any time")
        if isinstance(made, Sql) and ":batch_time" in made.text:
            raise refusal(sink, "the transform names :batch_time, which is another one at every batch")
        if rules.needs_whole_batch():
            raise refusal(sink, "a rule judges rows by others of their batch")
        return cls(source, made, rules)

    def rows(self, spark: SparkSession, batch: Batch) -> DataFrame:
        """The source as it was at the version where the batch ends, through the transform and the rules."""
        version = int(str(batch.marks[self.source.name]))
        span = Span(None, VersionHWM(self.source.name, version), {"snapshot": version, "timestamp_ms": None})
        reading = self.source.read(spark, span)
        frames = {self.source.name: without_malformed(reading, reading.rows)}
        made = self.transform.apply(frames, job=batch.job, attempt=batch.attempt, batch_time=batch.batch_time)
        return self.rules.legend().kept_rows(self.rules.mark(made)) if self.rules else made


def refusal(sink: str, why: str) -> ConfigError:
    """A sink that cannot borrow its events, and why."""
    return ConfigError(
        f"sink '{sink}' has `events: source`, and {why}.", hint="`events: own` keeps a log beside the table"
    )
