"""A SQLite table or query as a source; each task reads its range from the file itself, and every value is checked.

SQLite does not hold a column to its declared type. A value of another type fails here; it never becomes a null.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.errors import ColumnUnmapped, ConfigError
from floodmark.fields import ColumnNames
from floodmark.hwm.parsing import split_moment
from floodmark.locations import quote, require_path
from floodmark.probes.sqlite import SqliteProbe, open_file
from floodmark.probes.tables import Column
from floodmark.probes.tables.dialects import Sqlite as Dialect
from floodmark.probes.tables.queries import Conditions
from floodmark.sources.contract import Reading
from floodmark.sources.tables import TableSource, no_session
from floodmark.sources.tables.cursor import Cursor, cursor_value, lower_bound
from floodmark.sources.tables.reading import null_keys, partitions_for, position, ranges, tie_conditions
from floodmark.spark.faults import fault_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.hwm import Span
    from floodmark.sources.contract import Session


SQL = Dialect()
DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
LARGEST_DECIMAL = 38
LARGEST_EXACT = 2**53
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


@dataclass(frozen=True)
class Sqlite(TableSource):
    """Rows of a table or of a query in a SQLite file, read above the mark of `cursor`.

    The file has to be on a disk that Spark's tasks see: local mode, or a shared folder. Values are held to the
    declared types of their columns, or to `types`; one that does not fit stops the batch with its column and row.
    `key` tells rows apart that share a value of the cursor; left out, it is the primary key.

    >>> Sqlite("shop.db", table="orders", cursor="id").table
    'orders'
    """

    path: str | os.PathLike[str]
    table: str | None = None
    query: str | None = None
    cursor: str | Sequence[str] | Cursor = ""
    types: Mapping[str, str] = field(default_factory=dict)
    partitions: int | None = None
    fetch_rows: int = 10_000
    name: str = "sqlite"
    key: ColumnNames = ColumnNames()

    def __post_init__(self) -> None:
        require_path(self.path, f"source '{self.name}'")
        self.require_sound()

    def probe(self, session: Session = no_session) -> SqliteProbe:
        return self._kept_probe

    @cached_property
    def _kept_probe(self) -> SqliteProbe:
        return SqliteProbe(Path(self.path).absolute(), self.relation, self.own_cursor.request(self.key))

    def read(self, spark: SparkSession, span: Span) -> Reading:
        """The rows of the span. Raises ColumnUnmapped for a column without a declared type."""
        columns = self._typed_columns()
        work = read_ranges(str(self._kept_probe.path), columns, self.own_cursor.columns[0], self.fetch_rows)
        rows = self._statements(spark, span).mapInArrow(work, _ddl(columns))
        return Reading(rows, position=position(self._kept_probe.cursor()))

    def without_rows(self, spark: SparkSession) -> Reading:
        """The columns, by their declared types."""
        rows = spark.createDataFrame([], _ddl(self._typed_columns()))
        return Reading(rows, position=position(self._kept_probe.cursor()))

    def _typed_columns(self) -> tuple[TypedColumn, ...]:
        return typed_columns(self._kept_probe.columns(), self.types, self.description(no_session))

    def _statements(self, spark: SparkSession, span: Span) -> DataFrame:
        """One row per range; Spark makes a task of each, as far as it has cores."""
        conditions = Conditions(SQL, self._kept_probe.cursor())
        source = conditions.from_clause(self.relation, lower_bound(span), cursor_value(span.upto))
        ties = tie_conditions(conditions, span)
        parts = ranges(span, partitions_for(spark, self.partitions))
        wheres = [" AND ".join([part.condition(conditions), *ties]) for part in parts]
        if null_keys(span):
            wheres.append(f"{conditions.is_null()} AND {conditions.is_among(null_keys(span))}")
        texts = [f"SELECT * FROM {source} AS fm WHERE {where}" for where in wheres]
        return spark.createDataFrame([(text,) for text in texts], "statement string")


@dataclass(frozen=True)
class TypedColumn:
    """A column and the Spark type that its values are held to."""

    name: str
    type: str


def typed_columns(columns: Sequence[Column], types: Mapping[str, str], source: str) -> tuple[TypedColumn, ...]:
    """Every column with its type. Raises ColumnUnmapped for one that was declared without a type Spark has."""
    unknown = sorted(set(types) - {column.name for column in columns})
    if unknown:
        raise ConfigError(f"types: {source} has no column {unknown[0]!r}.", hint="take it out of types")
    return tuple(
        TypedColumn(each.name, _known_type(types[each.name])) if each.name in types else _typed_column(each, source)
        for each in columns
    )


def _ddl(columns: Sequence[TypedColumn]) -> str:
    """The columns as Spark takes a schema."""
    return ", ".join(f"{quote(column.name)} {column.type}" for column in columns)


def _typed_column(column: Column, source: str) -> TypedColumn:
    declared = column.type
    if column.precision is not None and column.precision <= LARGEST_DECIMAL:
        return TypedColumn(column.name, f"decimal({column.precision},{column.scale})")
    for word, spark_type in TYPES_BY_WORD.items():
        if word in declared:
            return TypedColumn(column.name, spark_type)
    raise ColumnUnmapped(source, column=column.name, type_name=column.declaration)


def _known_type(wanted: str) -> str:
    text = {"bigint": "long"}.get(wanted.strip().lower(), wanted.strip().lower())
    if text in CHECKS or DECIMAL.fullmatch(text):
        return text
    raise ConfigError(f"types: {wanted!r} is not known.", hint=f"{', '.join(CHECKS)} or decimal(p,s)")


def read_ranges(
    path: str, columns: Sequence[TypedColumn], cursor: str, rows_at_once: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What each task does with its share of the statements. The file has to be on a disk that the task sees."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for statement in batch.column(0).to_pylist():
                yield from rows_of(Path(path), statement, columns, cursor, rows_at_once)

    return read


def rows_of(
    path: Path, statement: str, columns: Sequence[TypedColumn], cursor: str, rows_at_once: int
) -> Iterator[pa.RecordBatch]:
    """The rows of one statement, so many at a time."""
    import pyarrow as pa

    schema = pa.schema([(column.name, _arrow_type(column.type)) for column in columns])
    place = [column.name for column in columns].index(cursor)
    with open_file(path) as connection:
        found = connection.execute(statement)
        while rows := found.fetchmany(rows_at_once):
            values_of = list(zip(*rows, strict=True))
            arrays = [
                pa.array(list(_check(column, values, values_of[place], cursor)), field.type)
                for column, values, field in zip(columns, values_of, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _check(column: TypedColumn, values: Sequence[Any], places: Sequence[Any], cursor: str) -> Iterator[Any]:
    decimal = DECIMAL.fullmatch(column.type)
    check = _decimal(int(decimal[1]), int(decimal[2])) if decimal else CHECKS[column.type]
    for value, place in zip(values, places, strict=True):
        try:
            yield None if value is None else check(value)
        except (ValueError, ArithmeticError) as error:
            what = f"column {column.name!r} holds {str(value)[:80]!r} in the row where {cursor} is {place!r}"
            raise ValueError(fault_text("value", f"{what}, which is no {column.type}")) from error


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
