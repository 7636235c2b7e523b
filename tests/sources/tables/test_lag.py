"""Reading some rows again, so that one which came late is found; the sink leaves out those that it has."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from floodmark import Job, sinks, stores
from floodmark.errors import ConfigError
from floodmark.postgres import Address
from floodmark.probes.tables import CursorColumn
from floodmark.probes.tables.dialects import Ansi
from floodmark.rules import not_null
from floodmark.sources import Jdbc, Postgres, Sqlite
from floodmark.sources.contract import Request
from floodmark.sources.tables.cursor import Cursor
from floodmark.sources.tables.postgres import jdbc_url
from floodmark.testing import ListSink
from tests.sources.tables.test_safety import look, mark_value, no_session, run
from tests.tables import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TABLE = "create table o (id bigint primary key, at timestamptz not null)"


def at(number: int, minute: int) -> str:
    return f"insert into o values ({number}, '2026-01-01 10:{minute:02}:00+00')"


@pytest.fixture
def orders(database: str) -> str:
    """Rows at 10:00, 10:50 and 11:00 less a minute."""
    run(database, TABLE, at(1, 0), at(2, 50), at(3, 59))
    return database


def lagging(database: str, lag: str = "20m") -> Postgres:
    return Postgres(database, "o", cursor=Cursor("at", safety={"lag": lag}), key=["id"])


def test_a_late_row_within_the_lag_is_found_and_the_mark_stays_at_the_maximum(orders: str) -> None:
    """10:45 comes after 10:59 was read: the window from 10:39 on is read again."""
    source = lagging(orders)
    first = look(source)
    assert first.span is not None
    run(orders, at(4, 45))
    second = look(source, first.span.upto, first)
    assert second.span is not None
    assert (second.span.upto, second.expected_rows) == (first.span.upto, 3)


def test_a_window_in_which_nothing_changed_is_not_read_again(orders: str) -> None:
    """An idle tick of a loop does no batch."""
    source = lagging(orders)
    first = look(source)
    assert first.span is not None
    assert look(source, first.span.upto, first).span is None


def test_a_row_later_than_the_lag_is_missed(orders: str) -> None:
    """This is what a lag promises, and where it ends."""
    source = lagging(orders)
    first = look(source)
    assert first.span is not None
    run(orders, at(4, 30))
    assert look(source, first.span.upto, first).span is None


def test_new_rows_bring_the_window_with_them(orders: str) -> None:
    """So a late row that did not change the count is found at the latest with the next new one."""
    source = lagging(orders)
    first = look(source)
    assert first.span is not None
    run(orders, "insert into o values (5, '2026-01-01 11:05:00+00')")
    second = look(source, first.span.upto, first)
    assert (mark_value(second) is not None, second.expected_rows) == (True, 3)


def test_a_delta_table_gets_each_row_once(spark: SparkSession, orders: str, tmp_path: Path) -> None:
    """Rows that it has, by key and cursor, are left out of the append."""
    job = Job(name="o", source=lagging(orders), sinks=[sinks.Delta(f"{tmp_path}/lake")])
    store = stores.open(f"file://{tmp_path}/marks")
    first = job.run(spark, store)
    run(orders, at(4, 45))
    second, third = job.run(spark, store), job.run(spark, store)
    ids = sorted(row["id"] for row in rows_of(tmp_path / "lake"))
    assert ([first.rows_written, second.rows_written, third.status], ids) == (
        [{"delta": 3}, {"delta": 1}, "nothing_new"],
        [1, 2, 3, 4],
    )


def test_a_sink_that_cannot_tell_a_row_again_is_refused(orders: str, tmp_path: Path) -> None:
    """Before anything is read."""
    store = stores.open(f"file://{tmp_path}/marks")
    with pytest.raises(ConfigError, match="would write them twice"):
        Job(name="o", source=lagging(orders), sinks=[ListSink()]).work(store)


def test_a_quarantine_would_get_rows_again_and_is_refused(orders: str, tmp_path: Path) -> None:
    """A row that breaks a rule would be put aside at every reading."""
    store, sink = stores.open(f"file://{tmp_path}/marks"), sinks.Delta(f"{tmp_path}/lake")
    job = Job(name="o", source=lagging(orders), sinks=[sink], rules=[not_null("id", action="quarantine")])
    with pytest.raises(ConfigError, match="quarantine them again"):
        job.work(store)


def test_a_lag_needs_a_time_and_a_key(orders: str) -> None:
    """How far back is an id, and which row is it?"""
    with pytest.raises(ConfigError, match="needs a cursor that is a time"):
        look(Postgres(orders, "o", cursor=Cursor("id", safety="lag"), key=["id"]))
    with pytest.raises(ConfigError, match="nothing tells them apart"):
        Postgres(orders, "o", cursor=Cursor("at", safety="lag")).repeats_by()


def test_a_fence_is_refused_where_nobody_can_say_who_writes(tmp_path: Path) -> None:
    """SQLite has one writer at a time and needs none."""
    with closing(sqlite3.connect(tmp_path / "o.db")) as connection, connection:
        connection.execute("create table o (id integer primary key)")
    with pytest.raises(ConfigError, match="a fence needs PostgreSQL"):
        Sqlite(tmp_path / "o.db", "o", cursor=Cursor("id", safety="fence")).look(None, Request(), no_session)


def test_a_lag_and_a_delay_work_behind_jdbc(spark: SparkSession, orders: str) -> None:
    """Where nobody can say who writes, they are what there is."""
    address = Address.parse(orders)
    login = {"user": address.user, "password": address.password or ""}

    def polled(safety: dict[str, str]) -> Jdbc:
        return Jdbc(jdbc_url(address), "o", cursor=Cursor("at", safety=safety), key=["id"], options=login)

    lag, delay = polled({"lag": "20m"}), polled({"delay": "1h"})
    first = lag.look(None, Request(), lambda: spark)
    assert first.span is not None
    run(orders, at(4, 45))
    second = lag.look(first.span.upto, Request(extras=first.extras), lambda: spark)
    run(orders, "insert into o values (6, now())")
    assert (second.expected_rows, delay.look(None, Request(), lambda: spark).held_back) == (3, 1)


def test_a_delay_goes_by_the_clock_of_a_database_that_is_not_known(spark: SparkSession, database: str) -> None:
    """In the words that JDBC has every driver translate."""
    clock = Ansi().ahead(CursorColumn("at", "timestamp", "timestamp"), -30)
    address = Address.parse(database)
    properties = {"user": address.user, "password": address.password or "", "driver": "org.postgresql.Driver"}
    asked = f"(select extract(epoch from current_timestamp - {clock})::float8 as seconds) as asked"
    found = spark.read.jdbc(jdbc_url(address), asked, properties=properties).first()
    assert found is not None
    assert found["seconds"] == 30.0
