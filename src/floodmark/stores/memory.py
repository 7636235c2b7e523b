"""Marks that live as long as the process: the reference for the laws, and the nearest level of a layered store."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from floodmark.stores.paged import PagedMarkStore, utc_now
from floodmark.stores.wire import end_facts, is_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from floodmark.stores.wire import Entry, ItemRow, Page


class MemoryMarkStore(PagedMarkStore):
    """Marks in memory.

    >>> store = MemoryMarkStore()
    >>> fm.Job(
    ...     name="orders", source=fm.testing.RowsSource([], "id long"), sinks=[fm.testing.ListSink()]
    ... ).run(store=store).status
    'nothing_new'
    """

    def __init__(
        self,
        pages: MemoryPages | None = None,
        *,
        namespace: str = "default",
        keep_history: int = 100,
        keep_runs: int = 1000,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        mine = NamespacePages(pages or MemoryPages(), namespace)
        super().__init__(mine, namespace=namespace, keep_history=keep_history, keep_runs=keep_runs, now=now)


class MemoryPages:
    """The pages of one process; give the same to two stores and they see each other's marks."""

    def __init__(self) -> None:
        self.all: dict[tuple[str, str], MemoryPage] = {}
        self.lock = threading.RLock()


class NamespacePages:
    """Those of one namespace."""

    def __init__(self, pages: MemoryPages, namespace: str) -> None:
        self._pages, self._namespace = pages, namespace

    def describe(self) -> str:
        return "memory"

    def names(self) -> Sequence[str]:
        with self._pages.lock:
            mine = [(job, page) for (namespace, job), page in self._pages.all.items() if namespace == self._namespace]
            return [job for job, page in mine if page.saved or page.receipts]

    @contextmanager
    def reading(self, job: str) -> Iterator[Page]:
        with self._pages.lock:
            yield self._pages.all.get((self._namespace, job)) or MemoryPage()

    @contextmanager
    def writing(self, job: str) -> Iterator[Page]:
        with self._pages.lock:
            yield self._pages.all.setdefault((self._namespace, job), MemoryPage())

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class MemoryPage:
    """What is stored of one job, as text: no caller shares an object with the store.

    >>> page = MemoryPage()
    >>> page.add_run('{"job": "orders"}', keep=10)
    >>> page.count_runs()
    1
    """

    saved: Entry | None = None
    rows: list[ItemRow] = field(default_factory=list)
    committed: list[str] = field(default_factory=list)
    receipts: list[str] = field(default_factory=list)
    lease_text: str | None = None
    looked_text: str | None = None

    def stamp(self) -> str | None:
        return self.saved.stamp if self.saved else None

    def entry(self) -> Entry | None:
        return self.saved

    def save(self, entry: Entry) -> None:
        self.saved = entry

    def items(self, source: str, base: int, after: int, upto: int) -> Iterator[tuple[str, str]]:
        mine = (row for row in self.rows if row.source == source and row.base == base)
        return ((row.item, row.value) for row in mine if after < row.number <= upto)

    def add_items(self, rows: Sequence[ItemRow]) -> None:
        self.rows += rows

    def keep_bases(self, used: frozenset[tuple[str, int]]) -> None:
        self.rows = [row for row in self.rows if (row.source, row.base) in used]

    def history(self, limit: int) -> Sequence[str]:
        return self.committed[::-1][:limit]

    def add_history(self, number: int, val: str, keep: int) -> None:
        self.committed.append(val)
        self.trim_history(keep)

    def trim_history(self, keep: int) -> None:
        self.committed = self.committed[-keep:]

    def runs(self, limit: int) -> Sequence[str]:
        return self.receipts[::-1][:limit]

    def count_runs(self) -> int:
        return len(self.receipts)

    def run_ends(self, limit: int) -> Sequence[Sequence[object]]:
        return [end_facts(text) for text in self.runs(limit)]

    def runs_named(self, begin: str, limit: int) -> Sequence[str]:
        return [text for text in self.runs(limit) if is_named(text, begin)]

    def add_run(self, text: str, keep: int) -> None:
        self.receipts.append(text)
        self.trim_runs(keep)

    def trim_runs(self, keep: int) -> None:
        self.receipts = self.receipts[-keep:]

    def lease(self) -> str | None:
        return self.lease_text

    def put_lease(self, text: str | None) -> None:
        self.lease_text = text

    def looked(self) -> str | None:
        return self.looked_text

    def put_looked(self, text: str) -> None:
        self.looked_text = text

    def forget(self) -> None:
        blank = MemoryPage()
        self.saved, self.rows, self.committed = blank.saved, blank.rows, blank.committed
        self.receipts, self.lease_text, self.looked_text = blank.receipts, None, None
