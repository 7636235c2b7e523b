"""Runs are found by their id and counted in every store, without parsing each of their receipts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark.errors import MarkUnreadable
from floodmark.stores import FileMarkStore, LayeredMarkStore, MemoryMarkStore, SqliteMarkStore
from floodmark.stores.contract import RunIndex
from floodmark.stores.memory import MemoryPages
from floodmark.stores.run_index import RunEnd, names_in, receipt_in, run_ends, runs_named, runs_since_done
from floodmark.testing.laws.records import NOON, receipt

if TYPE_CHECKING:
    from floodmark.stores.contract import MarkStore

LATER = NOON + timedelta(hours=1)
FIRST = replace(receipt(1), run="abc1", status="failed", started=NOON)
SECOND = replace(receipt(2), run='ab"2', started=LATER, recovered=True)
OTHER = replace(receipt(1), job="other", run="abd", started=NOON)


class PlainStore:
    """Only what the contract asks of a store, over another one."""

    def __init__(self, store: MarkStore) -> None:
        self.jobs, self.runs, self.add_run = store.jobs, store.runs, store.add_run


STORES: dict[str, Callable[[Path], object]] = {
    "memory": lambda _folder: MemoryMarkStore(),
    "file": lambda folder: FileMarkStore(folder / "marks"),
    "sqlite": lambda folder: SqliteMarkStore(folder / "marks.db"),
    "layered": lambda folder: LayeredMarkStore([MemoryMarkStore(), SqliteMarkStore(folder / "marks.db")]),
    "plain": lambda _folder: PlainStore(MemoryMarkStore()),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> MarkStore:
    """With two runs of one job, added in the wrong order, and one of another."""
    opened: MarkStore = STORES[request.param](tmp_path)  # type: ignore[assignment]
    opened.add_run(SECOND)
    opened.add_run(FIRST)
    opened.add_run(OTHER)
    return opened


def test_the_ends_of_runs_are_told_newest_first(store: MarkStore) -> None:
    """That is all that counting needs."""
    ends = [RunEnd("done", recovered=True, started=LATER), RunEnd("failed", recovered=False, started=NOON)]
    assert (list(run_ends(store, "orders")), list(run_ends(store, "nobody"))) == (ends, [])


def test_the_end_of_a_run_has_what_comparing_needs(store: MarkStore) -> None:
    """How long it took for how many rows; of a few runs where no more are asked for."""
    store.add_run(replace(FIRST, started=LATER + timedelta(hours=1), seconds=2.5, rows_read=7))
    last = RunEnd("failed", recovered=False, started=LATER + timedelta(hours=1), seconds=2.5, rows_read=7)
    assert list(run_ends(store, "orders", 1)) == [last]


def test_a_mark_that_looks_like_a_part_of_a_receipt_is_none(store: MarkStore) -> None:
    """Ends are read from the text, where a mark or an error may say anything."""
    begun = LATER + timedelta(hours=1)
    tricky = replace(FIRST, started=begun, mark_after={"recovered": True}, error='"status":"done","recovered":true')
    store.add_run(tricky)
    assert run_ends(store, "orders")[0] == RunEnd("failed", recovered=False, started=begun)


def test_the_newest_receipts_go_down_to_the_last_that_is_done(store: MarkStore) -> None:
    """However they were added: FIRST began before SECOND and was added after it."""
    third = replace(FIRST, run="third", started=LATER + timedelta(hours=1))
    store.add_run(third)
    assert runs_since_done(store, "orders", run_ends(store, "orders")) == (third, SECOND)
    assert runs_since_done(store, "other", run_ends(store, "other")) == (OTHER,)
    assert runs_since_done(store, "nobody", run_ends(store, "nobody")) == ()


def test_a_run_that_was_added_is_counted_the_next_time(store: MarkStore) -> None:
    """What is remembered is of the receipts that were there."""
    run_ends(store, "orders")
    store.add_run(replace(FIRST, run="new", started=LATER + timedelta(hours=1)))
    assert [end.status for end in run_ends(store, "orders")] == ["failed", "done", "failed"]


def test_runs_are_found_by_how_their_id_begins(store: MarkStore) -> None:
    """Of one job or of all, newest first, whatever the id is made of."""
    assert [run.run for run in runs_named(store, "ab", "orders")] == ['ab"2', "abc1"]
    assert {run.run for run in runs_named(store, "ab")} == {'ab"2', "abc1", "abd"}
    assert list(runs_named(store, 'ab"2')) == [SECOND]
    assert list(runs_named(store, "b")) == []


def test_a_job_that_only_ever_failed_has_a_name_too(store: MarkStore) -> None:
    """It has receipts, and no record."""
    assert list(names_in(store)) == ["orders", "other"]


def test_a_store_of_levels_asks_its_truth(tmp_path: Path) -> None:
    """It finds runs as fast as the store below it."""
    assert isinstance(LayeredMarkStore([SqliteMarkStore(tmp_path / "marks.db")]), RunIndex)


def test_a_damaged_receipt_is_named_and_does_not_hide_the_others() -> None:
    """It cannot be counted, but another run can still be found."""
    pages = MemoryPages()
    store = MemoryMarkStore(pages)
    store.add_run(FIRST)
    pages.all["default", "orders"].receipts.append("{")
    with pytest.raises(MarkUnreadable, match="a receipt is damaged"):
        store.run_ends("orders")
    assert list(store.runs_named("abc")) == [FIRST]


def test_a_damaged_receipt_in_sqlite_is_no_store_that_cannot_be_reached(tmp_path: Path) -> None:
    """SQLite cannot read it as JSON, which says nothing of the file."""
    store = SqliteMarkStore(tmp_path / "marks.db")
    store.add_run(FIRST)
    with store._pages.writing("orders") as page:
        page.add_run('{"run": "abc', 10)
    with pytest.raises(MarkUnreadable, match="a receipt is damaged"):
        store.run_ends("orders")
    assert list(store.runs_named("abc")) == [FIRST]


def test_a_receipt_is_parsed_once(tmp_path: Path) -> None:
    """Pages look every few seconds at the same runs."""
    store = SqliteMarkStore(tmp_path / "marks.db")
    store.add_run(FIRST)
    store.runs("orders")
    before = receipt_in.cache_info().misses
    assert (store.runs(), store.runs("orders")) == ([FIRST], [FIRST])
    assert receipt_in.cache_info().misses == before
