"""One batch on Spark: its rows read, transformed and judged, and frozen if they might be others the second time.

What the sinks do with the rows is `run`'s, what was refused is `refused`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, FloodmarkError, NumbersDisagree, RuleBroken, SourceUnreadable
from floodmark.errors.causes import cause_of
from floodmark.hwm import Span
from floodmark.sinks.contract import POSITION, Batch, BatchSize, Sink
from floodmark.sources.contract import Comparable, Explaining, Reading, Source, Telling
from floodmark.spark.usage import Meter
from floodmark.step.checks import Judgement, judge_on_the_way
from floodmark.step.looking import Outlook, confirmed_numbers, marks_after
from floodmark.step.set_aside import saved_letters, union_all
from floodmark.step.spool import RowCounter, RowCounts, Spool, observe_rows
from floodmark.step.transform import FrozenOutcomes, Function, Identity, SpanTransform, Sql, Transform, refuse_reserved
from floodmark.step.work import Work, gives_same_rows
from floodmark.stores.record import Intent, JobRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class PreparedBatch:
    """Rows ready for the sinks, and how they are counted."""

    judgement: Judgement
    counters: tuple[RowCounter, ...]
    frozen_counts: RowCounts | None
    """What was counted when the batch was frozen, if it was."""
    readings: Mapping[str, Reading]
    failed_records: DataFrame | None = None
    """Records that the transform failed on and that become dead letters."""
    spool: Spool | None = None
    """Where the rows lie, if all of them, and nothing else, are there."""
    dead_records: DataFrame | None = None
    """What could not be parsed, if it was frozen with the rows."""
    meter: Meter | None = None
    """Knows what Spark has used for it, where that can be told."""

    def row_counts(self, *, was_executed: bool) -> RowCounts:
        """What was counted on the way to the sinks; where nothing was written, the rows are counted on their own."""
        if self.frozen_counts:
            return self.frozen_counts
        results = [counter.result(was_executed=was_executed) for counter in self.counters]
        tally = self.judgement.tally(was_executed=was_executed)
        read = sum(each.read for each in results) if results else tally.judged
        return RowCounts(read, sum(each.dead for each in results), tally)


def prepare(work: Work, intent: Intent, spark: SparkSession) -> PreparedBatch:
    """The rows of the intent's spans, after transform and rules; from the spool if an earlier attempt finished it."""
    outcomes = FrozenOutcomes.of(work, intent)
    spool = Spool(intent.spool) if intent.spool else None
    if spool and (counts := spool.counts()):
        judgement = Judgement(work.rules, spool.read(spark), intent.batch_time, frozen_tally=counts.tally)
        dead = frozen_dead(intent) if counts.dead else None
        is_read_again = counts.dead and not (dead and dead.has_counts())  # else the source is not asked again
        readings = read_spans(work, intent, spark) if is_read_again else {}
        failed = outcomes.dead_records(spark) if outcomes else None
        dead_records = dead.read(spark) if dead and not is_read_again else None
        return PreparedBatch(judgement, (), counts, readings, failed, spool, dead_records)
    readings = read_spans(work, intent, spark)
    rows, counters = transform_rows(work, intent, readings, spark)
    rows = outcomes.freeze(rows, work.name) if outcomes else rows
    if spool is None:
        return PreparedBatch(judge_on_the_way(work.rules, rows, intent.batch_time), counters, None, readings)
    spool.write(work.rules.mark(rows) if work.rules else rows)
    judgement = Judgement(work.rules, spool.read(spark), intent.batch_time)
    failed = outcomes.dead_records(spark) if outcomes else None
    require_unchanged_sources(work, intent)
    return judge_frozen(work, intent, PreparedBatch(judgement, counters, None, readings, failed, spool))


def read_spans(work: Work, intent: Intent, spark: SparkSession) -> dict[str, Reading]:
    """What each source reads of its span."""
    return {
        source.name: read_span(work, source, intent, spark) for source in work.sources if source.name in intent.spans
    }


def read_span(work: Work, source: Source, intent: Intent, spark: SparkSession) -> Reading:
    """What one source reads. Raises SourceUnreadable for what it is no fault of the transform: a type in a schema."""
    try:
        return in_range(source.read(spark, intent.spans[source.name]), source.name, intent)
    except FloodmarkError:
        raise
    except Exception as error:
        cause, place = cause_of(error), f"source '{source.name}' of job '{work.name}'"
        reason, schema = cause.reason.rstrip("."), getattr(source, "schema", None)
        if isinstance(schema, str) and is_unparsed(error):  # before the source is asked: it cannot read with it either
            reason = f"its schema {schema!r} is none that Spark knows"
            hint = cause.hint or "write it as id long, name string"
            raise SourceUnreadable(place, reason=reason, hint=hint) from error
        known = source_error(error, work, intent.spans, spark)
        raise known or SourceUnreadable(place, reason=reason, hint=cause.hint) from error


