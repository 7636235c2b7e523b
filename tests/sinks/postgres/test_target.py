"""What Spark's values become in PostgreSQL, and which schema the sink tells for them afterwards."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from floodmark.errors import ConfigError, SinkFailed
from floodmark.sinks import Postgres
from floodmark.step.checks import compare
from tests.sinks.batches import batch, frame
from tests.sinks.postgres.test_postgres import ask, no_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ONE = "00000000-0000-0000-0000-000000000001"


def test_scalar_values_arrive_as_they_are(spark: SparkSession, database: str) -> None:
    """Beyond 2^53, with 38 digits, before 1970, with every sign that CSV knows; NULL is not the empty text."""
    shape = "i int, l long, n decimal(38,0), d double, b boolean, t string, day date, at timestamp, local timestamp_ntz"
    at, local = datetime(1901, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc), datetime(2024, 3, 31, 2, 30)  # noqa: DTZ001 - local by its kind
    full = (-1, 2**63 - 1, Decimal("-" + "9" * 38), 0.1, True, "a,\"b\"\n\\.\t'ü'", date(1, 1, 1), at, local)
    rows = frame(spark, shape, full, (None,) * 9, (0, 0, Decimal(0), float("inf"), False, "", None, None, None))
    Postgres(database, "t").write(rows, batch(1))
    assert ask(database, "select * from t order by i nulls last") == [
        full,
        (0, 0, Decimal(0), float("inf"), False, "", None, None, None),
        (None,) * 9,
    ]


def test_columns_that_only_text_can_fill_are_filled(spark: SparkSession, database: str) -> None:
    """A type of the user's own, or one that is narrower than Spark's: the server reads every value itself."""
    ask(database, "create type mood as enum ('glad')")
    ask(database, "create table t (u uuid, m mood, i int, n real, at timestamptz)")
    full = (ONE, "glad", 2**31 - 1, 0.5, datetime(2024, 10, 27, 0, 30, tzinfo=timezone.utc))
    rows = frame(spark, "u string, m string, i long, n double, at timestamp", full, (None,) * 5)
    Postgres(f"{database}?options=-c%20timezone%3DAsia/Tokyo", "t").write(rows, batch(1))
    assert ask(database, "select u::text, m::text, i, n, at from t order by 1") == [full, (None,) * 5]


def test_a_number_too_large_for_its_column_is_refused(spark: SparkSession, database: str) -> None:
    """It is not cut to the column's width."""
    ask(database, "create table t (i int)")
    with pytest.raises(SinkFailed) as failed:
        Postgres(database, "t").write(frame(spark, "i long", (2**31,)), batch(1))
    assert 'value "2147483648" is out of range for type integer' in failed.value.reason


def test_an_hour_that_comes_twice_is_two_hours(spark: SparkSession, database: str) -> None:
    """Instants travel in UTC, whatever zone the session or the server is in."""
    ask(
        database,
        "do $$ begin execute 'alter database ' || current_database() || ' set timezone = ''Asia/Tokyo'''; end $$",
    )
    rows = spark.sql("select timestamp'2024-10-27T00:30:00Z' as at union all select timestamp'2024-10-27T01:30:00Z'")
    Postgres(database, "t").write(rows, batch(1))
    moments = ask(database, "select (at at time zone 'UTC')::text from t order by at")
    assert moments == [("2024-10-27 00:30:00",), ("2024-10-27 01:30:00",)]


def test_nested_values_are_json_and_bytes_are_bytes(spark: SparkSession, database: str) -> None:
    """With fields that are NULL, so that every record has the same ones."""
    shape = "s struct<a: int, b: string>, l array<int>, m map<string, int>, raw binary"
    Postgres(database, "t").write(frame(spark, shape, ((1, None), [1, 2], {"k": 3}, b"\x00\xff")), batch(1))
    assert ask(database, "select s, l, m, raw from t") == [({"a": 1, "b": None}, [1, 2], {"k": 3}, b"\x00\xff")]


def test_the_schema_fits_the_rows_that_made_the_table(spark: SparkSession, database: str) -> None:
    """Each type comes back, so that the next batch is not taken for a changed one."""
    shape = (
        "y tinyint, h smallint, i int, l long, f float, d double, n decimal(18,4), b boolean, t string, day date,"
        " at timestamp, local timestamp_ntz, raw binary, s struct<a: array<int>>, l2 array<string>, m map<string, int>"
    )
    rows = frame(spark, shape)
    sink = Postgres(database, "t")
    assert sink.schema(no_session) is None
    sink.write(rows, batch(1))
    drift = compare(rows.schema, sink.schema(no_session) or rows.schema.add("none", "int"))
    assert drift.differences() == ()


def test_columns_that_were_added_come_back_too(spark: SparkSession, database: str) -> None:
    """The note on a column is written where the column is."""
    sink = Postgres(database, "t", evolve=True)
    sink.write(frame(spark, "id long", (1,)), batch(1))
    wider = frame(spark, "id long, s struct<a: int>", (2, (3,)))
    sink.write(wider, batch(2))
    assert sink.schema(no_session) == wider.schema


def test_a_type_without_a_place_is_refused_by_name(spark: SparkSession, database: str) -> None:
    """An interval has two meanings in Spark, and another one in PostgreSQL."""
    with pytest.raises(ConfigError, match="column 'i' is interval"):
        Postgres(database, "t").write(spark.sql("select interval '1' day as i"), batch(1))
