"""What a store writes into the pages of its backend, and what it says of a page that is damaged."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.errors import MarkInvalid, MarkUnreadable
from floodmark.hwm import ColumnIntHWM
from floodmark.stores import LayeredMarkStore, MemoryMarkStore
from floodmark.stores.memory import MemoryPage, MemoryPages
from floodmark.testing.laws.records import (
    NOON,
    dated_record,
    files,
    receipt,
    record,
    save,
    with_open_intent,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import JobRecord

LATE = NOON + timedelta(days=900)


@pytest.fixture
def pages() -> MemoryPages:
    return MemoryPages()


def page_of(pages: MemoryPages, job: str = "orders") -> MemoryPage:
    """What the backend keeps of the job."""
    return pages.all["default", job]


def items_of(pages: MemoryPages) -> list[str]:
    """The files in the rows of the job's lists."""
    return sorted(row.item for row in page_of(pages).rows)


def test_an_intent_with_another_number_is_refused(pages: MemoryPages) -> None:
    """It says that a batch begins after the record that is there: a number is raised by a commit alone."""
    store = MemoryMarkStore(pages)
    lease = save(store, record(1))
    with pytest.raises(MarkInvalid, match="may not change the number 1"):
        store.intend(with_open_intent(replace(record(1), number=2)), expected=1, lease=lease)
    assert store.read("orders") == record(1)


def test_the_record_with_its_intent_is_known_to_its_own_store(pages: MemoryPages) -> None:
    """It is not parsed again at the next tick."""
    store = MemoryMarkStore(pages)
    begun = with_open_intent(record(1))
    store.intend(begun, expected=1, lease=save(store, record(1)))
    assert store.read("orders", known=begun) is begun


def test_rows_of_a_list_that_began_anew_go_with_its_last_history(pages: MemoryPages) -> None:
    """Else a table of files grows with every refresh, for ever."""
    store = MemoryMarkStore(pages, keep_history=2)
    save(store, *(record(at, landing=files(f"/in/{at}")) for at in range(1, 5)))
    assert items_of(pages) == ["/in/3", "/in/4"]


def test_rows_of_a_list_go_when_its_history_is_pruned(pages: MemoryPages) -> None:
    """Those of the current record stay, and no others."""
    store = MemoryMarkStore(pages)
    save(store, *(dated_record(at, landing=files(f"/in/{at}")) for at in range(1, 4)))
    store.prune("orders", history_before=LATE, keep_at_least=1, runs_before=None)
    assert items_of(pages) == ["/in/3"]


def test_rows_that_an_open_intent_needs_are_not_pruned(pages: MemoryPages) -> None:
    """The record says which lists it needs, whether or not its history does."""
    store = MemoryMarkStore(pages)
    lease = save(store, dated_record(1, landing=files("/in/1")))
    store.intend(with_open_intent(dated_record(1, landing=files("/in/1"))), expected=1, lease=lease)
    page_of(pages).committed.insert(0, page_of(pages).committed[0].replace('"/in/1"', '"/in/0"'))
    store.prune("orders", history_before=LATE, keep_at_least=1, runs_before=None)
    assert items_of(pages) == ["/in/1"]


