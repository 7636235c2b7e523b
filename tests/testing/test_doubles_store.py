"""The double that fails on command."""

from __future__ import annotations

import pytest

from floodmark.errors import StoreUnreachable
from floodmark.stores import MemoryMarkStore
from floodmark.testing.doubles import FailingStore
from floodmark.testing.laws.records import record, save


def test_the_nth_call_fails_before_it_is_done() -> None:
    """The second commit, and no other."""
    store = FailingStore(MemoryMarkStore(), {"commit": 2})
    with pytest.raises(StoreUnreachable, match="call 2 of commit"):
        save(store, record(1), record(2))
    assert store.read("orders") == record(1)
    save(store, record(2))
    assert store.read("orders") == record(2)


def test_the_nth_call_fails_after_it_was_done() -> None:
    """The answer is lost, the deed is not."""
    store = FailingStore(MemoryMarkStore(), {"commit": 2}, when="after")
    with pytest.raises(StoreUnreachable, match="lost"):
        save(store, record(1), record(2))
    assert store.read("orders") == record(2)
