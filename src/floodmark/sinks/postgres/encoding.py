"""How rows travel: in PostgreSQL's binary format where every column has a form in it, else as CSV, which it parses.

The binary rows are built from Arrow column by column: no value passes through Python.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from floodmark.sinks.postgres.target import binary_column, text_column, transfer_type

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import StructField

    from floodmark.sinks.postgres.target import TargetColumn

Values: TypeAlias = "np.ndarray[Any, Any] | int"
Part: TypeAlias = "tuple[str, Values]"
"""The type of some bytes of every row, as numpy spells it, and their values, or the one value of all rows."""
INT2, INT4, INT8 = ">i2", ">i4", ">i8"
MICROSECONDS_TO_2000, DAYS_TO_2000 = 946_684_800_000_000, 10_957
"""PostgreSQL counts time from 2000, Arrow from 1970."""
NANOSECONDS_PER_MICROSECOND = 1_000
YEAR_ONE_DAYS, DAY_MICROSECONDS = -719_162, 86_400_000_000
"""The first day of the year 1, counted from 1970: below it PostgreSQL writes years as it does kings' reigns, BC."""
NULL = b"\xff\xff\xff\xff"
"""A field of the length -1."""
NEGATIVE = 0x4000
LONGEST_BIGINT = 19
INTEGERS = {"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8}
WIDTHS = {"smallint": 2, "integer": 4, "bigint": 8}
SAME = {
    ("boolean", "boolean"): "bool",
    ("float", "real"): "float4",
    ("float", "double precision"): "float8",
    ("double", "double precision"): "float8",
    ("date", "date"): "date",
    ("binary", "bytea"): "bytes",
    ("string", "text"): "bytes",
    ("string", "json"): "bytes",
    ("string", "jsonb"): "jsonb",
}


class Encoding(Protocol):
    """A format of COPY; a stream is `opening`, the rows of any number of batches, and `closing`."""

    @property
    def options(self) -> str:
        """The options of the COPY statement."""

    @property
    def opening(self) -> bytes:
        """What a stream begins with."""

    @property
    def closing(self) -> bytes:
        """What a stream ends with."""

    def encode(self, batch: pa.RecordBatch) -> memoryview:
        """The rows, as they may stand in a stream behind others. Called in a task."""


def encoding_of(fields: Sequence[StructField], columns: Sequence[TargetColumn]) -> tuple[Encoding, list[Column]]:
    """The format for these columns of the rows, and the columns as it takes them."""
    forms = [form_of(transfer_type(field), column.type) for field, column in zip(fields, columns, strict=True)]
    known = tuple(form for form in forms if form is not None)
    if len(known) == len(forms):
        return BinaryRows(known), list(map(binary_column, fields))
    return CsvRows(tuple(column.type for column in columns)), list(map(text_column, fields))


@dataclass(frozen=True)
class CsvRows:
    """Text: every string is quoted, so that an empty one is not taken for NULL."""

    types: tuple[str, ...]

    options = "FORMAT csv, ENCODING 'UTF8'"
    opening = b""
    closing = b""

    def encode(self, batch: pa.RecordBatch) -> memoryview:
        import pyarrow as pa
        from pyarrow import csv

        columns = [as_text(column, kind) for column, kind in zip(batch.columns, self.types, strict=True)]
        text = io.BytesIO()
        options = csv.WriteOptions(include_header=False, quoting_style="needed", batch_size=10_000)
        csv.write_csv(pa.RecordBatch.from_arrays(columns, list(map(str, range(len(columns))))), text, options)
        return text.getbuffer()


def as_text(column: pa.Array, postgres: str) -> pa.Array:
    """Moments say that they are in UTC, whatever zone the server has; Arrow would write that at ten times the cost."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_date(column.type):
        return _with_era(column.cast(pa.string())) if _is_before(column, YEAR_ONE_DAYS, pa.int32()) else column
    if not pa.types.is_timestamp(column.type):
        return column
    in_utc = column.cast(pa.timestamp("us", column.type.tz and "UTC")).cast(pa.timestamp("us"))
    if not postgres.startswith("timestamp"):
        return in_utc
    texts = pc.binary_join_element_wise(in_utc.cast(pa.string()), "Z", "")
    is_early = _is_before(in_utc, YEAR_ONE_DAYS * DAY_MICROSECONDS, pa.int64())
    return _with_era(texts) if is_early else texts


def _is_before(column: pa.Array, first: int, counted: pa.DataType) -> bool:
    import pyarrow.compute as pc

    lowest = pc.min(column.cast(counted)).as_py()
    return lowest is not None and lowest < first


def _with_era(texts: pa.Array) -> pa.Array:
    """Years below 1 as PostgreSQL reads them: the year 0 is 1 BC. Rows of such columns are few, so one by one."""
    import pyarrow as pa

    def spelled(text: str | None) -> str | None:
        if text is None or not text.startswith(("-", "0000")):
            return text
        year, rest = text.removeprefix("-").split("-", 1)
        return f"{int(year) + 1:04d}-{rest} BC"

    return pa.array([spelled(text) for text in texts.to_pylist()], pa.string())


@dataclass(frozen=True)
class BinaryRows:
    """The binary format, for columns whose forms are known (see `form_of`)."""

    forms: tuple[str, ...]

    options = "FORMAT binary"
    opening = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
    closing = b"\xff\xff"

    def encode(self, batch: pa.RecordBatch) -> memoryview:
        """The rows' bytes, without the opening and closing of a whole stream."""
        import pyarrow.compute as pc

        if not len(batch):
            return memoryview(b"")
        pieces: list[pa.Array] = []
        parts: list[Part] = [(INT2, len(self.forms))]
        for form, column in zip(self.forms, batch.columns, strict=True):
            if form in VARIABLE:
                content = VARIABLE[form](column)
                parts.append((INT4, pc.binary_length(content).fill_null(-1).to_numpy()))
                pieces += [_block(parts, len(batch)), content.fill_null(b"")]
                parts = []
            elif column.null_count:
                pieces += [_block(parts, len(batch))] if parts else []
                pieces.append(pc.if_else(column.is_valid(), _block(_field(form, column), len(batch)), NULL))
                parts = []
            else:
                parts += _field(form, column)
        pieces += [_block(parts, len(batch))] if parts else []
        whole = pc.binary_join_element_wise(*pieces, b"")
        ends = memoryview(whole.buffers()[1]).cast("i")
        return memoryview(whole.buffers()[2])[ends[whole.offset] : ends[whole.offset + len(whole)]]


def form_of(spark: str, postgres: str) -> str | None:
    """How values of a Spark type go into a column of a PostgreSQL type; None: only as text, which the server reads.

    A number that might not fit is sent as text: cut to the column's width here, it would be another number.
    """
    if spark in INTEGERS and INTEGERS[spark] <= WIDTHS.get(postgres, 0):
        return f"int{WIDTHS[postgres]}"
    if postgres.startswith("numeric") and (spark in INTEGERS or spark.startswith("decimal")):
        return "numeric"
    if spark.startswith("timestamp") and postgres.startswith("timestamp"):
        return "timestamp"
    if spark.startswith("time(") and postgres == "time without time zone":
        return "time"
    if spark == "string" and postgres.startswith("character"):
        return "bytes"
    return SAME.get((spark, postgres))


def _field(form: str, column: pa.Array) -> list[Part]:
    """A field of fixed width: its length, then its bytes."""
    import numpy as np

    content = FIXED[form](column)
    return [(INT4, sum(np.dtype(kind).itemsize for kind, _ in content)), *content]


def _block(parts: Sequence[Part], rows: int) -> pa.Array:
    """Parts side by side, once per row."""
    import numpy as np
    import pyarrow as pa

    width = sum(np.dtype(kind).itemsize for kind, _ in parts)
    block, place = np.empty(rows * width, np.uint8), 0
    for kind, values in parts:
        np.ndarray((rows,), kind, block, place, (width,))[:] = values
        place += np.dtype(kind).itemsize
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), rows, [None, pa.py_buffer(block)])
    return fixed.cast(pa.binary())


