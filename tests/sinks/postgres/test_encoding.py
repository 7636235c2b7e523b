"""Rows as the PostgreSQL sink sends them, without Spark: what the server understands is what Arrow held."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.sinks.postgres.encoding import BinaryRows, CsvRows, Encoding, form_of

if TYPE_CHECKING:
    from floodmark.testing.servers.postgres import Server

LARGEST, SMALLEST = 2**63 - 1, -(2**63)
EARLIEST = datetime(1, 1, 1)  # noqa: DTZ001 - local by its kind


@pytest.fixture(scope="module")
def url(postgres: Server) -> str:
    """One database for all: the tables are temporary."""
    return postgres.url


def sent(url: str, table: str, encoding: Encoding, *batches: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Make the table, copy the batches as one stream, and read the table back."""
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"create temporary table t (place int generated always as identity, {table})".encode())
        names = ", ".join(part.split()[0] for part in table.split(", "))
        with cursor.copy(f"copy t ({names}) from stdin ({encoding.options})".encode()) as copy:
            copy.write(b"".join([encoding.opening, *map(encoding.encode, batches), encoding.closing]))
        return cursor.execute(f"select {names} from t order by place".encode()).fetchall()


def decimals(*texts: str | None) -> list[Decimal | None]:
    return [None if text is None else Decimal(text) for text in texts]


def column(kind: pa.DataType, values: Sequence[object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, kind)], ["c"])


@pytest.mark.parametrize(
    ("form", "kept_as", "arrow", "values"),
    [
        ("bool", "boolean", pa.bool_(), [True, None, False]),
        ("int2", "smallint", pa.int8(), [-128, None, 127]),
        ("int4", "integer", pa.int32(), [-(2**31), None, 2**31 - 1]),
        ("int8", "bigint", pa.int32(), [-1, None, 2**31 - 1]),
        ("int8", "bigint", pa.int64(), [SMALLEST, None, 2**53 + 1, LARGEST]),
        ("float4", "real", pa.float32(), [0.5, None, float("-inf")]),
        ("float8", "float8", pa.float32(), [0.5, None, float("inf")]),
        ("float8", "float8", pa.float64(), [0.1, None, -1e-300, -0.0]),
        ("date", "date", pa.date32(), [date(1, 1, 1), None, date(1970, 1, 1), date(9999, 12, 31)]),
        ("timestamp", "timestamp", pa.timestamp("us"), [EARLIEST, None, EARLIEST.max]),
        ("numeric", "numeric(38)", pa.int64(), [SMALLEST, None, LARGEST, 0, -1]),
        ("numeric", "numeric(10,2)", pa.decimal128(10, 2), decimals("-99999999.99", None, "0.01", "0.00")),
        ("numeric", "numeric(3,3)", pa.decimal128(3, 3), decimals("-0.999", None, "0.001")),
        ("numeric", "numeric(38,0)", pa.decimal128(38, 0), decimals("-" + "9" * 38, None, "18446744073709551616", "7")),
        ("numeric", "numeric(38,37)", pa.decimal128(38, 37), decimals("9." + "9" * 37, None, "-0." + "0" * 36 + "1")),
        ("bytes", "text", pa.string(), ["", None, "ü\n\\.\t\"'", "x" * 100_000]),
        ("bytes", "character varying(3)", pa.large_string(), ["", None, "abc"]),
        ("bytes", "bytea", pa.binary(), [b"", None, bytes(range(256))]),
        ("bytes", "json", pa.string(), ['{"a": 1}', None]),
        ("jsonb", "jsonb", pa.string(), ['{"a": 1}', None, "[]"]),
    ],
)  # fmt: skip
def test_values_arrive_as_they_are(url: str, form: str, kept_as: str, arrow: pa.DataType, values: list[object]) -> None:
    """At both ends of the type, with and without a NULL among them."""
    parsed = {'{"a": 1}': {"a": 1}, "[]": []} if form == "jsonb" or kept_as == "json" else {}
    wanted = [(parsed.get(value, value) if isinstance(value, str) else value,) for value in values]
    whole = column(arrow, values)
    arrived = sent(url, f"c {kept_as}", BinaryRows((form,)), whole, whole.slice(2), whole.slice(1, 1))
    assert arrived == [*wanted, *wanted[2:], *wanted[1:2]]


def test_columns_stand_in_their_order(url: str) -> None:
    """Fixed and variable ones, each with a NULL in another row."""
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(["a", None, "ccc"]),
            pa.array([1, 2, None], pa.int32()),
            pa.array([True, False, True]),
            pa.array([b"", b"\x00", None]),
            pa.array([None, 5, 6], pa.int64()),
        ],
        list("abcde"),
    )
    encoding = BinaryRows(("bytes", "int4", "bool", "bytes", "int8"))
    assert sent(url, "a text, b int, c bool, d bytea, e bigint", encoding, rows) == [
        ("a", 1, True, b"", None),
        (None, 2, False, b"\x00", 5),
        ("ccc", None, True, None, 6),
    ]