def is_unparsed(error: Exception) -> bool:
    """Whether Spark could not parse a text that it was given, such as a schema."""
    from pyspark.errors import PySparkException

    condition = error.getCondition() if isinstance(error, PySparkException) else None
    return (condition or "").startswith(("PARSE_", "UNSUPPORTED_DATATYPE", "INVALID_IDENTIFIER"))


def transform_rows(
    work: Work, intent: Intent, readings: Mapping[str, Reading], spark: SparkSession
) -> tuple[DataFrame, tuple[RowCounter, ...]]:
    """What the transform makes of the readings, with a counter on each that the rules do not count already."""
    for name, reading in readings.items():
        refuse_reserved((each for each in reading.rows.columns if each not in reading.hidden), f"source '{name}'")
    rows = {name: with_position(work, reading) for name, reading in readings.items()}
    counters = {} if judges_what_is_read(work, readings) else {n: observe_rows(readings[n], rows[n]) for n in readings}
    rows |= {name: counter.rows for name, counter in counters.items()}
    frames = {name: without_malformed(reading, rows[name]) for name, reading in readings.items()}
    frames |= frames_without_rows(work, frames, spark)
    transform = work.transform.for_spans(intent.spans) if isinstance(work.transform, SpanTransform) else work.transform
    made = transform.apply(frames, job=work.name, attempt=intent.attempt, batch_time=intent.batch_time)
    return made, tuple(counters.values())


def judge_frozen(work: Work, intent: Intent, prepared: PreparedBatch) -> PreparedBatch:
    """The frozen batch, once its rules were found to hold and no row was lost on the way.

    Raises RuleBroken or NumbersDisagree; then the spool is of no use any more.
    """
    counts, spool = prepared.row_counts(was_executed=True), prepared.spool
    if spool is None:
        return prepared
    try:
        prepared.judgement.require_no_failure(counts.tally, work.name)
        if keeps_every_row(work.transform):
            found = {"the spool": spool.rows() - counts.tally.quarantined - counts.tally.dropped}
            require_as_many_as_read(work, intent.number, prepared, counts, found)
        dead = freeze_dead(work, intent, prepared.readings, counts)
    except (RuleBroken, NumbersDisagree):
        spool.remove()
        raise
    spool.finish(counts)
    dead_records = dead.read(prepared.judgement.marked_rows.sparkSession) if dead else None
    return replace(prepared, counters=(), frozen_counts=counts, dead_records=dead_records)


def frozen_dead(intent: Intent) -> Spool:
    """Where the batch keeps what could not be parsed, if it does."""
    return Spool(f"{intent.spool}-dead")


def freeze_dead(work: Work, intent: Intent, readings: Mapping[str, Reading], counts: RowCounts) -> Spool | None:
    """Keep what could not be parsed, where the source may give something else once the sinks have the rest.

    Raises NumbersDisagree if it already does: nothing is written yet, and the batch begins again.
    """
    dead = {name: reading.dead for name, reading in readings.items() if reading.dead and counts.dead}
    if work.dead_letters is None or not dead or all(gives_same_rows(source) for source in work.sources):
        return None
    spool = frozen_dead(intent)
    spool.write(union_all([saved_letters(records(), name) for name, records in dead.items()]))
    if spool.rows() != counts.dead:
        found = {"what could not be parsed when it was read again": spool.rows()}
        counted_by = "what could not be parsed"
        raise NumbersDisagree(work.name, number=intent.number, expected=counts.dead, counted_by=counted_by, found=found)
    spool.finish(RowCounts(read=0, dead=counts.dead))
    return spool


def require_unchanged_sources(work: Work, intent: Intent) -> None:
    """What was read is what the look had found: a file may change while it is read. Raises SourceRewritten."""
    for source in work.sources:
        if isinstance(source, Comparable) and source.name in intent.spans:
            source.require_unchanged(intent.spans[source.name])


def keeps_every_row(transform: Transform) -> bool:
    """Whether each row of the source is known to become one row for the sinks."""
    return isinstance(transform, Identity) or (isinstance(transform, Sql) and transform.keeps_every_row())


def require_as_many_as_read(
    work: Work, number: int, prepared: PreparedBatch, counts: RowCounts, found: Mapping[str, int]
) -> None:
    """Every row that was read and not refused is in each place. Raises NumbersDisagree.

    What was observed on the way is too high where Spark ran tasks of a shuffle again. So a difference is believed only
    if the source, read once more, confirms it: one that never changes by its own count, one that may have changed
    since only if it still has as many rows as were observed.
    """
    observed = kept_rows(counts)
    if all(rows == observed for rows in found.values()):
        return
    again = kept_rows(prepared.row_counts(was_executed=False))
    is_confirmed = again == observed or all(gives_same_rows(source) for source in work.sources)
    if all(rows == again for rows in found.values()) or not is_confirmed:
        return
    raise NumbersDisagree(work.name, number=number, expected=again, counted_by="what was read", found=found)


