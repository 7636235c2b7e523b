"""What the log says of the rows of a Parquet file, read from the file's own footer: counts, lowest and highest values.

A reader passes over a file by them, so a value that is not known to bound the column is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.sinks.delta.choice import AnotherWay, type_name, without_statistics

if TYPE_CHECKING:
    from pyarrow.parquet import ColumnChunkMetaData, FileMetaData
    from pyspark.sql.types import StructType

INDEXED_COLUMNS = "delta.dataSkippingNumIndexedCols"
CHOSEN_COLUMNS = "delta.dataSkippingStatsColumns"
INDEXED = 32
"""Of so many columns, the first ones, the log has statistics, where the table does not say."""
ALL = -1
TEXT_LENGTH = 32
"""So much of a text is in the log, as Spark has it."""
HIGHEST_CHARACTER = "\U0010ffff"
UNBOUNDED = frozenset({"array", "binary", "boolean", "map"})
"""Types of which Spark has no lowest and highest value."""
REPEATED = frozenset({"array", "map"})
"""Types of which a footer counts values, and not rows."""


@dataclass(frozen=True)
class IndexedColumn:
    """A column, or one inside of it, of which the log has statistics."""

    path: tuple[str, ...]
    is_bounded: bool


@dataclass(frozen=True)
class FileStatistics:
    """Of one file: its rows, and by column how many are NULL, and between which values the others lie."""

    rows: int
    nulls: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    lowest: Mapping[tuple[str, ...], Any] = field(default_factory=dict)
    highest: Mapping[tuple[str, ...], Any] = field(default_factory=dict)

    def as_delta_has_them(self) -> dict[str, Any]:
        """For the log, in which a column inside of another is an object in an object."""
        bounds = {"minValues": nested(self.lowest), "maxValues": nested(self.highest)}
        return {"numRecords": self.rows, **bounds, "nullCount": nested(self.nulls)}


def indexed_columns(table: StructType, properties: Mapping[str, str]) -> list[IndexedColumn]:
    """Of which columns the log of a table has statistics. Raises AnotherWay where the table chooses them by name."""
    if CHOSEN_COLUMNS in properties:
        raise AnotherWay("the table says of which columns it wants statistics")
    most = int(properties.get(INDEXED_COLUMNS, INDEXED))
    inexact = set(without_statistics(table))
    leaves = list(leaf_columns(table))
    counted = leaves if most == ALL else leaves[:most]
    return [
        IndexedColumn(path, kind not in UNBOUNDED and ".".join(path) not in inexact)
        for path, kind in counted
        if kind not in REPEATED
    ]


def leaf_columns(table: StructType, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """The path of every column that is no struct, with the name of its type."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    for column in table.fields:
        path = (*above, column.name)
        if isinstance(column.dataType, StructType):
            yield from leaf_columns(column.dataType, path)
        elif isinstance(column.dataType, ArrayType | MapType):
            yield path, column.dataType.typeName()
        else:
            yield path, type_name(column.dataType)


def statistics_of(file: Path, columns: list[IndexedColumn]) -> FileStatistics:
    """By the footer alone: no row is read."""
    from pyarrow.parquet import read_metadata

    footer = read_metadata(file)
    chunks = chunks_by_path(footer)
    nulls, lowest, highest = {}, {}, {}
    for column in columns:
        own = chunks.get(column.path, [])
        missing = null_count(own)
        if missing is None:
            continue  # nothing is told of it, or these rows lack it: a reader knows by itself that it is NULL then
        nulls[column.path] = missing
        ends = bounds_of(own) if column.is_bounded else None
        if ends is not None:
            low, high = low_text(ends[0]), high_text(ends[1])
            lowest.update({column.path: low} if low is not None else {})
            highest.update({column.path: high} if high is not None else {})
    return FileStatistics(footer.num_rows, nulls, lowest, highest)


def chunks_by_path(footer: FileMetaData) -> dict[tuple[str, ...], list[ColumnChunkMetaData]]:
    """Of each column its part in every row group."""
    found: dict[tuple[str, ...], list[ColumnChunkMetaData]] = {}
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            found.setdefault(tuple(chunk.path_in_schema.split(".")), []).append(chunk)
    return found


def null_count(chunks: list[ColumnChunkMetaData]) -> int | None:
    """None where a row group does not tell."""
    counts = [chunk.statistics.null_count for chunk in chunks if chunk.is_stats_set]
    return sum(counts) if counts and len(counts) == len(chunks) and None not in counts else None


def bounds_of(chunks: list[ColumnChunkMetaData]) -> tuple[Any, Any] | None:
    """The lowest and the highest value; None where a row group that has values does not tell, or there is none."""
    ends = []
    for chunk in chunks:
        told = chunk.statistics
        if told.null_count == chunk.num_values:
            continue
        try:
            ends.append((told.min, told.max) if told.has_min_max else None)
        except (OverflowError, ValueError):  # a moment that Python has no date for
            return None
    if not ends or None in ends:
        return None
    lows, highs = zip(*(end for end in ends if end is not None), strict=True)
    return min(lows, key=sorted_as), max(highs, key=sorted_as)


def sorted_as(value: object) -> Any:  # noqa: ANN401 - whatever compares
    """Text is compared by its bytes, as Parquet and Spark do."""
    return value.encode() if isinstance(value, str) else value


def low_text(value: object) -> object:
    """A value that is not above it, as the log has it; None if there is none."""
    return value[:TEXT_LENGTH] if isinstance(value, str) else log_value(value)


def high_text(value: object) -> object:
    """A value that is not below it, as the log has it; None if there is none.

    A time goes without its microseconds: whoever reads the log knows, and takes a highest one for a millisecond more.
    """
    if not isinstance(value, str) or len(value) <= TEXT_LENGTH:
        return log_value(value)
    return None if value[TEXT_LENGTH] == HIGHEST_CHARACTER else value[:TEXT_LENGTH] + HIGHEST_CHARACTER


def log_value(value: object) -> object:
    """A date or a moment as text, a decimal as the number that it is: only short ones come here."""
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value


def nested(values: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """By path, as objects within objects."""
    found: dict[str, Any] = {}
    for path, value in values.items():
        inner = found
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = value
    return found
