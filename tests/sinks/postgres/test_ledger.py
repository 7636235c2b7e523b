"""Who may write with a number: the ledger of the PostgreSQL sink under runs that were paused, overtaken or repeated."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest

from floodmark.errors import Overtaken, SinkDisagrees, SinkFailed
from floodmark.sinks import Postgres
from floodmark.sinks.contract import Recorded
from floodmark.sinks.postgres.server import PostgresLedger
from tests.sinks.batches import ID_V, batch, frame, no_session
from tests.sinks.postgres.test_postgres import LEDGER, ask, staging_tables, wait_until_held

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg import Connection
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.sinks.postgres.server import LedgerEntry

FENCE = "floodmark"
"""What a session that fences calls itself."""


def wake_up_after(act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next writer stand still when its rows are in its transaction, and go on when `act` is done."""
    lock, acts = PostgresLedger.lock, [act]

    def late(ledger: PostgresLedger, connection: Connection) -> LedgerEntry | None:
        if acts:
            acts.pop()()
        return lock(ledger, connection)

    monkeypatch.setattr(PostgresLedger, "lock", late)


def test_two_attempts_of_one_batch_at_once_write_it_once(spark: SparkSession, database: str) -> None:
    """Both have copied when the ledger's row is let go: one moves its rows, the other one finds the number taken."""
    sink, rows = Postgres(database, "orders"), frame(spark, ID_V, (1, "a"), (2, "b"))
    sink.write(frame(spark, ID_V, (0, "z")), batch(1))
    with ThreadPoolExecutor(2) as pool, psycopg.connect(database) as holder:
        holder.execute("select * from floodmark_ledger for update")
        writes = [pool.submit(sink.write, rows, batch(2, attempt=attempt)) for attempt in ("a1", "a2")]
        wait_until_held(database, sessions=2)
        holder.rollback()
        assert [each.result() for each in writes] == [2, 2]
    assert ask(database, "select id from orders order by id") == [(0,), (1,), (2,)]


@pytest.mark.parametrize("written", [0, 1], ids=["first batch", "later batch"])
@pytest.mark.parametrize("staged", [False, True], ids=["direct", "staged"])
def test_a_run_that_was_paused_with_its_rows_on_the_server_finds_its_number_fenced(
    ab: DataFrame, database: str, monkeypatch: pytest.MonkeyPatch, written: int, staged: bool
) -> None:
    """Its rows are taken back, and it has to stop: whoever fenced has decided that the batch is dropped."""
    sink = Postgres(database, "orders", staged=staged)
    for number in range(1, written + 1):
        sink.write(ab, batch(number))
    wake_up_after(lambda: sink.fence(LEDGER, written + 1, no_session), monkeypatch)
    with pytest.raises(Overtaken):
        sink.write_joined(ab, batch(written + 1), lambda *_: pytest.fail("the mark moved"))
    assert sink.recorded(LEDGER, no_session) == Recorded(written + 1, None, is_fence=True)
    assert sink.holds_rows(no_session) == bool(written)
    assert staging_tables(database) == []


def test_a_fence_that_comes_while_the_number_is_being_recorded_waits_and_changes_nothing(
    ab: DataFrame, database: str
) -> None:
    """Asked afterwards, the ledger tells that the batch came first; a fence that did not wait would have lied."""
    sink, fences, pool = Postgres(database, "orders"), [], ThreadPoolExecutor(1)

    def fence_meanwhile(_connection: Connection, _rows: int) -> None:
        fences.append(pool.submit(sink.fence, LEDGER, 1, no_session))
        wait_until_held(database, sessions=1, application=FENCE)

    with pool:
        assert sink.write_joined(ab, batch(1), fence_meanwhile) == 2
        fences[0].result()
    assert sink.recorded(LEDGER, no_session) == Recorded(1, "d1")


def test_a_fence_stops_whoever_is_paused_below_it(spark: SparkSession, ab: DataFrame, database: str) -> None:
    """The number is taken without a row, so an old run finds it taken and stops; a lower fence takes nothing back."""
    sink = Postgres(database, "orders")
    sink.write(ab, batch(1))
    sink.fence(LEDGER, 9, no_session)
    sink.fence(LEDGER, 3, no_session)
    zombie = frame(spark, ID_V, (3, "zombie"))
    for number in (9, 8):
        with pytest.raises(Overtaken):
            sink.write(zombie, batch(number))
    assert sink.recorded(LEDGER, no_session) == Recorded(9, None, is_fence=True)
    assert ask(database, "select count(*) from orders") == [(2,)]
    assert sink.write(zombie, batch(10)) == 1


