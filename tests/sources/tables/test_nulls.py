"""Rows without a cursor, and rows that lie in the future: what is done about them is said, and nothing else happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from floodmark.errors import ConfigError, CursorNull, TiesTooMany
from floodmark.sources import Postgres
from floodmark.sources.contract import Request
from floodmark.sources.tables.cursor import Cursor
from tests.sources.tables.reader import Reader, no_session, run

if TYPE_CHECKING:
    from floodmark.testing.servers import Server

T1, T2, T3 = "'2024-01-01 10:00'", "'2024-01-01 11:00'", "'2024-01-01 12:00'"


@pytest.fixture
def database(empty_database: str) -> str:
    """Empty, and shared with others."""
    return empty_database


def reader(database: str, column: str | list[str] = "ts", **cursor: Any) -> Reader:  # noqa: ANN401 (passed on)
    return Reader(Postgres(database, "o", cursor=Cursor(column, safety="none", **cursor)))


@pytest.fixture
def table(database: str) -> str:
    """Rows of which some have no time."""
    run(database, "create table o (id int primary key, ts timestamp, created timestamp)", "create index on o (ts)")
    return database


def test_rows_without_a_cursor_are_read_once_each(table: str) -> None:
    """With the first batch, then those that came, and none again."""
    orders = reader(table, on_null="include")
    run(table, f"insert into o values (1, {T1}), (2, null)")
    first = orders.batch()
    run(table, "insert into o values (3, null)")
    second = orders.batch()
    run(table, f"insert into o values (4, null), (5, {T2})")
    assert (first, second, orders.batch(), orders.batch()) == ([1, 2], [3], [4, 5], [])


def test_a_table_without_any_cursor_is_read_and_its_first_value_comes_later(table: str) -> None:
    """The mark has no value until there is one."""
    orders = reader(table, on_null="include")
    run(table, "insert into o values (1, null)")
    first = orders.batch()
    run(table, f"insert into o values (2, {T1})")
    assert (first, orders.batch(), orders.batch()) == ([1], [2], [])


def test_a_row_that_gets_its_cursor_later_comes_again(table: str) -> None:
    """That is an update, and why `include` needs a sink that merges."""
    orders = reader(table, on_null="include")
    run(table, f"insert into o values (1, {T1}), (2, null)")
    first = orders.batch()
    run(table, f"update o set ts = {T2} where id = 2")
    assert (first, orders.batch(), orders.batch()) == ([1, 2], [2], [])


def test_ties_are_remembered_over_a_batch_of_rows_without_a_cursor(table: str) -> None:
    """What the record knew of the mark's own rows stays known."""
    orders = reader(table, on_null="include")
    run(table, f"insert into o values (1, {T1})")
    orders.batch()
    run(table, "insert into o values (2, null)")
    second = orders.batch()
    run(table, f"insert into o values (3, {T1})")
    assert (second, orders.batch(), orders.batch()) == ([2], [3], [])


def test_more_rows_without_a_cursor_than_can_be_remembered_need_a_decision(table: str) -> None:
    """The record stays small; `coalesce` has no such limit."""
    run(table, "insert into o select n, null from generate_series(1, 20000) n")
    with pytest.raises(TiesTooMany, match="coalesce"):
        reader(table, on_null="include").batch()


def test_another_column_stands_in_for_one_that_is_null(table: str) -> None:
    """The cursor is the first of them that has a value."""
    orders = reader(table, coalesce=["ts", "created"])
    run(table, f"insert into o values (1, {T2}, {T1}), (2, null, {T1})")
    first = orders.batch()
    run(table, f"insert into o values (3, null, {T3})")
    second = orders.batch()
    assert orders.mark is not None
    assert (first, second, orders.batch(), orders.mark.show()) == ([1, 2], [3], [], "2024-01-01 12:00:00")


def test_a_row_in_which_all_of_them_are_null_stops_the_look(table: str) -> None:
    """Then nothing stands in."""
    run(table, "insert into o values (1, null, null)")
    with pytest.raises(CursorNull) as caught:
        reader(table, coalesce=["ts", "created"]).batch()
    assert (caught.value.column, caught.value.rows) == ("coalesce(ts, created)", 1)


def test_columns_of_different_types_cannot_stand_in(table: str) -> None:
    """An id is no time."""
    with pytest.raises(ConfigError, match="different types"):
        reader(table, coalesce=["ts", "id"]).batch()


def test_coalesce_begins_with_the_column_that_is_read_by() -> None:
    """Else it would be a column that nobody reads by."""
    with pytest.raises(ConfigError, match="'created'"):
        Cursor("ts", coalesce=["created", "ts"])


def test_half_a_cursor_is_no_cursor(database: str) -> None:
    """(a, b) > (1, 2) would hold for a = 2 whatever b is: such a row is counted, and not read by chance."""
    run(database, "create table o (id int primary key, a int, b int)", "insert into o values (1, 1, 1), (2, 2, null)")
    orders = reader(database, ["a", "b"], on_null="exclude")
    first, held = orders.batch(), orders.look()
    run(database, "insert into o values (3, 3, null), (4, 3, 1)")
    assert (first, held.span, held.held_back, orders.batch()) == ([1], None, 1, [4])


@pytest.mark.parametrize("column_type", ["timestamp", "timestamptz", "date"])
def test_rows_too_far_ahead_of_the_databases_clock_wait(database: str, column_type: str) -> None:
    """Read, they would carry the mark away from every row that is written now."""
    run(database, f"create table o (id int primary key, ts {column_type})")
    run(database, "insert into o values (1, now() - interval '3 days'), (2, now() + interval '30 days')")
    orders = reader(database, max_future="1h")
    held = orders.look()
    assert (orders.batch(), held.held_back, orders.batch()) == ([1], 1, [])
    assert held.held_reason == "1 rows lie more than 1h ahead of the database's clock"


def test_the_servers_own_zone_tells_when_a_time_without_a_zone_is_ahead(postgres: Server) -> None:
    """A server in Tokyo writes nine hours more than UTC, and nothing of it is in the future."""
    database = postgres.create_database()
    name = conninfo_to_dict(database)["dbname"]
    run(database, f"alter database \"{name}\" set timezone to 'Asia/Tokyo'")
    run(database, "create table o (id int primary key, ts timestamp)", "insert into o values (1, now())")
    assert reader(database, max_future="1h").batch() == [1]


def test_max_future_needs_a_time(database: str) -> None:
    """A number is never ahead of a clock."""
    run(database, "create table o (id int primary key)")
    with pytest.raises(ConfigError, match="max_future"):
        Postgres(database, "o", cursor=Cursor("id", max_future="1h")).look(None, Request(), no_session)
