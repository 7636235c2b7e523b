"""What tests of tables share: one database that is empty_database, since making one takes longer than a look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sources.tables.reader import run

if TYPE_CHECKING:
    from floodmark.testing.servers import Server


@pytest.fixture(scope="session")
def one_database(postgres: Server) -> str:
    """The URL of the database that is shared."""
    return postgres.create_database()


@pytest.fixture
def empty_database(one_database: str) -> str:
    """The same URL, with nothing in the database."""
    run(one_database, "drop schema public cascade", "create schema public")
    return one_database
