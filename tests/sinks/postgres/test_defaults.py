"""Databases whose defaults are not PostgreSQL's own, and sessions that wait: isolation, durability, shut to writes.

Needs a server and no Spark: what counts is the transaction of the ledger, and that of the marks.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest

from floodmark.errors import LeaseHeld, MarkMoved, SinkUnreachable, StoreUnreachable
from floodmark.sinks import Postgres
from floodmark.sinks.contract import Recorded
from floodmark.sinks.postgres.server import LedgerEntry, PostgresLedger, PostgresServer
from floodmark.stores import PostgresMarkStore
from floodmark.testing.laws.records import ME, OTHER, record, save
from tests.sinks.batches import no_session
from tests.sinks.postgres.test_postgres import LEDGER, ask, wait_until_held

if TYPE_CHECKING:
    from psycopg import Connection

STRICTER = ["repeatable read", "serializable"]
OWN = PostgresLedger("public", "orders", LEDGER)


@pytest.fixture
def strict(database: str, request: pytest.FixtureRequest) -> str:
    return with_default(database, "default_transaction_isolation", request.param)


def with_default(url: str, setting: str, value: str) -> str:
    """The database, where every session begins with that setting."""
    name = url.rpartition("/")[2].partition("?")[0]
    ask(url, f"alter database \"{name}\" set {setting} = '{value}'")
    return url


def shown(connection: Connection, setting: str) -> str:
    row = connection.execute(f"show {setting}".encode()).fetchone()
    assert row is not None
    return str(row[0])


@pytest.mark.parametrize("strict", STRICTER, indirect=True)
@pytest.mark.parametrize("entry", [0, 1], ids=["first entry", "later entry"])
def test_a_fence_that_waited_sees_what_was_recorded_meanwhile(strict: str, entry: int) -> None:
    """With a snapshot from before the wait it would fail, or judge by a number that is over."""
    sink, writer = Postgres(strict, "orders"), PostgresServer(strict, "floodmark-sink/orders")
    sink.fence("another", 1, no_session)
    if entry:
        sink.fence(LEDGER, entry, no_session)
    with ThreadPoolExecutor(1) as pool, writer.connect() as connection:
        with connection.transaction():
            OWN.lock(connection)
            fence = pool.submit(sink.fence, LEDGER, 2, no_session)
            wait_until_held(strict, sessions=1, application="floodmark")
            OWN.record(connection, LedgerEntry(3, "d3", rows=7))
        fence.result()
    assert sink.recorded(LEDGER, no_session) == Recorded(3, "d3")


def test_a_fence_does_not_wait_for_ever(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was stopped between its ledger and its commit keeps the entry: whoever comes next is told so."""
    monkeypatch.setattr("floodmark.sinks.postgres.FENCE_SECONDS", 1)
    sink = Postgres(database, "orders")
    sink.fence(LEDGER, 1, no_session)
    with PostgresServer(database).connect() as stopped, stopped.transaction():
        OWN.lock(stopped)
        with pytest.raises(SinkUnreachable, match="was stopped in its commit"):
            sink.fence(LEDGER, 2, no_session)
    assert sink.recorded(LEDGER, no_session) == Recorded(1, is_fence=True)


@pytest.mark.parametrize("strict", STRICTER, indirect=True)
def test_a_writer_that_waited_for_the_ledger_sees_the_fence(strict: str) -> None:
    """Its transaction is long, and began before the fence: what counts is the moment of the lock."""
    sink, writer = Postgres(strict, "orders"), PostgresServer(strict, "floodmark-sink/orders")
    sink.fence(LEDGER, 1, no_session)
    with writer.connect() as connection, connection.transaction():
        connection.execute("select count(*) from floodmark_ledger")
        sink.fence(LEDGER, 2, no_session)
        assert OWN.lock(connection) == LedgerEntry(2, before=0)


@pytest.mark.parametrize("strict", STRICTER, indirect=True)
def test_a_commit_that_waited_finds_the_mark_moved(strict: str) -> None:
    """It is told what happened, and is not left with an error of the database."""
    with closing(PostgresMarkStore(strict)) as store, closing(PostgresMarkStore(strict)) as other:
        lease = save(store, record(1))
        with ThreadPoolExecutor(1) as pool, psycopg.connect(strict) as rows:
            store.commit_within(rows, record(2), expected=1, lease=lease)
            late = pool.submit(other.commit, record(2), expected=1, lease=lease)
            wait_until_held(strict, sessions=1, application="floodmark")
            rows.commit()
        assert isinstance(late.exception(), MarkMoved)


@pytest.mark.parametrize("strict", STRICTER, indirect=True)
def test_of_two_that_want_a_lease_at_once_the_second_one_is_told_who_has_it(strict: str) -> None:
    """Both waited for the same lock."""
    with closing(PostgresMarkStore(strict)) as store, closing(PostgresMarkStore(strict)) as other:
        store.prepare()
        with ThreadPoolExecutor(2) as pool, psycopg.connect(strict) as holder:
            store._postgres.within(holder, "orders")
            takers = [pool.submit(one.take_lease, "orders", me, over=None) for one, me in ((store, ME), (other, OTHER))]
            wait_until_held(strict, sessions=2, application="floodmark")
            holder.rollback()
        assert {type(each.exception()) for each in takers} == {type(None), LeaseHeld}


@pytest.mark.parametrize(("default", "used"), [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")])
def test_what_the_ledger_and_the_marks_commit_is_durable(database: str, default: str, used: str) -> None:
    """A mark may outlive a crash of the server only if the rows do; a stricter default stays, a laxer one is raised."""
    relaxed = with_default(database, "synchronous_commit", default)
    Postgres(relaxed, "orders").fence(LEDGER, 1, no_session)
    with PostgresServer(relaxed).connect() as connection:
        with connection.transaction():
            OWN.lock(connection)
            assert shown(connection, "synchronous_commit") == used
        assert shown(connection, "synchronous_commit") == default
    with closing(PostgresMarkStore(relaxed)) as store:
        save(store, record(1))
        with store._postgres.writing("orders"):
            assert store._postgres._connection is not None
            assert shown(store._postgres._connection, "synchronous_commit") == used


def test_a_database_that_is_shut_to_writes_takes_nothing_and_says_so(database: str) -> None:
    """Whoever made read-only its default meant it: it is not passed by, and what is there can still be asked."""
    sink = Postgres(database, "orders")
    sink.fence(LEDGER, 1, no_session)
    with closing(PostgresMarkStore(database)) as store:
        save(store, record(1))
    with_default(database, "default_transaction_read_only", "on")
    with closing(PostgresMarkStore(database)) as store:
        assert (sink.recorded(LEDGER, no_session), store.read("orders")) == (Recorded(1, is_fence=True), record(1))
        with pytest.raises(SinkUnreachable, match="read-only"):
            sink.fence(LEDGER, 2, no_session)
        with pytest.raises(StoreUnreachable, match="read-only"):
            store.take_lease("another", ME, over=None)
