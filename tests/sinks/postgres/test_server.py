"""Connections of a sink that the driver keeps from one small batch to the next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import psycopg
import pytest

from floodmark.errors import SinkUnreachable
from floodmark.sinks.postgres.server import KEPT, KeptConnections, PostgresServer

if TYPE_CHECKING:
    from psycopg import Connection

pytestmark = pytest.mark.server


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    KEPT.close()
    yield
    KEPT.close()


def backend(server: PostgresServer) -> int:
    """The server's process behind the next connection."""
    with server.reuse() as connection:
        return connection.info.backend_pid


def test_the_next_question_finds_the_connection_of_the_last(database: str) -> None:
    """Of the same server, database and purpose."""
    server = PostgresServer(database)
    first = backend(server)
    assert (backend(server), backend(PostgresServer(database))) == (first, first)
    assert backend(PostgresServer(database, "floodmark-sink/orders")) != first


def test_one_that_the_server_ended_is_not_given_again(database: str) -> None:
    """A restart of the server between two ticks costs a new connection, and no failure."""
    server = PostgresServer(database)
    first = backend(server)
    with psycopg.connect(database, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s, 5000)", [first])
    assert backend(server) != first


def test_one_with_an_open_transaction_is_closed(database: str) -> None:
    """What it holds would wait for the next batch."""
    server = PostgresServer(database)
    with server.reuse() as connection:
        connection.execute("begin")
    assert connection.closed


def test_a_statement_that_failed_leaves_a_connection_that_can_be_kept(database: str) -> None:
    """The error is the caller's."""
    server = PostgresServer(database)
    with pytest.raises(psycopg.errors.UndefinedTable), server.reuse() as connection, connection.transaction():
        connection.execute("select * from nothing")
    assert backend(server) == connection.info.backend_pid


def test_two_at_once_are_two(database: str) -> None:
    """Jobs side by side do not wait for each other."""
    server = PostgresServer(database)
    with server.reuse() as one, server.reuse() as other:
        assert one is not other


def test_only_a_few_are_kept_however_many_jobs_there_are(database: str) -> None:
    """They are somebody's server's."""
    used: list[Connection] = []
    for number in range(KeptConnections.MOST + 3):
        with PostgresServer(database, f"floodmark-sink/{number}").reuse() as connection:
            used.append(connection)
    assert [connection.closed for connection in used] == [True] * 3 + [False] * KeptConnections.MOST


def test_a_server_that_is_not_there_is_named(database: str) -> None:
    """As without keeping."""
    with pytest.raises(SinkUnreachable), PostgresServer("postgresql://127.0.0.1:1/none?connect_timeout=1").reuse():
        pass
