"""What the levels of a layered store are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from floodmark.errors import ConfigError, StoreUnreachable
from floodmark.stores import FileMarkStore, LayeredMarkStore, MemoryMarkStore, SqliteMarkStore
from floodmark.testing.doubles import FailingStore
from floodmark.testing.laws.records import files, record, save

if TYPE_CHECKING:
    from pathlib import Path


def test_a_record_is_served_by_the_nearest_level_that_has_it() -> None:
    """The truth is asked for its stamp alone."""
    truth = FailingStore(MemoryMarkStore())
    save(truth, record(1))
    store = LayeredMarkStore([MemoryMarkStore(), truth])
    first = store.read("orders")
    reads = truth.calls["read"]
    assert (first, store.read("orders"), store.read("orders")) == (record(1), record(1), record(1))
    assert truth.calls["read"] == reads


def test_a_commit_goes_to_the_truth_and_fills_the_levels_above(tmp_path: Path) -> None:
    """Every level holds it afterwards."""
    levels = [MemoryMarkStore(), FileMarkStore(tmp_path / "near"), SqliteMarkStore(tmp_path / "m.db")]
    save(LayeredMarkStore(levels), record(1, landing=files("/in/a")), record(2, landing=files("/in/a", "/in/b")))
    assert [level.read("orders") for level in levels] == [record(2, landing=files("/in/a", "/in/b"))] * 3


def test_a_truth_that_cannot_be_reached_stops_the_run() -> None:
    """What the levels above hold may be old."""
    truth = FailingStore(MemoryMarkStore(), {"stamp": 3})
    store = LayeredMarkStore([MemoryMarkStore(), truth])
    save(store, record(1))
    with pytest.raises(StoreUnreachable):
        store.read("orders")


def test_a_commit_that_the_truth_did_not_take_is_in_no_level() -> None:
    """The truth comes first."""
    near, truth = MemoryMarkStore(), FailingStore(MemoryMarkStore(), {"commit": 2})
    with pytest.raises(StoreUnreachable):
        save(LayeredMarkStore([near, truth]), record(1), record(2))
    assert near.read("orders") == record(1)


def test_a_commit_whose_answer_was_lost_is_seen_at_the_next_read() -> None:
    """The level above has the old record, under a stamp that is no longer the truth's."""
    near, truth = MemoryMarkStore(), FailingStore(MemoryMarkStore(), {"commit": 2}, when="after")
    store = LayeredMarkStore([near, truth])
    with pytest.raises(StoreUnreachable):
        save(store, record(1), record(2))
    assert store.read("orders") == record(2)


@pytest.mark.parametrize("broken", [{"fill": 1}, {"stamp": 1}, {"read": 1}])
def test_a_level_above_the_truth_that_fails_is_passed_over(broken: dict[str, int]) -> None:
    """It only spares time."""
    truth = MemoryMarkStore()
    save(truth, record(1))
    store = LayeredMarkStore([FailingStore(MemoryMarkStore(), broken), truth])
    assert (store.read("orders"), store.read("orders"), store.read("orders")) == (record(1), record(1), record(1))


def test_a_level_with_another_past_is_written_anew(tmp_path: Path) -> None:
    """The truth was restored: the same numbers stand for other files now."""
    near = FileMarkStore(tmp_path / "near")
    save(
        LayeredMarkStore([near, MemoryMarkStore()]),
        record(1, landing=files("/in/a")),
        record(2, landing=files("/in/a", "/in/b")),
    )
    other = MemoryMarkStore()
    save(other, record(1, landing=files("/in/x")), record(2, landing=files("/in/x", "/in/y")))
    again = LayeredMarkStore([near, other])
    assert again.read("orders") == record(2, landing=files("/in/x", "/in/y"))
    assert FileMarkStore(tmp_path / "near").read("orders") == record(2, landing=files("/in/x", "/in/y"))


def test_a_store_without_levels_is_refused() -> None:
    """There would be no truth."""
    with pytest.raises(ConfigError):
        LayeredMarkStore([])
