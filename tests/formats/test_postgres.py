"""What earlier versions stored in PostgreSQL is read, and what a later one stored there is refused.

`postgres_store.sql` holds the rows of the other stores of version 1, in the tables that it made.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from floodmark.errors import FormatTooNew
from floodmark.sinks import Postgres
from floodmark.sinks.contract import Recorded
from floodmark.stores import PostgresMarkStore
from tests.formats.test_formats import (
    FIRST,
    test_a_store_of_the_first_version_is_written_on,
    test_an_open_batch_is_read_with_everything_that_finishes_it,
    test_every_kind_of_mark_is_read,
    test_lists_of_files_history_receipts_leases_and_looks_are_read,
    test_what_health_and_workflows_remember_is_read,
)
from tests.sinks.batches import no_session

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [  # run here again, on the store below
    "test_a_store_of_the_first_version_is_written_on",
    "test_an_open_batch_is_read_with_everything_that_finishes_it",
    "test_every_kind_of_mark_is_read",
    "test_lists_of_files_history_receipts_leases_and_looks_are_read",
    "test_what_health_and_workflows_remember_is_read",
]
ORDERS, CLICKS = (f"floodmark.default.{job}.mart" for job in ("orders", "clicks"))


def run(url: str, statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statements.encode())


@pytest.fixture
def store(database: str) -> Iterator[PostgresMarkStore]:
    run(database, (FIRST / "postgres_store.sql").read_text())
    with closing(PostgresMarkStore(database)) as opened:
        yield opened


@pytest.fixture
def sink(database: str) -> Postgres:
    run(database, (FIRST / "postgres_ledger.sql").read_text())
    return Postgres(database, "orders", name="mart")


def test_batches_and_fences_of_the_first_ledger_are_told_apart(sink: Postgres) -> None:
    """A fence of the first version said that it had written 0 rows."""
    assert sink.recorded(ORDERS, no_session) == Recorded(4, "d1ge5t")
    assert sink.recorded(CLICKS, no_session) == Recorded(9, None, is_fence=True)


def test_a_ledger_of_the_first_version_is_written_on(sink: Postgres) -> None:
    """Nothing has to be migrated by hand; what was recorded without a target is where each target goes on."""
    sink.fence(ORDERS, 3, no_session)
    assert sink.recorded(ORDERS, no_session) == Recorded(4, "d1ge5t")
    sink.fence(ORDERS, 5, no_session)
    assert sink.recorded(ORDERS, no_session) == Recorded(5, None, is_fence=True)
    assert replace(sink, table="other").recorded(ORDERS, no_session) == Recorded(4, "d1ge5t")


def test_a_ledger_of_the_first_version_is_shut_to_programs_that_know_no_other(sink: Postgres, database: str) -> None:
    """They would not find what is recorded there from now on."""
    sink.fence(ORDERS, 5, no_session)
    with psycopg.connect(database) as connection:
        comment = connection.execute("select obj_description('floodmark_ledger'::regclass, 'pg_class')").fetchone()
    assert comment == ("Floodmark ledger, format 2",)


def test_a_newer_ledger_is_refused_by_name(sink: Postgres, database: str) -> None:
    """Its entries may mean something that this version does not know: it is neither read nor written."""
    run(database, "comment on table floodmark_ledger is 'Floodmark ledger, format 3'")
    with pytest.raises(FormatTooNew) as refused:
        sink.recorded(ORDERS, no_session)
    assert (refused.value.found, refused.value.known) == (3, 2)
    with pytest.raises(FormatTooNew):
        sink.fence(ORDERS, 5, no_session)


def test_newer_tables_of_marks_are_refused_by_name(store: PostgresMarkStore, database: str) -> None:
    """As every other newer format."""
    run(database, "comment on table floodmark_marks is 'Floodmark marks, format 2'")
    with pytest.raises(FormatTooNew) as refused:
        store.read("orders")
    assert (refused.value.found, refused.value.known) == (2, 1)
