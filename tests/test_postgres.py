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
