"""The table of a job's dead letters: a row for each record that was put aside, and one for all done about it since.

Rows are only ever appended, each under the number of its batch. So what a letter was before a batch can be read at any
time after it, and a batch that is written again after a kill finds the same letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from floodmark.errors import ConfigError
from floodmark.sinks import Delta
from floodmark.sinks.contract import Batch
from floodmark.step.json_rows import as_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from floodmark.step.work import Work

MetBy = Literal["source", "transform"]
"""Whether a letter's `record` is what came in, not parsed yet, or a row that was on its way; `shape` is its schema.

A letter without a record can only be read by a person.
"""
PLACE = ("file", "line", "text")


@dataclass(frozen=True)
class Letters:
    """The letters of one job as they were before the batch of this number."""

    job: str
    path: str
    before: int

    @classmethod
    def of(cls, work: Work, before: int) -> Letters:
        """Raises ConfigError for a job that puts nothing aside."""
        if not isinstance(work.dead_letters, Delta):
            raise ConfigError(f"job '{work.name}' has no dead letters.", hint="give it `dead_letters: {path: …}`")
        return cls(work.name, str(work.dead_letters.path), before)

    def opened(self, spark: SparkSession) -> DataFrame | None:
        """Those that nobody has dealt with; None if there is no table, or one that knows no state of a letter yet."""
        from pyspark.sql import functions as F

        table = Delta(path=self.path, name="dead_letters").read(lambda: spark)
        if table is None or "id" not in table.columns:
            return None
        last = F.struct("number", F.col("status") != "open")  # under one number, what was done about it comes second
        mine = table.where((F.col("job") == self.job) & (F.col("number") < self.before) & F.col("id").isNotNull())
        newest = mine.groupBy("id").agg(F.max_by(F.struct(*mine.columns), last).alias("letter")).select("letter.*")
        return newest.where("status = 'open'")

    def replayable(self, spark: SparkSession, ids: Sequence[str] = ()) -> DataFrame | None:
        """Open letters that hold their record: those of these ids, or all."""
        from pyspark.sql import functions as F

        opened = self.opened(spark)
        if opened is None:
            return None
        whole = opened.where("record is not null")
        return whole.where(F.col("id").isin(list(ids))) if ids else whole


def fresh(frame: DataFrame, source: str, met_by: MetBy, batch: Batch) -> DataFrame:
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
        *_saved(frame),
    )


def settled(letters: DataFrame, failures: DataFrame | None, batch: Batch) -> DataFrame:
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


def given_up(letters: DataFrame, number: int) -> DataFrame:
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


def _saved(frame: DataFrame) -> list[Column]:
    """The record and its schema, whether the frame has it as a struct, as text, or not at all."""
    from pyspark.sql import functions as F

    if "shape" in frame.columns:
        return [F.col("record"), F.col("shape")]
    if "record" not in frame.columns:
        return [F.lit(None).cast("string").alias(name) for name in ("record", "shape")]
    shape = frame.select("record.*").schema.json()
    return [as_text(F.col("record")).alias("record"), F.lit(shape).alias("shape")]
