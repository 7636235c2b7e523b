"""How many rows a file holds, counted without Spark: lines in a stream, footers of Parquet files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from floodmark.probes.files import opened, unreadable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyarrow import NativeFile

CHUNK_BYTES = 1 << 20


def rows_in(path: str, file_format: str, *, header: bool = True) -> int:
    """The rows of one file; never too few: blank lines and line breaks within quotes count as rows.

    Raises SourceUnreadable, with the file, if it cannot be read.
    """
    if file_format == "parquet":
        return _in_file(path, _parquet_rows)
    if file_format == "json":
        return _in_file(path, _json_values)
    lines = _in_file(path, _lines_in)
    return max(lines - 1, 0) if file_format == "csv" and header else lines


def _in_file(path: str, count: Callable[[NativeFile], int]) -> int:
    import pyarrow as pa

    system, below = opened(path)
    is_parquet = count is _parquet_rows
    try:
        stream = (
            system.open_input_file(below) if is_parquet else system.open_input_stream(below, buffer_size=CHUNK_BYTES)
        )
        with stream:
            return count(stream)
    except (OSError, pa.ArrowInvalid) as error:
        raise unreadable(path, error) from error


def _parquet_rows(stream: NativeFile) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(stream).num_rows)


def _lines_in(stream: NativeFile) -> int:
    count, last = 0, b"\n"
    while chunk := stream.read(CHUNK_BYTES):
        count, last = count + chunk.count(b"\n"), chunk[-1:]
    return count + (last != b"\n")


def _json_values(stream: NativeFile) -> int:
    """The objects of a file that is one JSON value; one that cannot be parsed will be one dead letter."""
    try:
        value = json.loads(stream.read())
    except ValueError:
        return 1
    return len(value) if isinstance(value, list) else 1
