"""A mark store that fails on command, before it does something or after, when only the answer is lost."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from floodmark.errors import StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from floodmark.hwm import HWM
    from floodmark.stores.contract import LevelStore
    from floodmark.stores.pruning import Pruned
    from floodmark.stores.record import JobRecord, Lease, Owner, Receipt

Result = TypeVar("Result")


class FailingStore:
    """A store around another one. `fail_on={"commit": 2}` makes the second commit raise StoreUnreachable.

    `when="before"`: it was not done. `when="after"`: it was done, and the caller cannot know.
    `calls` counts what was asked for.
    """

    def __init__(
        self,
        store: LevelStore,
        fail_on: Mapping[str, int] | None = None,
        *,
        when: Literal["before", "after"] = "before",
    ) -> None:
        self.store, self.namespace = store, store.namespace
        self.fail_on, self.when = dict(fail_on or {}), when
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def _do(self, name: str, act: Callable[[], Result]) -> Result:
        with self._lock:  # the heartbeat calls from a thread of its own
            self.calls[name] += 1
            fails = self.fail_on.get(name) == self.calls[name]
        if fails and self.when == "before":
            raise StoreUnreachable(self.describe(), reason=f"injected: call {self.fail_on[name]} of {name}")
        result = act()
        if fails:
            raise StoreUnreachable(self.describe(), reason=f"injected: the answer to {name} was lost")
        return result

    def describe(self) -> str:
        return f"failing {self.store.describe()}"

    def stamp(self, job: str) -> str | None:
        return self._do("stamp", lambda: self.store.stamp(job))

    def fill(self, record: JobRecord, stamp: str) -> None:
        self._do("fill", lambda: self.store.fill(record, stamp))

    def read(self, job: str, known: JobRecord | None = None) -> JobRecord | None:
        return self._do("read", lambda: self.store.read(job, known))

    def intend(self, record: JobRecord, *, expected: int, lease: Lease) -> None:
        self._do("intend", lambda: self.store.intend(record, expected=expected, lease=lease))

    def commit(self, record: JobRecord, *, expected: int, lease: Lease, receipt: Receipt | None = None) -> None:
        self._do("commit", lambda: self.store.commit(record, expected=expected, lease=lease, receipt=receipt))

    def jobs(self) -> Sequence[str]:
        return self._do("jobs", self.store.jobs)

    def history(self, job: str, limit: int = 20) -> Sequence[JobRecord]:
        return self._do("history", lambda: self.store.history(job, limit))

    def runs(self, job: str | None = None, limit: int = 20) -> Sequence[Receipt]:
        return self._do("runs", lambda: self.store.runs(job, limit))

    def add_run(self, receipt: Receipt) -> None:
        self._do("add_run", lambda: self.store.add_run(receipt))

    def lease(self, job: str) -> Lease | None:
        return self._do("lease", lambda: self.store.lease(job))

    def take_lease(self, job: str, owner: Owner, *, over: Lease | None) -> Lease:
        return self._do("take_lease", lambda: self.store.take_lease(job, owner, over=over))

    def beat(self, lease: Lease, owner: Owner | None = None) -> None:
        self._do("beat", lambda: self.store.beat(lease, owner))

    def release(self, lease: Lease) -> None:
        self._do("release", lambda: self.store.release(lease))

    def looked(self, job: str, at: datetime) -> None:
        self._do("looked", lambda: self.store.looked(job, at))

    def last_looked(self, job: str) -> datetime | None:
        return self._do("last_looked", lambda: self.store.last_looked(job))

    def prune(
        self, job: str, *, history_before: datetime | None, keep_at_least: int, runs_before: datetime | None
    ) -> Pruned:
        limits = {"history_before": history_before, "runs_before": runs_before}
        return self._do("prune", lambda: self.store.prune(job, keep_at_least=keep_at_least, **limits))

    def forget(self, job: str, *, lease: Lease) -> None:
        self._do("forget", lambda: self.store.forget(job, lease=lease))

    def get_hwm(self, name: str) -> HWM[Any] | None:
        return self._do("get_hwm", lambda: self.store.get_hwm(name))

    def set_hwm(self, mark: HWM[Any]) -> None:
        self._do("set_hwm", lambda: self.store.set_hwm(mark))

    def close(self) -> None:
        self._do("close", self.store.close)
