"""Rows of a SQLite file as Arrow batches: each range is read by the task that needs it, and every value is checked.

SQLite does not hold a column to its declared type. A value of another type fails here; it never becomes a null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.errors import ColumnUnmapped, ConfigError
from floodmark.hwm.moments import split_moment
from floodmark.probes.sqlite import opened
from floodmark.probes.tables import Column
from floodmark.sources.table_guard import BEGIN, END
from floodmark.sources.table_jdbc import backquoted

if TYPE_CHECKING:
    import pyarrow as pa

DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
LARGEST_DECIMAL = 38
LARGEST_EXACT = 2**53


@dataclass(frozen=True)
class Field:
    """A column and the Spark type that its values are held to."""

    name: str
    type: str


def fields(columns: Sequence[Column], types: Mapping[str, str], source: str) -> tuple[Field, ...]:
    """Every column with its type. Raises ColumnUnmapped for one that was declared without a type Spark has."""
    unknown = sorted(set(types) - {column.name for column in columns})
    if unknown:
        raise ConfigError(f"types: {source} has no column {unknown[0]!r}.", hint="take it out of types")
    return tuple(
        Field(each.name, _known(types[each.name])) if each.name in types else _field(each, source) for each in columns
    )


def ddl_of(columns: Sequence[Field]) -> str:
    """The columns as Spark takes a schema."""
    return ", ".join(f"{backquoted(column.name)} {column.type}" for column in columns)


def _field(column: Column, source: str) -> Field:
    declared = column.type
    if column.precision is not None and column.precision <= LARGEST_DECIMAL:
        return Field(column.name, f"decimal({column.precision},{column.scale})")
    for word, spark_type in TYPES_BY_WORD.items():
        if word in declared:
            return Field(column.name, spark_type)
    raise ColumnUnmapped(source, column=column.name, type_name=column.declared)


def _known(wanted: str) -> str:
    text = {"bigint": "long"}.get(wanted.strip().lower(), wanted.strip().lower())
    if text in CHECKS or DECIMAL.fullmatch(text):
        return text
    raise ConfigError(f"types: {wanted!r} is not known.", hint=f"{', '.join(CHECKS)} or decimal(p,s)")


def read_ranges(
    path: str, columns: Sequence[Field], cursor: str, rows_at_once: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What each task does with its share of the statements. The file has to be on a disk that the task sees."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for statement in batch.column(0).to_pylist():
                yield from rows_of(Path(path), statement, columns, cursor, rows_at_once)

    return read


def rows_of(
    path: Path, statement: str, columns: Sequence[Field], cursor: str, rows_at_once: int
) -> Iterator[pa.RecordBatch]:
    """The rows of one statement, so many at a time."""
    import pyarrow as pa

    schema = pa.schema([(column.name, _arrow_type(column.type)) for column in columns])
    place = [column.name for column in columns].index(cursor)
    with opened(path) as connection:
        found = connection.execute(statement)
        while rows := found.fetchmany(rows_at_once):
            held = list(zip(*rows, strict=True))
            arrays = [
                pa.array(list(_checked(column, values, held[place], cursor)), field.type)
                for column, values, field in zip(columns, held, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _checked(column: Field, values: Sequence[Any], places: Sequence[Any], cursor: str) -> Iterator[Any]:
    decimal = DECIMAL.fullmatch(column.type)
    check = _decimal(int(decimal[1]), int(decimal[2])) if decimal else CHECKS[column.type]
    for value, place in zip(values, places, strict=True):
        try:
            yield None if value is None else check(value)
        except (ValueError, ArithmeticError) as error:
            what = f"column {column.name!r} holds {str(value)[:80]!r} in the row where {cursor} is {place!r}"
            raise ValueError(f"{BEGIN}{what}, which is no {column.type}{END}") from error


def _arrow_type(spark_type: str) -> pa.DataType:
    import pyarrow as pa

    decimal = DECIMAL.fullmatch(spark_type)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    plain = {"long": pa.int64(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary()}
    times = {"boolean": pa.bool_(), "date": pa.date32(), "timestamp_ntz": pa.timestamp("us")}
    return {**plain, **times}[spark_type]


def _only(*kinds: type) -> Callable[[Any], Any]:
    def check(value: object) -> object:
        if type(value) not in kinds:
            raise ValueError(type(value).__name__)
        return value

    return check


def _double(value: object) -> float:
    """A whole number in a column of floats, if a float holds it exactly."""
    if isinstance(value, float) or (isinstance(value, int) and abs(value) <= LARGEST_EXACT):
        return float(value)
    raise ValueError(type(value).__name__)


def _boolean(value: object) -> bool:
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise ValueError("neither 0 nor 1")


def _date(value: object) -> date:
    return date.fromisoformat(str(_only(str)(value)))


def _timestamp(value: object) -> datetime:
    moment, nanoseconds = split_moment("timestamp", str(_only(str)(value)))
    if moment.tzinfo is not None or nanoseconds:
        raise ValueError("it has a time zone, or is finer than microseconds")
    return moment


def _decimal(precision: int, scale: int) -> Callable[[Any], Decimal]:
    def check(value: object) -> Decimal:
        """SQLite keeps a decimal as a float where it can; its shortest text is what was put in."""
        exact = Decimal(repr(value) if isinstance(value, float) else _only(int, str)(value))
        held = exact.quantize(Decimal(1).scaleb(-scale))
        if held != exact or len(held.as_tuple().digits) > precision:
            raise ValueError("it does not fit")
        return held

    return check


CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "long": _only(int),
    "double": _double,
    "string": _only(str),
    "binary": _only(bytes),
    "boolean": _boolean,
    "date": _date,
    "timestamp_ntz": _timestamp,
}
TYPES_BY_WORD = {
    "INT": "long",
    "CHAR": "string",
    "CLOB": "string",
    "TEXT": "string",
    "JSON": "string",
    "UUID": "string",
    "BLOB": "binary",
    "REAL": "double",
    "FLOA": "double",
    "DOUB": "double",
    "BOOL": "boolean",
    "DATETIME": "timestamp_ntz",
    "TIMESTAMP": "timestamp_ntz",
    "DATE": "date",
}
"""Which word in a declared type means what, in the order in which SQLite itself looks for them."""
