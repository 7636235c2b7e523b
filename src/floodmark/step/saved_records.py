"""Dead letters as the source of a batch: saved records, parsed as the job's own source would parse them today."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError
from floodmark.sources.contract import LETTER, Immutable, Reading, Request, Saving, Session, Sight, Source
from floodmark.step.json_rows import parsed
from floodmark.step.letters import Letters, settled
from floodmark.step.spool import Counted, Spool

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.hwm import HWM, Span
    from floodmark.sinks.contract import Batch

UNREAD = "_fm_unread"
"""Why a saved record cannot be parsed even now."""


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
            [told_apart(reading) for reading in readings],
        )
        if self.unread.counted() is None:
            bad = rows.where(F.col(UNREAD).isNotNull())
            self.unread.write(bad.select(F.col(LETTER)["letter"].alias("letter"), F.col(UNREAD).alias("why")))
            self.unread.finish(Counted(read=0))
        hidden = dict.fromkeys((UNREAD, LETTER, *(name for each in readings for name in each.hidden)))
        return Reading(rows, F.col(UNREAD), tuple(hidden), position=F.col(LETTER))

    def settled(self, spark: SparkSession, failed: DataFrame | None, batch: Batch) -> DataFrame:
        """What became of every letter; `failed` are those that the transform failed on."""
        failures = self.unread.read(spark)
        if failed is not None:
            failures = failures.unionByName(failed.selectExpr("letter", "reason as why"))
        return settled(self._chosen(spark), failures, batch)

    def _readings(self, spark: SparkSession) -> Iterator[Reading]:
        """One for each schema in which records were saved."""
        chosen = with_place(self._chosen(spark))
        for met_by, shape in chosen.select("met_by", "shape").distinct().sort("met_by", "shape").collect():
            such = chosen.where((chosen["met_by"] == met_by) & (chosen["shape"] == shape))
            saved = parsed(such, "record", shape, beside=LETTER)
            yield self._parsed_again(saved) if met_by == "source" else Reading(saved)

    def _parsed_again(self, saved: DataFrame) -> Reading:
        if isinstance(self.origin, Saving):
            return self.origin.read_saved(saved)
        raise ConfigError(
            f"source '{self.name}' of job '{self.letters.job}' is another one than put these letters aside.",
            hint=f"floodmark deadletters discard {self.letters.job}",
        )

    def _chosen(self, spark: SparkSession) -> DataFrame:
        chosen = self.letters.replayable(spark, self.ids)
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


def told_apart(reading: Reading) -> DataFrame:
    """The rows, each with the reason for which it cannot be parsed, if there is one."""
    from pyspark.sql import functions as F

    nothing = F.lit(None).cast("string")
    return reading.rows.withColumn(UNREAD, reading.reason if reading.reason is not None else nothing)
