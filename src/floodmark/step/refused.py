"""What a batch puts aside, and the source that a replay of it reads.

Dead letters and quarantine are sinks of the job, the last ones: rows are put aside once, under the number of their
batch, after the other sinks have it and before the mark is raised. A batch that no sink has may still be planned again
under another number, and a kill before the commit repeats the write, which their ledger knows again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError
from floodmark.errors.causes import reason_of
from floodmark.rules import RuleSet, Tally
from floodmark.sinks.contract import Batch, BatchSize, Sink
from floodmark.sinks.refusals import EARLIER, Refusing
from floodmark.sources.contract import LETTER, Immutable, Reading, Request, Saving, Session, Sight, Source
from floodmark.step.checks import Judgement
from floodmark.step.set_aside import (
    Letters,
    discarded_rows,
    letter_rows,
    parse_rows,
    quarantine_rows,
    refused_rows,
    replayed_rows,
    union_all,
)
from floodmark.step.spool import RowCounts, Spool
from floodmark.step.work import Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.hwm import HWM, Span
    from floodmark.step.batch import PreparedBatch

UNREAD = "_fm_unread"
"""Why a saved record cannot be parsed, or breaks a rule, even now."""


def puts_rows_aside(work: Work, prepared: PreparedBatch, counts: RowCounts, batch: Batch) -> bool:
    """Whether `write_dead_letters` or `quarantine_broken` would write anything for this batch."""
    if isinstance(work.sources[0], SavedRecords):
        return True
    if batch.kind == "refresh":
        return bool(work.aside_sinks)
    session: Session = lambda: prepared.judgement.marked_rows.sparkSession  # noqa: E731 - it is there already
    if any(isinstance(sink, Refusing) and sink.may_refuse(session) for sink in work.sinks):
        return True
    has_letters = work.dead_letters is not None and (counts.dead or prepared.failed_records is not None)
    return bool(has_letters or (work.quarantine is not None and counts.tally.quarantined))


def letters_sink(work: Work) -> Sink | None:
    """Where `write_dead_letters` writes to: of a replay, to the table that it reads."""
    source = work.sources[0]
    return source.letters.sink if isinstance(source, SavedRecords) else work.dead_letters


@dataclass(frozen=True)
class SinkRefusals:
    """Rows that sinks had no place for: how many of this batch, by sink, and how many that earlier ones had brought."""

    rows: tuple[DataFrame, ...] = ()
    of_batch: Mapping[str, int] = field(default_factory=dict)
    of_earlier: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, work: Work, batch: Batch, session: Session) -> SinkRefusals:
        """What each sink has to tell, once all have the batch; most can refuse nothing, and are not asked."""
        refusing = [sink for sink in work.sinks if isinstance(sink, Refusing) and sink.may_refuse(session)]
        told = {sink.name: rows for sink in refusing if (rows := sink.refused_rows(session(), batch)) is not None}
        counts = {
            name: {r[EARLIER]: r["count"] for r in rows.groupBy(EARLIER).count().collect()}
            for name, rows in told.items()
        }
        return cls(
            tuple(told[name] for name, found in counts.items() if found),
            {name: found.get(False, 0) for name, found in counts.items()},
            {name: found[True] for name, found in counts.items() if found.get(True)},
        )

    def rows_taken(self, written: Mapping[str, int | None]) -> dict[str, int]:
        """What the sinks took, without what they had no place for."""
        return {name: max((rows or 0) - self.of_batch.get(name, 0), 0) for name, rows in written.items()}

    def notes(self) -> tuple[str, ...]:
        return tuple(
            f"{name}: {rows} rows of earlier batches are put aside with those that they contradict"
            for name, rows in self.of_earlier.items()
        )


def quarantine_broken(
    work: Work, judgement: Judgement, tally: Tally, batch: Batch, refusals: SinkRefusals
) -> int | None:
    """Write what broke a rule, or found no place, to the quarantine; how many rows of this batch, or None if nothing
    had to be read or written.

    A refresh gives up what was there, also where its rules were taken out: the rows are in the sinks then.
    """
    broken = [judgement.quarantined_rows()] if tally.quarantined else []
    parts = [quarantine_rows(rows, judgement.legend, batch) for rows in broken]
    parts += [refused_rows(rows, batch) for rows in refusals.rows]
    quarantined = tally.quarantined + sum(refusals.of_batch.values())
    if work.quarantine is None:
        return None
    if batch.kind == "refresh":
        letters, spark = Letters.of(work, batch.number, "quarantine"), judgement.marked_rows.sparkSession
        return quarantined if replace_letters(letters, parts, spark, batch) else None
    if not parts:
        return None
    size = batch.size if refusals.rows else BatchSize(tally.quarantined, is_bound=True)
    work.quarantine.write(union_all(parts), replace(batch, size=size))
    return quarantined


def write_dead_letters(work: Work, prepared: PreparedBatch, counts: RowCounts, batch: Batch) -> int | None:
    """Write what could not be parsed, or failed; how many records, or None if nothing was written.

    The source is read again only for that, unless they were frozen with the batch.
    """
    source = work.sources[0]
    if isinstance(source, SavedRecords):
        return write_outcome(source, prepared, batch)
    if work.dead_letters is None:
        return None
    parts = list(new_letters(work, prepared, counts, batch))
    if batch.kind == "refresh":
        spark = prepared.judgement.marked_rows.sparkSession
        has_written = replace_letters(Letters.of(work, batch.number), parts, spark, batch)
        return (union_all(parts).count() if parts else 0) if has_written else None
    size = BatchSize(counts.dead, is_bound=True) if prepared.failed_records is None else BatchSize()
    return (work.dead_letters.write(union_all(parts), replace(batch, size=size)) or 0) if parts else None


def new_letters(work: Work, prepared: PreparedBatch, counts: RowCounts, batch: Batch) -> Iterator[DataFrame]:
    """What the sources could not parse, and what the transform failed on."""
    if prepared.dead_records is not None:
        yield letter_rows(prepared.dead_records, None, "source", batch)
    for name, reading in prepared.readings.items():
        if reading.dead and counts.dead and prepared.dead_records is None:
            yield letter_rows(reading.dead(), name, "source", batch)
    if prepared.failed_records is not None:
        yield letter_rows(prepared.failed_records, work.sources[0].name, "transform", batch)


def write_outcome(source: SavedRecords, prepared: PreparedBatch, batch: Batch) -> int:
    """What became of the records of a replay; how many are still open."""
    rows = source.outcome_rows(prepared.judgement.marked_rows.sparkSession, prepared.failed_records, batch)
    source.letters.sink.write(rows, batch)
    return rows.where("status = 'open'").count()


def replace_letters(letters: Letters, parts: list[DataFrame], spark: SparkSession, batch: Batch) -> bool:
    """A refresh reads every record again: earlier letters are given up, so that none is delivered a second time.

    The table may hold letters of other jobs, so it is not overwritten. A record that is put aside again at its place
    has the id of its earlier letter, and stays open. Says whether anything was written.
    """
    earlier = letters.open_letters(spark)
    if earlier is not None:
        gone = earlier.join(union_all(parts).select("id"), "id", "left_anti") if parts else earlier
        parts = [*parts, discarded_rows(gone, batch)]
    if parts:
        letters.sink.write(union_all(parts), replace(batch, kind="batch"))
    return bool(parts)


@dataclass(frozen=True)
class SavedRecords(Immutable):
    """The records that a replay is about, in the place of the job's source.

    Letters are parsed as the job's own source would parse them today; quarantined rows are repaired by `changes`,
    columns and the SQL they become, and judged again. Which of them cannot go on is frozen before the others do: with
    other code, a recovery would take one that no sink has for one that was written.
    """

    origin: Source
    letters: Letters
    ids: tuple[str, ...]
    unread: Spool
    where: str = "true"
    changes: Mapping[str, str] | None = None
    rules: RuleSet = field(default_factory=RuleSet)

    @property
    def name(self) -> str:
        return self.origin.name

    def fingerprint(self, session: Session) -> str:
        return f"dead letters of job {self.letters.job}"

    def row_options(self) -> Mapping[str, object]:
        """Which letters they are stands in the intent; in another table, they would be others."""
        return {"origin": self.origin, "changes": self.changes, "table": self.letters.sink.describe()}

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        """Nothing comes by itself: a person asks for a replay."""
        return Sight(None)

    def read(self, spark: SparkSession, span: Span) -> Reading:
        from pyspark.sql import functions as F

        readings = list(self._readings(spark))
        rows = union_all([with_reason(reading) for reading in readings], fills_columns=True)
        if self.unread.counts() is None:
            bad = rows.where(F.col(UNREAD).isNotNull())
            self.unread.write(bad.select(F.col(LETTER)["letter"].alias("letter"), F.col(UNREAD).alias("why")))
            self.unread.finish(RowCounts(read=0))
        hidden = dict.fromkeys((UNREAD, LETTER, *(name for each in readings for name in each.hidden)))
        return Reading(rows, F.col(UNREAD), tuple(hidden), position=F.col(LETTER))

    def outcome_rows(self, spark: SparkSession, failed: DataFrame | None, batch: Batch) -> DataFrame:
        """What became of every letter; `failed` are those that the transform failed on."""
        failures = self.unread.read(spark)
        if failed is not None:
            failures = failures.unionByName(failed.selectExpr("letter", "reason as why"))
        return replayed_rows(self._chosen_letters(spark), failures, batch)

    def _readings(self, spark: SparkSession) -> Iterator[Reading]:
        """One for each schema in which records were saved; quarantined rows are judged together."""
        chosen = self._chosen_letters(spark)
        if self.letters.kind == "quarantine":
            yield self._judge(with_changes(saved_rows(chosen), self.changes or {}))
            return
        for met_by in ("source", "transform"):
            for saved in saved_parts(chosen.where(chosen["met_by"] == met_by)):
                yield self._parse_again(saved) if met_by == "source" else Reading(saved)

    def _judge(self, rows: DataFrame) -> Reading:
        """The rows, each with the rules that it breaks even so; one that only warns keeps no row back."""
        from pyspark.sql import functions as F

        if not self.rules:
            return Reading(rows)
        marked, legend = self.rules.mark(rows), self.rules.legend()
        strict = [place for place, (_, action) in enumerate(legend.rules) if action != "warn"]
        broken = F.when(F.expr(legend.breaks(strict)), F.concat_ws(", ", legend.reasons()))
        return Reading(marked, broken, tuple(name for name in marked.columns if name not in rows.columns))

    def _parse_again(self, saved: DataFrame) -> Reading:
        if isinstance(self.origin, Saving):
            return self.origin.read_saved(saved)
        raise ConfigError(
            f"source '{self.name}' of job '{self.letters.job}' is another one than put these letters aside.",
            hint=f"floodmark deadletters discard {self.letters.job}",
        )

    def _chosen_letters(self, spark: SparkSession) -> DataFrame:
        chosen = self.letters.replayable_letters(spark, self.ids, self.where)
        if chosen is None:
            raise ConfigError(
                f"the dead letters of job '{self.letters.job}' are gone: {self.letters.sink.path}.",
                hint=f"bring the table back, or `floodmark run --select {self.letters.job} --abandon`",
            )
        return chosen


def saved_rows(letters: DataFrame) -> DataFrame:
    """The records of letters with their own columns again; those of older batches may lack some."""
    return union_all(list(saved_parts(letters)), fills_columns=True)


def saved_parts(letters: DataFrame) -> Iterator[DataFrame]:
    """The same by schema, each row beside the column that orders letters as their source did, and names them."""
    from pyspark.sql import functions as F

    placed = letters.withColumn(LETTER, F.struct("line", "file", F.col("id").alias("letter")))
    for (shape,) in letters.select("shape").distinct().sort("shape").collect():
        yield parse_rows(placed.where(placed["shape"] == shape), "record", shape, beside=LETTER)


def with_changes(rows: DataFrame, changes: Mapping[str, str]) -> DataFrame:
    """The rows with these columns set to the values of these expressions, all of them over the old values."""
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as F

    kinds = {field.name.lower(): field.dataType for field in rows.schema.fields}
    unknown = [column for column in changes if column.lower() not in kinds]
    if unknown:
        raise ConfigError(f"the rows have no column '{unknown[0]}'.", hint=f"one of: {', '.join(rows.columns[1:])}")
    try:
        return rows.withColumns({to: F.expr(text).cast(kinds[to.lower()]) for to, text in changes.items()})
    except (AnalysisException, ParseException) as error:
        raise ConfigError(f"a column cannot be set so: {reason_of(error)}", hint="it is Spark's SQL") from error


def with_reason(reading: Reading) -> DataFrame:
    """The rows, each with the reason for which it cannot go on, if there is one."""
    from pyspark.sql import functions as F

    nothing = F.lit(None).cast("string")
    return reading.rows.withColumn(UNREAD, reading.reason if reading.reason is not None else nothing)