def test_an_instant_is_the_same_instant_in_any_zone(url: str) -> None:
    """Binary or text, with a zone or without: UTC is what is meant."""
    noon = datetime(2024, 10, 27, 12, tzinfo=timezone.utc)
    rows = column(pa.timestamp("us", "Europe/Paris"), [noon, None])
    table, tokyo = "c timestamptz", f"{url}?options=-c%20timezone%3DAsia/Tokyo"
    assert sent(tokyo, table, BinaryRows(("timestamp",)), rows) == [(noon,), (None,)]
    assert sent(tokyo, table, CsvRows(("timestamp with time zone",)), rows) == [(noon,), (None,)]


@pytest.mark.parametrize(
    ("form", "kept_as", "arrow", "value"),
    [
        ("timestamp", "timestamptz", pa.timestamp("us"), SMALLEST),
        ("timestamp", "timestamptz", pa.timestamp("us"), SMALLEST + 946_684_800_000_000 + 5),
        ("date", "date", pa.date32(), -(2**31)),
    ],
)
def test_a_day_before_time_began_is_refused(url: str, form: str, kept_as: str, arrow: pa.DataType, value: int) -> None:
    """Counted from 2000 it would come round to a day that exists."""
    integers = pa.int32() if form == "date" else pa.int64()
    rows = pa.RecordBatch.from_arrays([pa.array([value], integers).view(arrow)], ["c"])
    with pytest.raises(psycopg.errors.DatetimeFieldOverflow):
        sent(url, f"c {kept_as}", BinaryRows((form,)), rows)


@settings(max_examples=25)
@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=9, min_value=-(10**20), max_value=10**20)))
def test_binary_and_text_say_the_same_of_every_decimal(url: str, values: list[Decimal]) -> None:
    """PostgreSQL's own parser is the judge."""
    rows = column(pa.decimal128(38, 9), values)
    table = "c numeric(38,9)"
    assert sent(url, table, BinaryRows(("numeric",)), rows) == sent(url, table, CsvRows(("numeric",)), rows)


@pytest.mark.parametrize(
    ("spark", "postgres", "form"),
    [
        ("bigint", "bigint", "int8"),
        ("int", "bigint", "int8"),
        ("bigint", "integer", None),
        ("double", "real", None),
        ("bigint", "double precision", None),
        ("decimal(10,2)", "numeric(4,1)", "numeric"),
        ("decimal(10,2)", "bigint", None),
        ("string", "uuid", None),
        ("string", "character(3)", "bytes"),
        ("timestamp_ntz", "timestamp(3) with time zone", "timestamp"),
        ("timestamp", "date", None),
    ],
)
def test_only_what_cannot_be_cut_short_is_sent_as_binary(spark: str, postgres: str, form: str | None) -> None:
    """The rest is text, which the server reads and refuses by its own rules."""
    assert form_of(spark, postgres) == form


@pytest.mark.parametrize(
    "encoding", [BinaryRows(("date", "timestamp")), CsvRows(("date", "timestamp without time zone"))]
)
def test_years_before_the_first_are_the_same_in_both_formats(url: str, encoding: Encoding) -> None:
    """As text the server knows them by their era alone: the year -44 is 45 BC, and the year 0 is 1 BC."""
    days = pa.array([-735_525, None, -719_163, 0], pa.int32()).cast(pa.date32())
    moments = pa.array([-735_525 * 86_400_000_000 + 1, None, -719_162 * 86_400_000_000, 0], pa.int64())
    rows = pa.RecordBatch.from_arrays([days, moments.cast(pa.timestamp("us"))], ["d", "t"])
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("create temporary table bc (d date, t timestamp)")
        with cursor.copy(f"copy bc from stdin ({encoding.options})".encode()) as copy:
            copy.write(b"".join([encoding.opening, encoding.encode(rows), encoding.closing]))
        found = cursor.execute("select d::text, t::text from bc").fetchall()
    assert found == [
        ("0045-03-15 BC", "0045-03-15 00:00:00.000001 BC"),
        (None, None),
        ("0001-12-31 BC", "0001-01-01 00:00:00"),
        ("1970-01-01", "1970-01-01 00:00:00"),
    ]


def test_a_time_of_day_goes_in_the_binary_format(url: str) -> None:
    """With its microseconds."""
    times = pa.array([0, None, 45_296_123_456_000], pa.int64()).cast(pa.time64("ns"))
    rows = pa.RecordBatch.from_arrays([times], ["c"])
    assert form_of("time(6)", "time without time zone") == "time"
    found = sent(url, "c time", BinaryRows(("time",)), rows)
    assert [str(row[0]) for row in found] == ["00:00:00", "None", "12:34:56.123456"]
