"""Eight sessions write while a loop reads: at the end the reader has what the table has, whatever came late."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import psycopg
import pytest

from floodmark.sources import Postgres
from floodmark.sources.table_cursor import Cursor
from tests.crash.readers import Reader
from tests.crash.writers import TABLE, Crowd

if TYPE_CHECKING:
    from collections.abc import Sequence

Rows = dict[int, tuple[int, str]]


def rows_of(database: str) -> Rows:
    with psycopg.connect(database) as connection:
        return {number: (v, at) for number, v, at in connection.execute("select id, v, updated_at::text from o")}


def read_while_they_write(database: str, readers: Sequence[Reader], seconds: float, seed: int) -> Crowd:
    with psycopg.connect(database) as connection:
        connection.execute(TABLE.encode())
    crowd = Crowd(database, seed=seed)
    with ExitStack() as stack:
        for reader in readers:
            stack.enter_context(reader.reading())
        stack.enter_context(crowd.writing())  # ends first, so that the readers meet everything
        time.sleep(seconds)
    return crowd


def by(database: str, cursor: str, safety: str | None = None) -> Reader:
    return Reader(Postgres(database, "o", cursor=Cursor(cursor, safety=safety), key=["id"], name=f"by-{cursor}"))


def prove_that_nothing_is_lost(database: str, seconds: float, seed: int = 1) -> None:
    sequence, updated, transaction, unsafe = (
        by(database, "id"),
        by(database, "updated_at"),
        by(database, "xmin"),
        by(database, "id", safety="none"),
    )
    crowd = read_while_they_write(database, [sequence, updated, transaction, unsafe], seconds, seed)
    source = rows_of(database)
    assert crowd.transactions > 4 * seconds
    assert (set(source) - set(sequence.newest), set(sequence.delivered.values())) == (set(), {1})
    assert updated.newest == source
    assert transaction.newest == source
    assert sequence.held_at_most > 0
    assert set(source) - set(unsafe.newest), "without safety rows are lost, or this test could not see it"


def test_no_row_is_lost_while_eight_sessions_write_for_some_seconds(database: str) -> None:
    """By a sequence, by updated_at and by xmin; the same without safety loses rows."""
    prove_that_nothing_is_lost(database, seconds=6)


@pytest.mark.crash
@pytest.mark.parametrize("seed", [2, 3])
def test_no_row_is_lost_while_eight_sessions_write_for_a_minute(database: str, seed: int) -> None:
    """By a sequence, by updated_at and by xmin; the same without safety loses rows."""
    prove_that_nothing_is_lost(database, seconds=60, seed=seed)