def test_a_page_with_nothing_to_drop_is_not_written(pages: MemoryPages, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pruning is a part of every maintenance: most of the time there is nothing to do."""
    store = MemoryMarkStore(pages)
    save(store, dated_record(1))

    def refuse(*_: object) -> None:
        raise AssertionError("nothing was old")

    for name in ("trim_history", "trim_runs", "keep_bases"):
        monkeypatch.setattr(MemoryPage, name, refuse)
    store.prune("orders", history_before=NOON, keep_at_least=1, runs_before=NOON)


def spoil_lease(page: MemoryPage) -> None:
    page.lease_text = "{"


def spoil_receipt(page: MemoryPage) -> None:
    page.receipts = ["{"]


def spoil_history(page: MemoryPage) -> None:
    page.committed = ["{"]


def ask_for_pruning(store: MarkStore) -> None:
    store.prune("orders", history_before=LATE, keep_at_least=1, runs_before=None)


@pytest.mark.parametrize(
    ("spoil", "ask", "words"),
    [
        (spoil_lease, lambda store: store.lease("orders"), "its lease is damaged"),
        (spoil_receipt, lambda store: store.runs("orders"), "a receipt is damaged"),
        (spoil_history, ask_for_pruning, "its past is damaged"),
    ],
)
def test_what_is_damaged_is_named(
    pages: MemoryPages, spoil: Callable[[MemoryPage], None], ask: Callable[[MarkStore], Any], words: str
) -> None:
    """The lease, a receipt or the history: never a bare JSONDecodeError, and never "there is none"."""
    store = MemoryMarkStore(pages)
    save(store, record(1))
    spoil(page_of(pages))
    with pytest.raises(MarkUnreadable, match=words):
        ask(store)


def test_the_newest_runs_of_many_jobs_are_found_wherever_they_are(pages: MemoryPages) -> None:
    """Of many jobs few receipts each are read at first; who has newer ones is asked for more."""
    store = MemoryMarkStore(pages)
    for name in ("a", "b", "c", "d"):
        save(store, record(1, job=name))
    for number in range(2, 9):
        store.add_run(receipt(number, job="c"))
    shown = [(run.job, run.number) for run in store.runs(limit=6)]
    assert shown == [("c", number) for number in range(8, 2, -1)]
    assert len(store.runs(limit=100)) == 11


def test_no_more_runs_are_read_than_are_kept(pages: MemoryPages, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page may still have more, of a time when more were kept."""
    asked: list[int] = []
    whole = MemoryPage.runs
    monkeypatch.setattr(MemoryPage, "runs", lambda page, limit: (asked.append(limit), whole(page, limit))[1])
    save(MemoryMarkStore(pages), *(record(number) for number in range(1, 6)))
    store = MemoryMarkStore(pages, keep_runs=2)
    assert [run.number for run in store.runs("orders", 4)] == [5, 4]
    assert [run.number for run in store.runs(limit=4)] == [5, 4]
    assert max(asked) == 2


def test_a_record_without_a_time_gets_that_of_its_commit(pages: MemoryPages) -> None:
    """And one that has a time keeps it."""
    save(MemoryMarkStore(pages, now=lambda: LATE), replace(record(1), modified_time=None))
    assert page_of(pages).saved is not None
    assert page_of(pages).saved.modified_time == LATE.isoformat()
    save(MemoryMarkStore(pages, now=lambda: LATE), record(2))
    assert page_of(pages).saved.modified_time == NOON.isoformat()


def test_the_same_record_in_another_order_of_keys_is_not_written_again(pages: MemoryPages) -> None:
    """A database may give the keys of JSON in an order of its own."""
    store = MemoryMarkStore(pages)
    begun = with_open_intent(record(1))
    lease = save(store, record(1))
    store.intend(begun, expected=1, lease=lease)
    saved = page_of(pages).saved
    assert saved is not None
    first, *rest = saved.val[1:-1].split(',"number":')  # the number moves to the front
    number, _, tail = rest[0].partition(",")
    page_of(pages).saved = replace(saved, val=f'{{"number":{number},{first},{tail}}}')
    MemoryMarkStore(pages).intend(begun, expected=1, lease=lease)
    assert page_of(pages).saved.stamp == saved.stamp


def test_a_forgotten_job_leaves_nothing_in_memory() -> None:
    """A loop over jobs that come and go keeps none of those that went."""
    store = MemoryMarkStore()
    store.forget("orders", lease=save(store, record(1)))
    assert store._cache == {}


def test_many_threads_use_one_store(pages: MemoryPages) -> None:
    """A workflow's jobs share it."""
    store = MemoryMarkStore(pages)
    names = [f"job-{number}" for number in range(8)]
    threads = [
        threading.Thread(target=save, args=(store, *(record(at, job=name) for at in range(1, 20)))) for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [store.read(name) for name in names] == [record(19, job=name) for name in names]


def begun_with(second: str) -> list[JobRecord]:
    """Two batches of one file each."""
    return [record(1, landing=files("/in/a")), record(2, landing=files("/in/a", second))]


def test_a_list_is_read_anew_where_the_marks_came_to_the_same_number_another_way(pages: MemoryPages) -> None:
    """A loop lives on while the job is forgotten, or the store restored; another run gets as far with other files."""
    loop, elsewhere = MemoryMarkStore(pages), MemoryMarkStore(pages)
    elsewhere.forget("orders", lease=save(loop, *begun_with("/in/b")))
    save(elsewhere, *begun_with("/in/c"))
    assert loop.read("orders") == begun_with("/in/c")[-1]


def test_items_that_are_not_those_of_the_record_are_not_believed(pages: MemoryPages) -> None:
    """As many as were saved, and one is another."""
    save(MemoryMarkStore(pages), *begun_with("/in/b"))
    page = page_of(pages)
    page.rows = [replace(row, item=row.item.replace("/in/b", "/in/z")) for row in page.rows]
    with pytest.raises(MarkUnreadable, match="are not those that were saved"):
        MemoryMarkStore(pages).read("orders")


def lose_an_item(page: MemoryPage) -> None:
    page.rows = page.rows[:1]


def take_anothers_name(page: MemoryPage) -> None:
    assert page.saved is not None
    page.saved = replace(page.saved, val=page.saved.val.replace('"job":"orders"', '"job":"refunds"'))


def make_the_mark_a_number(page: MemoryPage) -> None:
    assert page.saved is not None
    head = json.loads(page.saved.val)
    head["marks"] = dict.fromkeys(head["marks"], ColumnIntHWM("landing", 3).serialize())
    page.saved = replace(page.saved, val=json.dumps(head))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lose_an_item, "1 of 2 items of 'landing' are there"),
        (take_anothers_name, "it is the record of 'refunds'"),
        (make_the_mark_a_number, "ColumnIntHWM has no items, but some are stored for it"),
    ],
)
def test_a_record_that_was_tampered_with_is_not_read(
    pages: MemoryPages, spoil: Callable[[MemoryPage], None], words: str
) -> None:
    """Whatever was lost or put in its place, it is said what does not fit."""
    save(MemoryMarkStore(pages), *begun_with("/in/b"))
    spoil(page_of(pages))
    with pytest.raises(MarkUnreadable, match=words):
        MemoryMarkStore(pages).read("orders")


