"""Ranges of a table: which spans are read, piece by piece, and which rows of them are meant."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING

import psycopg
import pytest

from floodmark.errors import ConfigError, RangeAboveMark
from floodmark.hwm import ColumnDateTimeHWM, ColumnIntHWM, CompositeHWM
from floodmark.jobs.ranges import Bounds, TableRange, sql_literal, table_range
from floodmark.sources import Postgres
from floodmark.sources.tables.cursor import Cursor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.hwm import HWM

ROWS = """
create table o (id bigint primary key, at timestamptz);
create index on o (at, id);
insert into o select n, timestamptz '2026-01-01 00:00+00' + (n / 3) * interval '1 hour' from generate_series(0, 11) n;
insert into o values (99, null)
"""
KINDS = ("column_datetime", "column_int")
AT_THE_END = CompositeHWM("postgres", ["2026-01-01T03:00:00+00:00", 11], kinds=KINDS, entity="o", expression="at, id")


def never() -> SparkSession:
    raise AssertionError("Spark was asked for")


@pytest.fixture
def table(database: str) -> str:
    """Twelve rows, three to an hour, and one without an hour."""
    with psycopg.connect(database) as connection:
        connection.execute(ROWS)
    return database


def source(url: str, **cursor: object) -> Postgres:
    return Postgres(url, table="o", cursor=Cursor(**cursor))


def ends(asked: TableRange, max_rows: int | None) -> list[object]:
    """The end of every piece, as long as there is one."""
    found: list[object] = []
    after: HWM | None = None
    remembered: dict = {}
    while (sight := asked.piece(after, max_rows, remembered)).span is not None:
        after, remembered = sight.span.upto, dict(sight.extras)
        found.append(after.show())
    return found


def test_a_composite_cursor_takes_a_range_of_its_first_column(table: str) -> None:
    """From is in it and to is not; the last piece ends with the first row beyond, which the condition leaves out."""
    by_both = source(table, column=["at", "id"])
    asked = table_range(by_both, AT_THE_END, Bounds("2026-01-01T01:00:00Z", "2026-01-01T03:00:00Z"), never)
    assert asked.condition == "`at` < TIMESTAMP '2026-01-01T03:00:00+00:00'"
    assert ends(asked, 4) == [["2026-01-01 02:00:00+00", 6], ["2026-01-01 03:00:00+00", 9]]


def test_a_composite_cursor_takes_whole_values_too(table: str) -> None:
    """Written as a list, like the mark."""
    by_both = source(table, column=["at", "id"])
    bounds = Bounds('["2026-01-01T00:00:00Z", 2]', '["2026-01-01T01:00:00Z", 4]')
    asked = table_range(by_both, AT_THE_END, bounds, never)
    assert ends(asked, None) == [["2026-01-01 01:00:00+00", 4]]
    assert "`id` < 4" in (asked.condition or "")


def test_a_cursor_that_is_not_unique_is_cut_between_its_groups(table: str) -> None:
    """Three rows share an hour: a piece of two rows takes all three, and the next one none of them again."""
    by_hour = source(table, column="at")
    mark = ColumnDateTimeHWM("postgres", "2026-01-01T03:00:00+00:00", entity="o", expression="at")
    asked = table_range(by_hour, mark, Bounds("2026-01-01T00:00:00Z", "2026-01-01T02:00:00Z"), never)
    assert ends(asked, 2) == ["2026-01-01 00:00:00+00", "2026-01-01 01:00:00+00"]


def test_a_range_beyond_the_mark_ends_with_the_mark(table: str) -> None:
    """What lies above comes with the next run."""
    mark = ColumnIntHWM("postgres", 6, entity="o", expression="id")
    asked = table_range(source(table, column="id"), mark, Bounds("4", "100"), never)
    assert (ends(asked, 2), asked.condition, asked.is_cut) == ([5, 6], None, True)


def test_rows_without_a_cursor_belong_to_no_range(table: str) -> None:
    """They do not keep a range from being read either, as they would a run."""
    mark = ColumnDateTimeHWM("postgres", "2026-01-01T03:00:00+00:00", entity="o", expression="at")
    asked = table_range(source(table, column="at"), mark, Bounds("2026-01-01T03:00:00Z", "2026-01-02T00:00:00Z"), never)
    assert ends(asked, None) == ["2026-01-01 03:00:00+00"]


@pytest.mark.parametrize(
    ("bounds", "error"),
    [
        (Bounds("2026-01-01T04:00:00Z", "2026-01-01T05:00:00Z"), RangeAboveMark),
        (Bounds("2026-01-01T02:00:00Z", "2026-01-01T02:00:00Z"), ConfigError),
        (Bounds("2026-01-01T01:00:00", "2026-01-01T02:00:00Z"), ConfigError),
        (Bounds("soon", "2026-01-01T02:00:00Z"), ConfigError),
        (Bounds('["2026-01-01T01:00:00Z"]', "2026-01-01T02:00:00Z"), ConfigError),
        (Bounds('["2026-01-01T01:00:00", 1]', "2026-01-01T02:00:00Z"), ConfigError),
    ],
)
def test_a_range_that_cannot_be_is_refused(bounds: Bounds, error: type[Exception]) -> None:
    """Above the mark, empty, without the zone that the column has, or no value of it at all."""
    with pytest.raises(error):
        table_range(source("postgresql://localhost/none", column=["at", "id"]), AT_THE_END, bounds, never)


def test_a_range_of_transactions_is_refused() -> None:
    """Nobody knows what an xmin stood for."""
    mark = ColumnIntHWM("postgres", 6, entity="o", expression="xmin")
    with pytest.raises(ConfigError, match="xmin"):
        table_range(source("postgresql://localhost/none", column="xmin"), mark, Bounds("1", "2"), never)


@pytest.mark.parametrize(
    ("value", "sql"),
    [
        (7, "7"),
        (2**63, "9223372036854775808BD"),
        (Decimal("1.50"), "1.50BD"),
        (date(2026, 1, 2), "DATE '2026-01-02'"),
        (datetime.fromisoformat("2026-01-02T03:04:05.000006"), "TIMESTAMP_NTZ '2026-01-02T03:04:05.000006'"),
        (datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=2))), "TIMESTAMP '2026-01-02T00:00:00+02:00'"),
        ("it's \\ here", "'it\\'s \\\\ here'"),
    ],
)
def test_a_value_becomes_a_literal_of_its_own_type(value: object, sql: str) -> None:
    """Nothing is rounded, and nothing depends on the zone of this process."""
    assert sql_literal(value) == sql
