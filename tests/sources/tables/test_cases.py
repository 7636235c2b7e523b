"""The cases of the specification that a look decides, in a process of three zones: the process's own never matters."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.sources import Postgres
from floodmark.sources.tables.cursor import Cursor
from tests.sources.tables.reader import Reader, run

if TYPE_CHECKING:
    from collections.abc import Iterator

T1, T2 = "2024-01-01 10:00:00.000001", "2024-01-01 11:00:00"


@pytest.fixture
def database(empty_database: str) -> str:
    """Empty, and shared with others."""
    return empty_database


@pytest.fixture(autouse=True, params=["UTC", "America/Los_Angeles", "Asia/Tokyo"])
def _zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process lives in another zone."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def reader(database: str, *columns: str, max_rows: int | None = None, **cursor: Any) -> Reader:  # noqa: ANN401 (passed on)
    return Reader(Postgres(database, "o", cursor=Cursor(columns, **cursor)), max_rows)


def rows_text(orders: Reader) -> object:
    return orders.mark.show() if orders.mark else None


def test_rows_are_delivered_once(database: str) -> None:
    """1, 2, 3 and the mark at 3; again, and nothing."""
    run(database, "create table o (id bigint primary key)", "insert into o values (1), (2), (3)")
    orders = reader(database, "id")
    assert (orders.batch(), rows_text(orders), orders.batch(), rows_text(orders)) == ([1, 2, 3], 3, [], 3)


def test_an_empty_table_has_no_mark_and_negative_ids_are_above_it(database: str) -> None:
    """No mark is a state of its own."""
    run(database, "create table o (id bigint primary key)")
    orders = reader(database, "id")
    first, before = orders.batch(), orders.mark
    run(database, "insert into o values (-7), (-1), (0)")
    assert (first, before, orders.batch(), rows_text(orders)) == ([], None, [-7, -1, 0], 0)


def test_latest_takes_only_what_comes(database: str) -> None:
    """The mark is at 3 without a row, then 4 comes."""
    run(database, "create table o (id bigint primary key)", "insert into o values (1), (2), (3)")
    orders = reader(database, "id", start="latest")
    first, before = orders.batch(), rows_text(orders)
    run(database, "insert into o values (4)")
    assert (first, before, orders.batch(), rows_text(orders)) == ([], 3, [4], 4)


def test_ids_that_a_double_cannot_tell_apart_are_two(database: str) -> None:
    """Nothing passes through a float."""
    run(database, "create table o (id bigint primary key)", "insert into o values (9007199254740992)")
    orders = reader(database, "id")
    orders.batch()
    run(database, "insert into o values (9007199254740993)")
    assert (orders.batch(), rows_text(orders)) == ([9007199254740993], "9007199254740993")


def test_rows_that_tie_with_the_mark_are_delivered_once(database: str) -> None:
    """1 and 2, then 3 at the same microsecond, then nothing; the mark stays where it is."""
    run(database, "create table o (id int primary key, ts timestamp)")
    run(database, f"insert into o values (1, '{T1}'), (2, '{T1}')")
    orders = reader(database, "ts")
    first, before = orders.batch(), rows_text(orders)
    run(database, f"insert into o values (3, '{T1}')")
    assert (first, orders.batch(), orders.batch(), before, rows_text(orders)) == ([1, 2], [3], [], T1, T1)


def test_a_composite_cursor_stops_within_a_tie(database: str) -> None:
    """Two rows each time: (T1, 2), then (T2, 4)."""
    run(database, "create table o (id int primary key, ts timestamp)")
    run(database, f"insert into o values (1, '{T1}'), (2, '{T1}'), (3, '{T1}'), (4, '{T2}')")
    orders = reader(database, "ts", "id", max_rows=2)
    assert (orders.batch(), rows_text(orders)) == ([1, 2], [T1, 2])
    assert (orders.batch(), rows_text(orders), orders.batch()) == ([3, 4], [T2, 4], [])


@pytest.mark.parametrize(
    ("column_type", "mark"), [("timestamp", "2024-01-01 12:00:00"), ("timestamptz", "2024-01-01 12:00:00+00")]
)
def test_a_time_is_the_same_in_every_zone(database: str, column_type: str, mark: str) -> None:
    """The database tells the maximum as text, and compares it as a literal; its session is in UTC."""
    run(
        database,
        f"create table o (id int primary key, ts {column_type})",
        "set timezone to 'UTC'",
        "insert into o values (1, '2024-01-01 08:00')",
    )
    orders = reader(database, "ts")
    first = orders.batch()
    run(database, "set timezone to 'UTC'", "insert into o values (2, '2024-01-01 12:00')")
    assert (first, orders.batch(), orders.batch(), rows_text(orders)) == ([1], [2], [], mark)


def test_chunks_reach_every_row_once(database: str) -> None:
    """10,000 rows in chunks of 1,000; the fourth begins where the third ended, whoever reads it."""
    run(database, "create table o (id int primary key)", "insert into o select generate_series(1, 10000)")
    killed, later = reader(database, "id", max_rows=1000), reader(database, "id", max_rows=1000)
    first = [*killed.batch(), *killed.batch(), *killed.batch()]
    later.mark, at_third = killed.mark, rows_text(killed)
    rest = [row for _ in range(8) for row in later.batch()]
    assert (at_third, rows_text(later), first + rest) == (3000, 10_000, list(range(1, 10_001)))
