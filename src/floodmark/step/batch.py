"""One batch on Spark: read, transform, judge, freeze if needed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, FloodmarkError, RuleBroken
from floodmark.hwm import Span, digest
from floodmark.sinks.contract import POSITION, Batch
from floodmark.sources.contract import Explaining, Reading, Source, Telling
from floodmark.step.checks import Judgement, judge_on_the_way
from floodmark.step.intents import in_range
from floodmark.step.looking import marks_after
from floodmark.step.spool import Count, RowCounts, Spool, count
from floodmark.step.transform import FrozenOutcomes, Function, Identity, Pinned, Sql
from floodmark.step.work import Work
from floodmark.stores.record import Intent, JobRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# Sources of a job that have nothing new in a batch: the transform names them all, so it gets them without rows.
def without_rows(work: Work, present: Collection[str], spark: SparkSession) -> dict[str, DataFrame]:
    """An empty frame for each source that the batch reads nothing from, where the transform takes sources by name."""
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


@dataclass(frozen=True)
class Prepared:
    """Rows ready for the sinks, and how they are counted."""

    judgement: Judgement
    counts: tuple[Count, ...]
    spooled: RowCounts | None
    readings: Mapping[str, Reading]
    failed: DataFrame | None = None
    """Records that the transform failed on and that are put aside, as dead letters."""

    @property
    def rows(self) -> DataFrame:
        return self.judgement.kept()

    def counted(self, *, was_executed: bool) -> RowCounts:
        if self.spooled:
            return self.spooled
        results = [each.result(was_executed=was_executed) for each in self.counts]
        tally = self.judgement.tally(was_executed=was_executed)
        read = sum(r.read for r in results) if results else tally.judged
        return RowCounts(read, sum(r.dead for r in results), tally)


def prepare(work: Work, intent: Intent, spark: SparkSession) -> Prepared:
    """The rows of the intent's spans, after transform and rules; from the spool if an earlier attempt finished it."""
    outcomes = FrozenOutcomes.of(work, intent)
    spool = Spool(intent.spool) if intent.spool else None
    spooled = spool.counts() if spool else None
    sources = [source for source in work.sources if source.name in intent.spans]
    readings = {s.name: in_range(s.read(spark, intent.spans[s.name]), s.name, intent) for s in sources}
    if spool and spooled:
        judgement = Judgement(work.rules, spool.read(spark), intent.batch_time, frozen=spooled.tally)
        return Prepared(judgement, (), spooled, readings, outcomes.dead(spark) if outcomes else None)
    rows_of = {name: with_position(work, reading) for name, reading in readings.items()}
    counts = {} if judges_what_is_read(work, readings) else {n: count(readings[n], rows_of[n]) for n in readings}
    frames = {n: without_malformed(readings[n], counts[n].rows if n in counts else rows_of[n]) for n in readings}
    frames |= without_rows(work, frames, spark)
    transform = work.transform.for_spans(intent.spans) if isinstance(work.transform, Pinned) else work.transform
    rows = transform.apply(frames, job=work.name, attempt=intent.attempt, batch_time=intent.batch_time)
    rows = outcomes.freeze(rows, work.name) if outcomes else rows
    if spool is None:
        return Prepared(judge_on_the_way(work.rules, rows, intent.batch_time), tuple(counts.values()), None, readings)
    spool.write(work.rules.mark(rows) if work.rules else rows)
    judgement = Judgement(work.rules, spool.read(spark), intent.batch_time)
    failed = outcomes.dead(spark) if outcomes else None
    return judge_frozen(work, spool, Prepared(judgement, tuple(counts.values()), None, readings, failed))


def judge_frozen(work: Work, spool: Spool, written: Prepared) -> Prepared:
    """The frozen batch, once its rules were found to hold. Raises RuleBroken; then the spool is of no use any more."""
    counted = written.counted(was_executed=True)
    try:
        written.judgement.require_no_failure(counted.tally, work.name)
    except RuleBroken:
        spool.remove()
        raise
    spool.finish(counted)
    return replace(written, counts=(), spooled=counted)


def judges_what_is_read(work: Work, readings: Mapping[str, Reading]) -> bool:
    """Whether the rules see every row of the source as it is: then their count is the source's as well."""
    every_row = all(reading.reason is None for reading in readings.values())
    return bool(work.rules) and every_row and isinstance(work.transform, Identity)


def with_position(work: Work, reading: Reading) -> DataFrame:
    """Rows with their place in the source, where a sink has to choose between two of one key."""
    if reading.position is None or not work.needs_position():
        return reading.rows
    return reading.rows.withColumn(POSITION, reading.position)


def without_malformed(reading: Reading, rows: DataFrame) -> DataFrame:
    """Rows that could be parsed, without the columns that only told which could not."""
    kept = rows.where(reading.reason.isNull()) if reading.reason is not None else rows
    return kept.drop(*reading.hidden)


def batch_of(work: Work, record: JobRecord, intent: Intent, namespace: str) -> Batch:
    """The intent in the words of the sinks."""
    marks = {source: mark.show() for source, mark in marks_after(record, intent).items()}
    return Batch(
        namespace=namespace,
        job=work.name,
        number=intent.number,
        attempt=intent.attempt,
        digest=digest(intent.spans),
        kind="refresh" if intent.kind == "refresh" else "batch",
        batch_time=intent.batch_time,
        marks=marks,
        frozen=intent.extras.frozen or {},
    )


def source_error(error: Exception, work: Work, spans: Mapping[str, Span], spark: SparkSession) -> FloodmarkError | None:
    """A source may know what a failed write really met (a malformed line, an update in an append log)."""
    for source in work.sources:
        if isinstance(source, Explaining) and source.name in spans:
            return source.explain(error, spark, spans[source.name])
    return None