def kept_rows(counts: RowCounts) -> int:
    """The rows that are left for the sinks where every row that can be parsed goes on."""
    return counts.read - counts.dead - counts.tally.quarantined - counts.tally.dropped


def judges_what_is_read(work: Work, readings: Mapping[str, Reading]) -> bool:
    """Whether the rules see every row of the source as it is: then their count is the source's as well."""
    every_row = all(reading.reason is None for reading in readings.values())
    return bool(work.rules) and every_row and isinstance(work.transform, Identity)


def in_range(reading: Reading, source: str, intent: Intent) -> Reading:
    """The rows of a span that the batch is about: a backfill may end before a value where the span ends with it."""
    condition = intent.extras.outside.conditions.get(source) if intent.extras.outside else None
    whole = reading.placed() if reading.placed and condition else reading
    return replace(whole, rows=whole.rows.where(condition)) if condition else reading


def with_position(work: Work, reading: Reading) -> DataFrame:
    """Rows with their place in the source, where a sink has to choose between two of one key."""
    is_asked = work.needs_position()
    placed = reading.placed() if reading.placed and (is_asked or not asks_for_no_place(work.transform)) else reading
    return (
        placed.rows.withColumn(POSITION, placed.position) if is_asked and placed.position is not None else placed.rows
    )


def asks_for_no_place(transform: Transform) -> bool:
    """Whether the transform does not see the column in which Spark tells the file of a row, as a function does."""
    return isinstance(transform, (Identity, Sql))


def without_malformed(reading: Reading, rows: DataFrame) -> DataFrame:
    """Rows that could be parsed, without the columns that only say which could not."""
    parsed = rows.where(reading.reason.isNull()) if reading.reason is not None else rows
    return parsed.drop(*reading.hidden)


def frames_without_rows(work: Work, present: Collection[str], spark: SparkSession) -> dict[str, DataFrame]:
    """An empty frame for each source that has nothing new: a transform that takes sources by name gets them all."""
    if not isinstance(work.transform, (Function, Sql)):
        return {}
    return {each.name: empty_frame(each, work.name, spark) for each in work.sources if each.name not in present}


def empty_frame(source: Source, job: str, spark: SparkSession) -> DataFrame:
    """The columns of a source. Raises ConfigError for a source that cannot tell them without rows."""
    if not isinstance(source, Telling):
        raise ConfigError(
            f"source '{source.name}' of job '{job}' has nothing new, and cannot tell its columns without rows.",
            hint="give the source a method without_rows(spark), which returns a Reading",
        )
    reading = source.without_rows(spark)
    return reading.rows.limit(0).drop(*reading.hidden)


def size_of(work: Work, look: Outlook | None, prepared: PreparedBatch) -> BatchSize:
    """What is known of the rows that go to the sinks: those that were frozen are counted, else the look has an idea."""
    if prepared.spool is not None:
        return BatchSize(prepared.spool.rows(), is_bound=True)
    return expected_size(work, look) if look is not None else BatchSize()


def expected_size(work: Work, look: Outlook) -> BatchSize:
    """What a look knows of the rows that go to the sinks."""
    return BatchSize(look.expected_rows, look.expected_bytes, is_bound=adds_no_rows(work.transform))


def adds_no_rows(transform: Transform) -> bool:
    """Whether each row of the source is known to become one row for the sinks, or none."""
    return isinstance(transform, Identity) or (isinstance(transform, Sql) and transform.adds_no_rows())


def batch_of(work: Work, record: JobRecord, intent: Intent, namespace: str) -> Batch:
    """The intent in the words of the sinks."""
    return Batch(
        namespace=namespace,
        job=work.name,
        number=intent.number,
        attempt=intent.attempt,
        digest=intent.digest,
        kind="refresh" if intent.kind == "refresh" else "batch",
        batch_time=intent.batch_time,
        marks={source: mark.show() for source, mark in marks_after(record, intent).items()},
        frozen=intent.extras.frozen_options or {},
        confirmed=confirmed_by({sink.name: sink for sink in work.sinks}, record, intent, namespace),
    )


def confirmed_by(by_key: Mapping[str, Sink], record: JobRecord, intent: Intent, namespace: str) -> dict[str, int]:
    """What these sinks cannot have lost when the batch is written; a refresh does not ask."""
    return {} if intent.kind == "refresh" else confirmed_numbers(by_key, record, namespace)


def source_error(error: Exception, work: Work, spans: Mapping[str, Span], spark: SparkSession) -> FloodmarkError | None:
    """A source may know what a failed write really met (a malformed line, an update in an append log)."""
    for source in work.sources:
        if isinstance(source, Explaining) and source.name in spans:
            return source.explain(error, spark, spans[source.name])
    return None
