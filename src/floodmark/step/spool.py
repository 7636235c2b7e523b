"""The spool: a batch frozen as Parquet, so that every sink and every recovery sees the same rows; and its counts.

Rows are counted in the pass that writes them, without a second one. A finished spool knows size, rows and checksum of
every part: one that is missing, empty or another is never taken for the batch.
"""

from __future__ import annotations

import json
import shutil
import threading
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from floodmark.formats import with_format, without_format
from floodmark.locations import arrow_place, literal_path, local_path, path_in_marks
from floodmark.machine import ensure_folder, replace_file, sync_file, sync_folder
from floodmark.rules import Tally
from floodmark.sources.contract import Reading
from floodmark.spark.faults import FolderMarker
from floodmark.spark.table_files import in_one_task

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem
    from pyspark.sql import Column, DataFrame, Observation, SparkSession


COUNTS = "_floodmark.json"
COMPANIONS = ("-outcomes", "-unread", "-dead")
"""What is frozen beside a batch, in folders that are called like it: it is finished first."""
AT_ONCE = 16
FOOTER_END_BYTES = 8
"""Behind the footer of a Parquet file stand its length and four letters."""
DAMAGE = ("CRC checksum verification failed", "ChecksumException", "Checksum error")
"""What Spark says of a page, or of a local file, whose bytes are not those that were written."""
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
        """What the finished spool holds; None if it was never finished, or is no longer what was finished."""
        return self.stored_counts() if self.flaw() is None else None

    def stored_counts(self) -> RowCounts | None:
        """What it held when it was finished, if it ever was; whether it still does is not looked at."""
        stored = self._stored()
        if stored is None:
            return None
        tally = Tally.deserialize(stored["tally"]) if "tally" in stored else Tally()
        return RowCounts(stored["read"], stored["dead"], tally)

    def flaw(self) -> str | None:
        """Why it cannot stand for the batch, in words; None if every part is as it was when it was finished."""
        try:
            stored = self._stored()
        except (ValueError, TypeError) as error:
            return f"{COUNTS} in it is damaged ({error})"
        if stored is None:
            return "it is not there" if not self._is_there() else f"it holds no {COUNTS}: it was not finished"
        if "parts" not in stored:  # a version wrote it that did not know of them
            return None
        flaws = (Spool(f"{self.folder}{each}").flaw() for each in stored["companions"])
        return self._flaw_of_parts(stored["parts"]) or next(filter(None, flaws), None)

    def has_counts(self) -> bool:
        """Whether it was finished once, whatever became of it."""
        return self._stored_bytes() is not None

    def begin(self) -> None:
        """Make its folder, before the batch is intended: one that is not there later was lost, with what it held."""
        folder = local_path(self.folder)
        if folder is not None:
            ensure_folder(folder)

    def may_be_in_use(self) -> bool:
        """Whether a run may hold its rows: it was finished once, or is gone from the disk where it was begun."""
        return self.has_counts() or (local_path(self.folder) is not None and not self._is_there())

    def write(self, rows: DataFrame) -> None:
        """Without dictionaries, which are a tenth of the work: it is read once or twice, and soon."""
        folder = local_path(self.folder)
        marker = None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)  # of this attempt, which begins again
            ensure_folder(folder.parent)
            marker = FolderMarker.put_into(folder)
        mode = "overwrite" if marker is None else "append"
        kept = rows if marker is None else marker.guard(rows)
        kept.write.mode(mode).option("parquet.enable.dictionary", "false").parquet(self._spark_place())
        if marker is not None:
            marker.require()

    def finish(self, counts: RowCounts) -> None:
        """Its rows are all there: from here on a recovery reads them instead of the source.

        What is on a local disk is made durable before it is called finished. An object store does both by itself.
        """
        system, path = arrow_place(self.folder)
        folder = local_path(self.folder)
        if folder is not None:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(sync_file, folder.iterdir()))
            sync_folder(folder)
        facts = {
            "read": counts.read,
            "dead": counts.dead,
            "tally": counts.tally.serialize(),
            "parts": part_facts(system, list_parts(system, path)),
            "companions": [each for each in COMPANIONS if Spool(f"{self.folder}{each}").counts()],
        }
        if folder is not None:
            replace_file(folder / COUNTS, json.dumps(with_format(facts)))
            sync_folder(folder.parent)
            return
        with system.open_output_stream(f"{path}/{COUNTS}") as stream:
            stream.write(json.dumps(with_format(facts)).encode())

    def read(self, spark: SparkSession) -> DataFrame:
        """Its rows; Spark would run a job of its own to learn what columns they have.

        Every page was written with a checksum, and is compared with it.
        """
        from pyspark.sql.types import StructType

        system, path = arrow_place(self.folder)
        parts = list_parts(system, path)
        reader = spark.read.schema(StructType.fromJson(json.loads(columns_of(system, parts))))
        reader = reader.option("parquet.page.verify-checksum.enabled", "true")
        rows = reader.parquet(literal_path(self._spark_place()))
        return in_one_task(rows, len(parts), sum(part.size for part in parts))

    def condemn(self) -> None:
        """A page of it turned out to be damaged: it is not finished any more, and the next run sees that.

        Only for the attempt whose batch is open: to another one the spool may be all that there is of its rows.
        """
        system, path = arrow_place(self.folder)
        if self.has_counts():
            system.delete_file(f"{path}/{COUNTS}")

    def rows(self) -> int:
        """How many there are: as they were counted when it was finished, before that by the footers of its parts."""
        system, path = arrow_place(self.folder)
        parts = (self._stored() or {}).get("parts") or part_facts(system, list_parts(system, path))
        return sum(rows for _, rows, _ in parts.values())

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

    def _flaw_of_parts(self, expected: Mapping[str, list[int]]) -> str | None:
        system, path = arrow_place(self.folder)
        parts = list_parts(system, path)
        sizes = {part.base_name: part.size for part in parts}
        for name, (size, *_) in expected.items():
            if sizes.get(name) != size:
                return f"{name} in it is missing" if name not in sizes else f"{name} in it has another size"
        if len(parts) > len(expected):
            return f"{next(name for name in sizes if name not in expected)} in it is not of this batch"
        try:
            found = part_facts(system, parts)
        except (OSError, ValueError) as error:
            return f"a part of it cannot be read ({error})"
        return next((f"{name} in it is damaged" for name in expected if found[name] != list(expected[name])), None)

    def _stored(self) -> Mapping[str, Any] | None:
        stored = self._stored_bytes()
        return None if stored is None else without_format(json.loads(stored), "the spool", where=self.folder)

    def _stored_bytes(self) -> bytes | None:
        from pyarrow.fs import FileType

        system, path = arrow_place(self.folder)
        if system.get_file_info(f"{path}/{COUNTS}").type == FileType.NotFound:
            return None
        with system.open_input_stream(f"{path}/{COUNTS}") as stream:
            return bytes(stream.read())

    def _is_there(self) -> bool:
        from pyarrow.fs import FileType

        system, path = arrow_place(self.folder)
        return bool(system.get_file_info(path).type != FileType.NotFound)

    def _spark_place(self) -> str:
        """Also where Spark's default file system is another than this machine's disks."""
        folder = local_path(self.folder)
        return f"file:{folder}" if folder is not None else self.folder