def _own(column: pa.Array, kind: str) -> np.ndarray[Any, Any]:
    """The column's memory as it is; what lies under a NULL means nothing, and is left out later."""
    import numpy as np

    return np.frombuffer(column.buffers()[1], kind)[column.offset : column.offset + len(column)]


def _integers(column: pa.Array) -> np.ndarray[Any, Any]:
    return _own(column, f"<i{column.type.bit_width // 8}")


def _floats(column: pa.Array) -> np.ndarray[Any, Any]:
    return _own(column, f"<f{column.type.bit_width // 8}")


def _booleans(column: pa.Array) -> np.ndarray[Any, Any]:
    values: np.ndarray[Any, Any] = column.fill_null(False).to_numpy(zero_copy_only=False)
    return values


def _since_2000(counted: np.ndarray[Any, Any], shift: int) -> np.ndarray[Any, Any]:
    """Far below what PostgreSQL takes, a count is held where it cannot come round to a date that exists."""
    import numpy as np

    lowest = np.iinfo(counted.dtype).min // 2
    since: np.ndarray[Any, Any] = np.maximum(counted, lowest) - shift
    return since


def _numeric(column: pa.Array) -> list[Part]:
    """Digits to the base 10,000, as many for each row as the type can need; the server drops zeros at both ends."""
    import numpy as np
    import pyarrow as pa

    is_decimal = pa.types.is_decimal(column.type)
    precision, scale = (column.type.precision, column.type.scale) if is_decimal else (LONGEST_BIGINT, 0)
    unscaled = _unscaled(column) if is_decimal else _integers(column).astype(np.int64)
    whole_groups, odd = -(-(precision - scale) // 4), scale % 4
    rest, groups = np.abs(unscaled), []
    rest = rest if rest.dtype == object else rest.view(np.uint64)  # where the lowest number's own opposite has room
    for digits in ([odd] if odd else []) + [4] * (scale // 4 + whole_groups):
        above = rest // 10**digits
        groups.append((rest - above * 10**digits) * 10 ** (4 - digits))
        rest = above
    head: list[Part] = [(INT2, len(groups)), (INT2, whole_groups - 1), (INT2, (unscaled < 0) * NEGATIVE), (INT2, scale)]
    return [*head, *((INT2, group) for group in reversed(groups))]


def _unscaled(column: pa.Array) -> np.ndarray[Any, Any]:
    """Decimals as whole numbers: of Python's kind only where 64 bits do not hold all of them."""
    import numpy as np

    low, high = np.frombuffer(column.buffers()[1], "<i8").reshape(-1, 2)[column.offset :][: len(column)].T
    if (high == low >> 63).all():
        return np.ascontiguousarray(low)
    both: np.ndarray[Any, Any] = (high.astype(object) << 64) + np.ascontiguousarray(low).view(np.uint64).astype(object)
    return both


def _bytes(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    return column.cast(pa.binary())


def _jsonb(column: pa.Array) -> pa.Array:
    """Text behind the version of the format."""
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(b"\x01", _bytes(column), b"")


FIXED: dict[str, Callable[[Any], list[Part]]] = {
    "bool": lambda column: [("?", _booleans(column))],
    "int2": lambda column: [(INT2, _integers(column))],
    "int4": lambda column: [(INT4, _integers(column))],
    "int8": lambda column: [(INT8, _integers(column))],
    "float4": lambda column: [(">f4", _floats(column))],
    "float8": lambda column: [(">f8", _floats(column))],
    "date": lambda column: [(INT4, _since_2000(_own(column, "<i4"), DAYS_TO_2000))],
    "time": lambda column: [(INT8, _own(column, "<i8") // NANOSECONDS_PER_MICROSECOND)],
    "timestamp": lambda column: [(INT8, _since_2000(_own(column, "<i8"), MICROSECONDS_TO_2000))],
    "numeric": _numeric,
}


VARIABLE: dict[str, Callable[[Any], Any]] = {"bytes": _bytes, "jsonb": _jsonb}
