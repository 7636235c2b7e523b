"""The folder of a batch: its part files in one of five formats, and the manifest that says whose and how many they are.

Which folder appears when is the sink's; a folder belongs to one ledger.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from floodmark.errors import ConfigError
from floodmark.formats import with_format, without_format
from floodmark.machine import sync_file, sync_folder
from floodmark.sinks.contract import Recorded, is_ledger
from floodmark.sinks.values import csv_field, json_field, json_record, line_field, parquet_field
from floodmark.spark.schemas import EXACT_JSON, EXACT_TIMES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

FileFormat = Literal["jsonl", "json", "csv", "parquet", "text"]
CHUNK_BYTES = 1 << 20
CSV_OPTIONS = {
    **EXACT_TIMES,
    "header": "true",
    "escape": '"',  # a quote within a value is doubled, as RFC 4180 has it: Spark's backslash is read by few others
    "ignoreLeadingWhiteSpace": "false",  # by default Spark cuts the spaces at both ends of every text
    "ignoreTrailingWhiteSpace": "false",
}
PARQUET_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # Arrow reads the old INT96 of the year 1500 as 2084
    "spark.sql.variant.inferShreddingSchema": "false",  # few readers put a shredded variant together again
}
MANIFEST = "_floodmark.json"
FOLDER = "batch="


@dataclass(frozen=True)
class Manifest:
    """Which batch a folder holds, for which ledger, and the rows of each of its files."""

    ledger: str
    number: int
    digest: str | None = None
    job: str | None = None
    rows: int = 0
    files: Mapping[str, int] = field(default_factory=dict)

    def recorded(self) -> Recorded:
        """What the ledger says by it: every batch has a digest, so one without is a fence."""
        return Recorded(self.number, self.digest, is_fence=self.digest is None)

    def write(self, folder: Path) -> None:
        (folder / MANIFEST).write_text(json.dumps(with_format(asdict(self)), sort_keys=True), encoding="utf-8")


def batch_folder(folder: Path, number: int) -> Path:
    """Where a batch is published."""
    return folder / f"{FOLDER}{number}"


def numbered_folders(folder: Path, prefix: str = "") -> dict[Path, int]:
    """The folders of attempts, each with its batch: a number and a dash follow the prefix."""
    found = [path for path in folder.iterdir() if path.name.startswith(prefix)] if folder.exists() else []
    labels = {path: path.name.removeprefix(prefix).partition("-")[0] for path in found}
    return {path: int(label) for path, label in labels.items() if label.isdigit()}


def batch_numbers(folder: Path) -> tuple[int, ...]:
    """The batches that were published here."""
    if not folder.exists():
        return ()
    with os.scandir(folder) as entries:
        labels = [entry.name.removeprefix(FOLDER) for entry in entries if entry.name.startswith(FOLDER)]
    return tuple(int(label) for label in labels if label.isdigit())


def manifest_of(folder: Path, number: int) -> Manifest:
    """What the batch's own manifest says; raises ConfigError if it has none, for then it is not this sink's."""
    published = batch_folder(folder, number)
    try:
        stored = json.loads((published / MANIFEST).read_text(encoding="utf-8"))
        return Manifest(**without_format(stored, MANIFEST, where=str(published)))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{published} has no readable {MANIFEST}: it was not published by this sink, or was damaged ({error}).",
            hint="move that folder away, or give the sink a folder of its own",
        ) from error


def last_batch(folder: Path) -> int:
    """The highest number that is no fence; 0, if there is none."""
    numbers = sorted(batch_numbers(folder), reverse=True)
    return next((number for number in numbers if not manifest_of(folder, number).recorded().is_fence), 0)


def newest_manifest(folder: Path, ledger: str) -> Manifest | None:
    """The highest batch. Numbers mean nothing across jobs, so a folder belongs to one ledger: raises ConfigError."""
    newest = max(batch_numbers(folder), default=None)
    manifest = manifest_of(folder, newest) if newest is not None else None
    if manifest is not None and not is_ledger(manifest.ledger, ledger):
        raise ConfigError(
            f"{folder} belongs to {manifest.ledger}, and {ledger} would write into it.",
            hint="give each job its own folder",
        )
    return manifest


def make_durable(folder: Path) -> None:
    """Bring a folder, and what is directly in it, from the system's memory to the disk."""
    for file in folder.iterdir():
        sync_file(file)
    sync_folder(folder)