def remove_spools(jobs_folder: str, upto: int) -> None:
    """Remove what batches up to this number froze: they are committed or closed. A successor's spool stays."""
    from pyarrow.fs import FileSelector, FileType

    system, path = arrow_place(path_in_marks(jobs_folder))
    for entry in system.get_file_info(FileSelector(path, allow_not_found=True)):
        number = entry.base_name.partition("-")[0]
        if entry.type == FileType.Directory and number.isdigit() and int(number) <= upto:
            system.delete_dir(entry.path)


def is_damage(error: Exception, folder: str) -> bool:
    """Whether it says that a file of this spool holds other bytes than were written."""
    return folder in str(error) and any(words in str(error) for words in DAMAGE)


def list_parts(system: FileSystem, path: str) -> list[FileInfo]:
    """The files that hold rows; none, where there is no such folder."""
    from pyarrow.fs import FileSelector

    entries = system.get_file_info(FileSelector(path, allow_not_found=True))
    return sorted((entry for entry in entries if entry.extension == "parquet"), key=lambda entry: entry.path)


def columns_of(system: FileSystem, parts: list[FileInfo]) -> bytes:
    """What Spark wrote of the columns into the foot of every file; there is one, even for no rows."""
    import pyarrow.parquet as pq

    first = next(iter(parts))
    return pq.read_schema(first.path, filesystem=system).metadata[SPARK_COLUMNS]  # type: ignore[no-any-return]


def part_facts(system: FileSystem, parts: list[FileInfo]) -> dict[str, list[int]]:
    """By part: bytes, rows, and a checksum of its footer, which tells where every page lies.

    The pages have checksums of their own, which reading compares: no byte is read twice for this.
    """
    if not parts:
        raise FileNotFoundError("the spool has no part, and one is written even for no rows")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        facts = pool.map(partial(footer_facts, system), parts)
        return {part.base_name: fact for part, fact in zip(parts, facts, strict=True)}


def footer_facts(system: FileSystem, part: FileInfo) -> list[int]:
    """Bytes and rows of one part, and the checksum of its footer."""
    import pyarrow.parquet as pq

    with system.open_input_file(part.path) as file:
        footer = pq.read_metadata(file)
        file.seek(part.size - FOOTER_END_BYTES - footer.serialized_size)
        return [part.size, footer.num_rows, zlib.crc32(file.read())]


@dataclass(frozen=True)
class RowCounter:
    """Rows of one source, observed directly above its scan, where no shuffle can have them counted twice."""

    rows: DataFrame
    observation: Observation
    reading: Reading

    def result(self, *, was_executed: bool) -> RowCounts:
        """What the write saw; where nothing was written (all sinks had it already), the span is counted on its own.

        Of the observed rows: Spark keeps an observation for ever whose plan its session has not run.
        """
        seen = wait_for_observation(self.observation) if was_executed else None
        return RowCounts(**(seen or self.rows.agg(*measures(self.reading)).collect()[0].asDict()))


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