def test_a_record_of_before_checksums_is_read_and_gets_one_with_the_next_commit(pages: MemoryPages) -> None:
    """Its rows are read whole, since nothing says whether those in memory are the same."""
    store = MemoryMarkStore(pages)
    save(store, *begun_with("/in/b"))
    saved = page_of(pages).saved
    assert saved is not None
    page_of(pages).saved = replace(saved, stamp="older", val=re.sub(r',"checksum":\d+', "", saved.val))
    assert store.read("orders") == begun_with("/in/b")[-1]
    save(store, record(3, landing=files("/in/a", "/in/b", "/in/c")))
    assert '"checksum"' in page_of(pages).saved.val
    assert MemoryMarkStore(pages).read("orders") == record(3, landing=files("/in/a", "/in/b", "/in/c"))


class TestLevelsAbove:
    """A level above the truth takes over records of which it may hold other rows."""

    @staticmethod
    def layers(near: MemoryPages, truth: MemoryPages) -> LayeredMarkStore:
        return LayeredMarkStore([MemoryMarkStore(near), MemoryMarkStore(truth)])

    def test_rows_of_another_past_are_dropped(self) -> None:
        """The truth was reset, and came to the same numbers with other files."""
        near = MemoryPages()
        save(self.layers(near, MemoryPages()), record(1, landing=files("/in/a")))
        another, state = MemoryPages(), record(1, landing=files("/in/b"))
        save(MemoryMarkStore(another), state)
        assert self.layers(near, another).read("orders") == state
        assert items_of(near) == ["/in/b"]

    def test_rows_of_another_past_are_dropped_also_by_who_knows_them(self) -> None:
        """A store that holds the earlier record in memory: its number is not below the new one."""
        near, truth = MemoryPages(), MemoryPages()
        store = self.layers(near, truth)
        save(store, *begun_with("/in/b"))
        truth.all.clear()
        save(MemoryMarkStore(truth), *begun_with("/in/c"))
        assert store.read("orders") == begun_with("/in/c")[-1]
        assert items_of(near) == ["/in/a", "/in/c"]

    def test_a_list_that_only_grew_is_not_written_again(self) -> None:
        """The rows that the level has stay as they are."""
        near, truth = MemoryPages(), MemoryPages()
        store = self.layers(near, truth)
        save(store, record(1, landing=files("/in/a")))
        before = list(page_of(near).rows)
        save(store, record(2, landing=files("/in/a", "/in/b")))
        assert page_of(near).rows[: len(before)] == before
        assert items_of(near) == ["/in/a", "/in/b"]

    def test_a_level_that_another_process_changed_is_filled_from_the_beginning(self) -> None:
        """What is remembered of it is of another stamp."""
        near, truth = MemoryPages(), MemoryPages()
        here, there = self.layers(near, truth), self.layers(near, truth)
        save(here, record(1, landing=files("/in/a")))
        save(there, record(2, landing=files("/in/a", "/in/b")))
        save(here, record(3, landing=files("/in/a", "/in/b", "/in/c")))
        assert MemoryMarkStore(near).read("orders") == record(3, landing=files("/in/a", "/in/b", "/in/c"))
        assert items_of(near) == ["/in/a", "/in/b", "/in/c"]
