"""How the files sink writes each format with Spark, and counts afterwards what was written, exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

FileFormat = Literal["jsonl", "json", "csv", "parquet", "text"]
CHUNK_BYTES = 1 << 20


def write_files(rows: DataFrame, folder: Path, file_format: FileFormat) -> None:
    """Part files below the folder; columns that are NULL are written too, so that every record has the same fields."""
    target = f"file:{folder}"
    if file_format == "parquet":
        rows.write.parquet(target)
    elif file_format == "csv":
        # A quote within a value is doubled, as RFC 4180 has it: Spark's backslash is read by few others.
        rows.write.option("header", True).option("escape", '"').csv(target)
    elif file_format == "jsonl":
        rows.write.option("ignoreNullFields", False).json(target)
    elif file_format == "text":
        rows.write.text(target)  # one column, whose values hold no line break
    else:
        _as_lists(rows).write.text(target)


def count_rows(file: Path, file_format: FileFormat) -> int:
    """The rows of one file that `write_files` wrote."""
    return COUNTERS[file_format](file)


def is_empty_list_file(file: Path, file_format: FileFormat) -> bool:
    """Without any partition Spark's text writer leaves a file without a byte, which is no JSON."""
    return file_format == "json" and file.stat().st_size == 0


def _as_lists(rows: DataFrame) -> DataFrame:
    """One JSON list per partition, a line per record, without holding more than a batch of them."""
    from pyspark.sql import functions as F

    from floodmark.spark.delta_tables import quoted

    record = F.to_json(F.struct(*map(quoted, rows.columns)), {"ignoreNullFields": "false"})
    return rows.select(record.alias("value")).mapInArrow(_bracketed, "value string")


def _bracketed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