def as_written(rows: DataFrame, file_format: FileFormat) -> DataFrame:
    """The rows with every value in the form that the format keeps exactly. Raises ColumnUnfit."""
    fields = rows.schema.fields
    if file_format == "jsonl":
        return rows.select(*map(json_field, fields))
    if file_format == "json":
        return rows.select(json_record(rows, rows.columns).alias("value"))
    if file_format == "csv":
        return rows.select(*map(csv_field, fields))
    if file_format == "parquet":
        return rows.select(*map(parquet_field, fields))
    return rows.select(*map(line_field, fields))


def write_files(rows: DataFrame, folder: Path, file_format: FileFormat) -> None:
    """Part files below the folder; columns that are NULL are written too, so that every record has the same fields."""
    target = f"file:{folder}"
    if file_format == "parquet":
        with settings_of_the_write(rows.sparkSession, PARQUET_SETTINGS):
            writer_of(rows).parquet(target)
    elif file_format == "csv":
        writer_of(rows).options(**CSV_OPTIONS).csv(target)
    elif file_format == "jsonl":
        writer_of(rows).options(**EXACT_JSON).json(target)
    elif file_format == "text":
        writer_of(rows).text(target)
    else:
        writer_of(rows.mapInArrow(_bracketed, "value string")).text(target)


@contextmanager
def settings_of_the_write(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Settings that a writer takes from its session alone; a session that has them already is not touched."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    changed = {name: value for name, value in wanted.items() if before[name] != value}
    for name, value in changed.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in changed:
            earlier = before[name]
            spark.conf.unset(name) if earlier is None else spark.conf.set(name, earlier)


def writer_of(rows: DataFrame) -> DataFrameWriter:
    """It writes into the folder that the marker made."""
    return rows.write.mode("append")


def _bracketed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One JSON list per partition, a line per record, without holding more than a batch of them."""
    import pyarrow as pa

    def lines(texts: list[str]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"value": texts}, schema=pa.schema([("value", pa.string())]))

    yield lines(["["])
    comma = ""
    for batch in batches:
        texts = []
        for text in batch.column(0).to_pylist():
            texts.append(comma + text)
            comma = ","
        yield lines(texts)
    yield lines(["]"])


def is_empty_list_file(file: Path, file_format: FileFormat) -> bool:
    """Without any partition Spark's text writer leaves a file without a byte, which is no JSON."""
    return file_format == "json" and file.stat().st_size == 0


def count_rows(file: Path, file_format: FileFormat) -> int:
    """The rows of one file that `write_files` wrote."""
    return COUNTERS[file_format](file)


def _lines(file: Path) -> int:
    """Our writers end every line, and JSON has no line break within a record."""
    with file.open("rb") as stream:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(CHUNK_BYTES), b""))


def _csv_rows(file: Path) -> int:
    """Line ends outside quotes, less the header; every quote is a bound or doubled, so their parity tells."""
    records, outside = 0, True
    with file.open("rb") as stream:
        for chunk in iter(lambda: stream.read(CHUNK_BYTES), b""):
            for place, piece in enumerate(chunk.split(b'"')):
                outside = outside if place == 0 else not outside
                records += piece.count(b"\n") if outside else 0
    return max(records - 1, 0)


def _parquet_rows(file: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(file).num_rows)


COUNTERS: dict[str, Callable[[Path], int]] = {
    "jsonl": _lines,
    "text": _lines,
    "json": lambda file: max(_lines(file) - 2, 0),
    "csv": _csv_rows,
    "parquet": _parquet_rows,
}