def test_a_fence_of_the_number_that_is_recorded_changes_nothing(ab: DataFrame, database: str) -> None:
    """The batch is there, and the ledger has to go on saying so."""
    sink = Postgres(database, "orders")
    sink.write(ab, batch(2))
    sink.fence(LEDGER, 2, no_session)
    assert sink.recorded(LEDGER, no_session) == Recorded(2, "d2")


def test_a_fence_says_which_batch_is_below_it(ab: DataFrame, database: str) -> None:
    """Whichever fences came since: it must not hide that the server lost a batch. One of earlier versions cannot."""
    sink = Postgres(database, "orders")
    sink.fence(LEDGER, 1, no_session)
    before = [sink.recorded(LEDGER, no_session)]
    sink.write(ab, batch(2))
    for number in (3, 5):
        sink.fence(LEDGER, number, no_session)
        before.append(sink.recorded(LEDGER, no_session))
    ask(database, "update floodmark_ledger set marks = '{}'")
    before.append(sink.recorded(LEDGER, no_session))
    assert [each.last_batch if each else "no entry" for each in before] == [0, 2, 2, None]


def test_a_fence_needs_no_table(database: str) -> None:
    """It holds before the first batch, too: neither schema nor ledger nor target are there."""
    sink = Postgres(database, "mart.orders")
    sink.fence(LEDGER, 4, no_session)
    assert sink.recorded(LEDGER, no_session) == Recorded(4, None, is_fence=True)
    assert ask(database, "select digest, rows from mart.floodmark_ledger") == [(None, None)]


def test_fences_of_earlier_versions_are_known_by_what_they_lack(ab: DataFrame, database: str) -> None:
    """They said that they had written no rows; an entry with rows is a batch, also where nobody knows its digest."""
    sink = Postgres(database, "orders")
    sink.fence(LEDGER, 4, no_session)
    ask(database, "update floodmark_ledger set rows = 0")
    assert sink.recorded(LEDGER, no_session) == Recorded(4, None, is_fence=True)
    ask(database, "update floodmark_ledger set rows = 7")
    assert sink.recorded(LEDGER, no_session) == Recorded(4, None)
    assert sink.write(ab, batch(4)) == 7


def test_jobs_of_one_name_do_not_share_the_numbers_of_their_tables(ab: DataFrame, database: str) -> None:
    """Two projects that never heard of each other, in one schema: what one records says nothing about the other."""
    ours, theirs = Postgres(database, "orders"), Postgres(database, "copies")
    assert [ours.write(ab, batch(5)), theirs.write(ab, batch(1))] == [2, 2]
    ours.fence(LEDGER, 9, no_session)
    assert theirs.recorded(LEDGER, no_session) == Recorded(1, "d1")
    assert ours.recorded(LEDGER, no_session) == Recorded(9, None, is_fence=True)


@pytest.mark.parametrize("staged", [False, True], ids=["direct", "staged"])
def test_a_number_that_stands_for_other_rows_is_refused(ab: DataFrame, database: str, staged: bool) -> None:
    """A store that was put back counts again from where it was: its batch is not the one that is there."""
    sink = Postgres(database, "orders", staged=staged)
    sink.write(ab, batch(1))
    with pytest.raises(SinkDisagrees) as refused:
        sink.write_joined(ab, batch(1, digest="other"), lambda *_: pytest.fail("the mark moved"))
    assert (refused.value.number, refused.value.recorded, refused.value.intended) == (1, "d1", "other1")
    assert ask(database, "select count(*) from orders") == [(2,)]


def test_two_batches_of_one_number_at_once_are_not_taken_for_one(ab: DataFrame, database: str) -> None:
    """Both have copied their rows; the digest that is recorded meanwhile is not the one of the other."""
    sink = Postgres(database, "orders")
    sink.write(ab, batch(1))
    with ThreadPoolExecutor(2) as pool, psycopg.connect(database) as holder:
        holder.execute("select * from floodmark_ledger for update")
        writes: list[Future[int | None]] = [pool.submit(sink.write, ab, batch(2, digest=each)) for each in ("x", "y")]
        wait_until_held(database, sessions=2)
        holder.rollback()
    assert sorted(str(type(each.exception())) for each in writes) == sorted(map(str, (type(None), SinkDisagrees)))
    assert ask(database, "select count(*) from orders") == [(4,)]


def test_an_entry_that_is_taken_away_under_a_repeat_is_not_made_up(
    ab: DataFrame, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody empties the ledger between the question and the lock: nothing says that the rows are there."""
    sink = Postgres(database, "orders")
    sink.write(ab, batch(1))
    wake_up_after(lambda: ask(database, "delete from floodmark_ledger"), monkeypatch)
    with pytest.raises(SinkFailed, match="has it no more"):
        sink.write_joined(ab, batch(1), lambda *_: pytest.fail("the mark moved"))
    assert sink.recorded(LEDGER, no_session) is None
