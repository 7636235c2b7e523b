"""The spool: a batch frozen as Parquet, so that every sink and every recovery sees the same rows; and its counts.

Rows are counted in the pass that writes them, without a second one.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from floodmark.formats import with_format, without_format
from floodmark.locations import arrow_place
from floodmark.rules import Tally
from floodmark.sources.contract import Reading

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession


COUNTS = "_floodmark.json"
PATIENCE_SECONDS = 5.0
SPARK_COLUMNS = b"org.apache.spark.sql.parquet.row.metadata"


@dataclass(frozen=True)
class RowCounts:
    """Rows as they were counted in the pass that read them."""

    read: int
    dead: int = 0
    tally: Tally = field(default_factory=Tally)
    """What the rules said; nothing, where there are none."""


@dataclass(frozen=True)
class Spool:
    """One attempt's folder. It is complete when its counts are there: they are written last."""

    folder: str

    def counts(self) -> RowCounts | None:
        """What the finished spool holds, or None if it was never finished."""
        from pyarrow.fs import FileType

        system, path = arrow_place(self.folder)
        if system.get_file_info(f"{path}/{COUNTS}").type == FileType.NotFound:
            return None
        with system.open_input_stream(f"{path}/{COUNTS}") as stream:
            stored = without_format(json.loads(stream.read()), "the spool", where=self.folder)
        tally = Tally.deserialize(stored["tally"]) if "tally" in stored else Tally()
        return RowCounts(stored["read"], stored["dead"], tally)

    def write(self, rows: DataFrame) -> None:
        """Without dictionaries, which are a tenth of the work: it is read once or twice, and soon."""
        rows.write.mode("overwrite").option("parquet.enable.dictionary", "false").parquet(self.folder)

    def finish(self, counts: RowCounts) -> None:
        """Its rows are all there: from here on a recovery reads them instead of the source."""
        system, path = arrow_place(self.folder)
        with system.open_output_stream(f"{path}/{COUNTS}") as stream:
            facts = {"read": counts.read, "dead": counts.dead, "tally": counts.tally.serialize()}
            stream.write(json.dumps(with_format(facts)).encode())

    def read(self, spark: SparkSession) -> DataFrame:
        """Its rows; Spark would run a job of its own to learn what columns they have."""
        from pyspark.sql.types import StructType

        return spark.read.schema(StructType.fromJson(json.loads(self._columns()))).parquet(self.folder)

    def rows(self) -> int:
        """How many there are, by the feet of its files."""
        import pyarrow.dataset as ds

        system, path = arrow_place(self.folder)
        return int(ds.dataset(path, filesystem=system, format="parquet", exclude_invalid_files=False).count_rows())

    def holds(self, flag: str) -> bool:
        """Whether a boolean column is true in any row; asked of that column alone, without Spark."""
        import pyarrow.dataset as ds

        system, path = arrow_place(self.folder)
        found = ds.dataset(path, filesystem=system, format="parquet", exclude_invalid_files=False)
        return bool(found.count_rows(filter=ds.field(flag)))

    def remove(self) -> None:
        from pyarrow.fs import FileType

        system, path = arrow_place(self.folder)
        if system.get_file_info(path).type == FileType.Directory:
            system.delete_dir(path)

    def _columns(self) -> bytes:
        """What Spark wrote of the columns into the foot of every file; there is one, even for no rows."""
        import pyarrow.parquet as pq
        from pyarrow.fs import FileSelector

        system, path = arrow_place(self.folder)
        files = [file.path for file in system.get_file_info(FileSelector(path)) if file.extension == "parquet"]
        return pq.read_schema(files[0], filesystem=system).metadata[SPARK_COLUMNS]  # type: ignore[no-any-return]


@dataclass(frozen=True)
class RowCounter:
    """Rows of one source, observed directly above its scan, where no shuffle can have them counted twice."""

    rows: DataFrame
    observation: Observation
    reading: Reading

    def result(self, *, was_executed: bool) -> RowCounts:
        """What the write saw; where nothing was written (all sinks had it already), the span is counted on its own."""
        seen = wait_for_observation(self.observation) if was_executed else None
        return RowCounts(**(seen or self.reading.rows.agg(*measures(self.reading)).collect()[0].asDict()))


def wait_for_observation(observation: Observation) -> dict[str, Any] | None:
    """`Observation.get` waits for ever if the plan was skipped: a thread asks it that may be left behind."""
    answers: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: answers.append(observation.get), daemon=True)
    asking.start()
    asking.join(PATIENCE_SECONDS)
    return answers[0] if answers and answers[0] else None


def observe_rows(reading: Reading, rows: DataFrame) -> RowCounter:
    """Put the counter on the rows; it costs no job of its own."""
    from pyspark.sql import Observation

    observation = Observation()
    return RowCounter(rows.observe(observation, *measures(reading)), observation, reading)


def measures(reading: Reading) -> tuple[Column, Column]:
    """How many rows there are, and how many of them could not be parsed."""
    from pyspark.sql import functions as F

    is_dead = reading.reason.isNotNull() if reading.reason is not None else F.lit(False)
    return F.count(F.lit(1)).alias("read"), F.count_if(is_dead).alias("dead")
