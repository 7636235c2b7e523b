"""The address of a PostgreSQL database is shown without its login, wherever it is shown."""

from __future__ import annotations

import pytest

from floodmark.errors import ConfigError
from floodmark.postgres import Address
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
