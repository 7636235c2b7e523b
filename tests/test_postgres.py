"""The address of a PostgreSQL database is shown without its login, and an idle connection to it is kept for a while."""

from __future__ import annotations

import psycopg
import pytest

from floodmark.errors import ConfigError
from floodmark.postgres import IDLE_SECONDS, MOST_IDLE, Address, IdleConnections
from floodmark.probes.tables import CursorColumn

SEQ = CursorColumn("seq", "int", "bigint")
WORD = CursorColumn("word", "text", "text")
VALUES = {"after": "3", "upto": "5", "first_run": "FALSE"}


def test_an_address_never_shows_its_login() -> None:
    """Neither in its text nor in its repr."""
    address = Address.parse("postgresql://ann:s3cret@db.example:5433/shop?sslmode=require")
    assert str(address) == "db.example:5433/shop"
    assert "s3cret" not in repr(address)
    assert address.options == {"sslmode": "require"}


@pytest.mark.parametrize(
    "url", ["postgresql://ann:s3cret@db:port/shop", "postgresql://ann:s3cret@db:1,2/shop", "s3cret"]
)
def test_a_url_that_cannot_be_read_is_not_quoted(url: str) -> None:
    """The message of the driver may hold the password."""
    with pytest.raises(ConfigError) as caught:
        Address.parse(url)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("password", ["s3@cret", "s3/cret", "5432/s3@cret", "s3@c/ret#x", "s3@c?ret"])
def test_a_password_that_ends_its_login_too_early_is_refused_unseen(password: str) -> None:
    """libpq takes the rest of it for a host or a database, which every message shows."""
    with pytest.raises(ConfigError) as caught:
        Address.parse(f"postgresql://ann:{password}@db.example/shop")
    assert "cret" not in str(caught.value)
    assert "%40" in caught.value.hint


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:s3%40c%2Fret@db.example/shop", "db.example:5432/shop"),
        ("postgresql://ann:s3?c#ret@db.example/shop", "db.example:5432/shop"),
        ("postgresql:///shop?host=/var/run&user=ann@example", "/var/run:5432/shop"),
        ("host=db.example dbname=shop password='s3@cret'", "db.example:5432/shop"),
    ],
)
def test_a_password_may_have_any_character_that_libpq_reads(url: str, shown: str) -> None:
    """As `%40`, or as it is where nothing else can be meant."""
    assert str(Address.parse(url)) == shown


def test_what_a_url_leaves_out_comes_from_where_libpq_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's driver would not look there, and has to reach the same database."""
    monkeypatch.setenv("PGHOST", "db.example")
    monkeypatch.setenv("PGPASSWORD", "s3cret")
    address = Address.parse("postgresql:///shop?user=ann").resolve()
    assert address.parameters == {
        "host": "db.example",
        "port": "5432",
        "dbname": "shop",
        "user": "ann",
        "password": "s3cret",
    }


def test_a_secret_is_blotted_out_of_an_error() -> None:
    """A server's own text may repeat what it was given."""
    address = Address.parse("jdbc:postgresql://ann:s3cret@db.example/shop")
    assert address.without_secrets("cannot log in with s3cret") == "cannot log in with ***"


def test_several_servers_have_no_one_port() -> None:
    """A store may name them; a look goes to one server, and so does Spark."""
    address = Address.parse("postgresql://a:5432,b:5433/shop")
    with pytest.raises(ConfigError):
        _ = address.port


def lend(idle: IdleConnections, database: str, application: str = "floodmark") -> tuple[int, str]:
    """The number of the session that is lent, and what the server calls it."""
    with idle.lend(Address.parse(database), application, {}) as connection:
        row = connection.execute("select pg_backend_pid(), current_setting('application_name')").fetchone()
        assert row is not None
        return row


def test_a_connection_is_lent_again_under_another_name(database: str) -> None:
    """One at a time: whoever comes while it is in use gets another."""
    idle = IdleConnections()
    first = lend(idle, database)
    assert lend(idle, database, "floodmark-sink/orders") == (first[0], "floodmark-sink/orders")
    with idle.lend(Address.parse(database), "floodmark", {}):
        assert lend(idle, database)[0] != first[0]
    idle.close()


def test_a_connection_that_was_ended_is_replaced(database: str) -> None:
    """By an administrator, a proxy, or the end of the server."""
    idle = IdleConnections()
    first = lend(idle, database)
    with psycopg.connect(database) as other:
        other.execute("select pg_terminate_backend(%s, 5000)", [first[0]])
    assert lend(idle, database)[0] != first[0]
    idle.close()


def test_a_connection_with_an_error_or_an_open_transaction_is_not_kept(database: str) -> None:
    """Nobody knows what it holds."""
    idle = IdleConnections()
    with pytest.raises(psycopg.Error), idle.lend(Address.parse(database), "floodmark", {}) as connection:
        connection.execute("select no_such_column")
    with idle.lend(Address.parse(database), "floodmark", {}) as other:
        other.execute("begin")
    assert (connection.closed, other.closed, idle._idle) == (True, True, [])


def test_few_connections_are_kept_and_not_for_long(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop may have hundreds of jobs, and a server counts its sessions."""
    idle, address = IdleConnections(), Address.parse(database)
    for number in range(MOST_IDLE + 2):
        with idle.lend(Address({**address.parameters, "options": f"-c work_mem={number + 1}MB"}), "floodmark", {}):
            pass
    assert len(idle._idle) == MOST_IDLE
    kept = [each.connection for each in idle._idle]
    later = idle._idle[-1].since + IDLE_SECONDS + 1
    monkeypatch.setattr("floodmark.postgres.time.monotonic", lambda: later)
    lend(idle, database)
    assert all(connection.closed for connection in kept)
    idle.close()


def test_a_connection_is_not_kept_beyond_what_sessions_begin_with(database: str) -> None:
    """Whoever shuts a database to writes, or names another schema, means the next question."""
    idle = IdleConnections()
    first = lend(idle, database)
    with psycopg.connect(database, autocommit=True) as other:
        name = psycopg.sql.Identifier(other.info.dbname)
        other.execute(psycopg.sql.SQL("alter database {} set default_transaction_read_only = on").format(name))
    second = lend(idle, database)
    assert second[0] != first[0]
    assert lend(idle, database) == second
    idle.close()
