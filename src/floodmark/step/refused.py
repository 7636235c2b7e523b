"""Rows that did not get to the sinks: dead letters (not parsed, or failed) and the quarantine (broke a rule).

Both are written once, under the number of their batch, after the sinks and before the mark is raised. A batch that no
sink has may still be dropped and planned again under another number, and its rows would be put aside twice; a kill
between these writes and the commit repeats them under the same number. What a person does with them is in `jobs`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal

from floodmark.errors import ConfigError
from floodmark.rules import Tally
from floodmark.rules.rule_set import JSON_OPTIONS, Legend, as_json
from floodmark.sinks import Delta
from floodmark.sinks.contract import Batch, Sink, without_own
from floodmark.sources.contract import LETTER, Immutable, Reading, Request, Saving, Session, Sight, Source
from floodmark.step.checks import Judgement
from floodmark.step.spool import RowCounts, Spool
from floodmark.step.work import Work

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from floodmark.hwm import HWM, Span
    from floodmark.step.batch import PreparedBatch


MetBy = Literal["source", "transform"]
"""Whether a letter's `record` is what came in, not parsed yet, or a row that was on its way; `shape` is its schema.

A letter without a record can only be read by a person.
"""
PLACE = ("file", "line", "text")
UNREAD = "_fm_unread"
"""Why a saved record cannot be parsed even now."""


def write_dead_letters(work: Work, prepared: PreparedBatch, counts: RowCounts, batch: Batch) -> int:
    """Write what could not be parsed, or failed; how many records that were. The source is read again only for that."""
    if work.dead_letters is None:
        return 0
    source = work.sources[0]
    if isinstance(source, SavedRecords):
        return write_outcome(source, prepared, work.dead_letters, batch)
    parts = list(new_letters(work, prepared, counts, batch))
    if batch.kind == "refresh":
        return replace_letters(work, work.dead_letters, parts, prepared.judgement.marked_rows.sparkSession, batch)
    return work.dead_letters.write(union_all(parts), batch) or 0 if parts else 0


def new_letters(work: Work, prepared: PreparedBatch, counts: RowCounts, batch: Batch) -> Iterator[DataFrame]:
    """What the sources could not parse, and what the transform failed on."""
    for name, reading in prepared.readings.items():
        if reading.dead and counts.dead:
            yield letter_rows(reading.dead(), name, "source", batch)
    if prepared.failed_records is not None:
        yield letter_rows(prepared.failed_records, work.sources[0].name, "transform", batch)


def write_outcome(source: SavedRecords, prepared: PreparedBatch, sink: Sink, batch: Batch) -> int:
    """What became of the letters of a replay; how many are still open."""
    rows = source.outcome_rows(prepared.judgement.marked_rows.sparkSession, prepared.failed_records, batch)
    sink.write(rows, batch)
    return rows.where("status = 'open'").count()


def replace_letters(work: Work, sink: Sink, parts: list[DataFrame], spark: SparkSession, batch: Batch) -> int:
    """A refresh reads every record again: earlier letters are given up, so that none is delivered a second time.

    The table may hold letters of other jobs, so it is not overwritten.
    """
    earlier = Letters.of(work, batch.number).open_letters(spark)
    found = union_all(parts).count() if parts else 0
    gone = [discarded_rows(earlier, batch.number - 1)] if earlier is not None else []
    if parts or gone:
        sink.write(union_all([*parts, *gone]), replace(batch, kind="batch"))
    return found


def quarantine_broken(work: Work, judgement: Judgement, tally: Tally, batch: Batch) -> int:
    """Write what broke a rule to the quarantine, and how many rows that were; nothing is read if no row did."""
    if work.quarantine is None or not (tally.quarantined or must_be_emptied(work.quarantine, judgement, batch)):
        return 0
    broken = judgement.quarantined_rows() if tally.quarantined else judgement.quarantined_rows().limit(0)
    written = work.quarantine.write(quarantine_rows(broken, judgement.legend, batch), batch)
    return tally.quarantined if written is None else written


def must_be_emptied(quarantine: Sink, judgement: Judgement, batch: Batch) -> bool:
    """Whether rows of earlier batches have to go: a refresh reads everything anew, and judges them again."""
    is_refresh = batch.kind == "refresh" and bool(judgement.rules)
    return is_refresh and quarantine.holds_rows(lambda: judgement.marked_rows.sparkSession)


def quarantine_rows(broken: DataFrame, legend: Legend, batch: Batch) -> DataFrame:
    """The rows in the form of the quarantine: any row fits, whatever its columns are tomorrow.

    `row` is the row as JSON and `schema` its types; `status` is open, replaying, replayed or discarded. A replay
    writes its id, the repaired row and what it has to find again (`claim`) beside the row.
    """
    from pyspark.sql import functions as F

    nothing = F.lit(None).cast("string")
    return broken.select(
        F.expr("uuid()").alias("id"),
        F.lit(batch.job).alias("job"),
        F.lit(batch.number).cast("long").alias("number"),
        F.lit(batch.batch_time).alias("batch_time"),
        legend.reasons().alias("reasons"),
        F.expr(as_json(broken)).alias("row"),
        F.lit(without_own(broken).schema.json()).alias("schema"),
        F.lit("open").alias("status"),
        nothing.alias("replay"),
        nothing.alias("repaired"),
        nothing.alias("claim"),
    )


@dataclass(frozen=True)
class Letters:
    """The letters of one job as they were before the batch of this number.

    The table has a row for each record that was put aside, and one for all done about it since. Rows are only ever
    appended, each under the number of its batch: what a letter was before a batch can be read at any time after it,
    and a batch that is written again after a kill finds the same letters.
    """

    job: str
    path: str
    before: int

    @classmethod
    def of(cls, work: Work, before: int) -> Letters:
        """Raises ConfigError for a job that puts nothing aside."""
        if not isinstance(work.dead_letters, Delta):
            raise ConfigError(f"job '{work.name}' has no dead letters.", hint="give it `dead_letters: {path: …}`")
        return cls(work.name, str(work.dead_letters.path), before)

    def open_letters(self, spark: SparkSession) -> DataFrame | None:
        """Those that nobody has dealt with; None if there is no table, or one that knows no state of a letter yet."""
        from pyspark.sql import functions as F

        table = Delta(path=self.path, name="dead_letters").read(lambda: spark)
        if table is None or "id" not in table.columns:
            return None
        last = F.struct("number", F.col("status") != "open")  # under one number, what was done about it comes second
        mine = table.where((F.col("job") == self.job) & (F.col("number") < self.before) & F.col("id").isNotNull())
        newest = mine.groupBy("id").agg(F.max_by(F.struct(*mine.columns), last).alias("letter")).select("letter.*")
        return newest.where("status = 'open'")

    def replayable_letters(self, spark: SparkSession, ids: Sequence[str] = ()) -> DataFrame | None:
        """Open letters that hold their record: those of these ids, or all."""
        from pyspark.sql import functions as F

        opened = self.open_letters(spark)
        if opened is None:
            return None
        whole = opened.where("record is not null")
        return whole.where(F.col("id").isin(list(ids))) if ids else whole


@dataclass(frozen=True)
class SavedRecords(Immutable):
    """The letters that a replay is about, in the place of the job's source.

    Which of them could not be parsed is frozen before the others go on: with other code, a recovery would take one
    that no sink has for one that was written.
    """

    origin: Source
    letters: Letters
    ids: tuple[str, ...]
    unread: Spool

    @property
    def name(self) -> str:
        return self.origin.name

    def fingerprint(self, session: Session) -> str:
        return f"dead letters of job {self.letters.job}"

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        """Nothing comes by itself: a person asks for a replay."""
        return Sight(None)

    def read(self, spark: SparkSession, span: Span) -> Reading:
        from pyspark.sql import functions as F

        readings = list(self._readings(spark))
        rows = reduce(
            lambda one, other: one.unionByName(other, allowMissingColumns=True),
            [with_reason(reading) for reading in readings],
        )
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
        """One for each schema in which records were saved."""
        chosen = with_place(self._chosen_letters(spark))
        for met_by, shape in chosen.select("met_by", "shape").distinct().sort("met_by", "shape").collect():
            such = chosen.where((chosen["met_by"] == met_by) & (chosen["shape"] == shape))
            saved = parse_rows(such, "record", shape, beside=LETTER)
            yield self._parse_again(saved) if met_by == "source" else Reading(saved)

    def _parse_again(self, saved: DataFrame) -> Reading:
        if isinstance(self.origin, Saving):
            return self.origin.read_saved(saved)
        raise ConfigError(
            f"source '{self.name}' of job '{self.letters.job}' is another one than put these letters aside.",
            hint=f"floodmark deadletters discard {self.letters.job}",
        )

    def _chosen_letters(self, spark: SparkSession) -> DataFrame:
        chosen = self.letters.replayable_letters(spark, self.ids)
        if chosen is None:
            raise ConfigError(
                f"the dead letters of job '{self.letters.job}' are gone: {self.letters.path}.",
                hint=f"bring the table back, or `floodmark run --select {self.letters.job} --abandon`",
            )
        return chosen


def with_place(letters: DataFrame) -> DataFrame:
    """Letters with the column that goes with their records: it orders them as their source did, and names them."""
    from pyspark.sql import functions as F

    return letters.withColumn(LETTER, F.struct("line", "file", F.col("id").alias("letter")))


def with_reason(reading: Reading) -> DataFrame:
    """The rows, each with the reason for which it cannot be parsed, if there is one."""
    from pyspark.sql import functions as F

    nothing = F.lit(None).cast("string")
    return reading.rows.withColumn(UNREAD, reading.reason if reading.reason is not None else nothing)


def letter_rows(frame: DataFrame, source: str, met_by: MetBy, batch: Batch) -> DataFrame:
    """New letters: what was met (file, line, text, reason, and the record where it can be run again), and by which
    batch of which job.

    A place that has a line is met by one record only, so a letter of it has the same id when it is put aside again.
    """
    from pyspark.sql import functions as F

    where = F.concat_ws(":", F.lit(source), "file", "line")
    return frame.select(
        *_heading(source, batch),
        *PLACE,
        "reason",
        F.when(F.col("line").isNotNull() & F.col("file").isNotNull(), where).otherwise(F.expr("uuid()")).alias("id"),
        F.lit("open").alias("status"),
        F.lit(1).alias("attempts"),
        F.lit(met_by).alias("met_by"),
        *_record_columns(frame),
    )


def replayed_rows(letters: DataFrame, failures: DataFrame | None, batch: Batch) -> DataFrame:
    """What a replay made of these letters: done with, or open as before with one attempt more and the new reason.

    `failures` are (letter, why).
    """
    from pyspark.sql import functions as F

    why = letters.withColumn("why", F.lit(None).cast("string"))
    if failures is not None:
        why = letters.join(failures, letters["id"] == failures["letter"], "left").drop("letter")
    failed = F.col("why").isNotNull()
    return why.select(
        *_heading(None, batch),
        *PLACE,
        F.coalesce("why", "reason").alias("reason"),
        "id",
        F.when(failed, "open").otherwise("replayed").alias("status"),
        (F.col("attempts") + 1).alias("attempts"),
        "met_by",
        F.when(failed, F.col("record")).alias("record"),
        "shape",
    )


def discarded_rows(letters: DataFrame, number: int) -> DataFrame:
    """These letters as discarded, under the number of a batch that is committed."""
    from pyspark.sql import functions as F

    nothing = F.lit(None).cast("string")
    return letters.withColumns({"number": F.lit(number).cast("long"), "status": F.lit("discarded"), "record": nothing})


def _heading(source: str | None, batch: Batch) -> list[Column]:
    from pyspark.sql import functions as F

    return [
        F.lit(batch.job).alias("job"),
        F.col("source") if source is None else F.lit(source).alias("source"),
        F.lit(batch.number).cast("long").alias("number"),
        F.lit(batch.batch_time).alias("batch_time"),
    ]


def _record_columns(frame: DataFrame) -> list[Column]:
    """The record and its schema, whether the frame has it as a struct, as text, or not at all."""
    from pyspark.sql import functions as F

    if "shape" in frame.columns:
        return [F.col("record"), F.col("shape")]
    if "record" not in frame.columns:
        return [F.lit(None).cast("string").alias(name) for name in ("record", "shape")]
    shape = frame.select("record.*").schema.json()
    return [json_text(F.col("record")).alias("record"), F.lit(shape).alias("shape")]


def parse_rows(rows: DataFrame, column: str, schema: str, *, beside: str) -> DataFrame:
    """The JSON of a column as columns, after the one that is named; a text that somebody edited wrongly stops it."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    shape = StructType.fromJson(json.loads(schema))
    row = F.from_json(F.col(column), shape, {**JSON_OPTIONS, "mode": "FAILFAST"})
    return rows.select(beside, row.alias("row")).select(beside, "row.*")


def json_text(record: Column) -> Column:
    """A struct as JSON, with every digit of its times; bytes become base64."""
    from pyspark.sql import functions as F

    return F.to_json(record, JSON_OPTIONS)


def union_all(parts: list[DataFrame]) -> DataFrame:
    """All of them as one frame."""
    return reduce(lambda one, other: one.unionByName(other), parts)
