"""Doubles for tests, in which failure is data: rows that crash a run, a sink in memory, a store that loses answers."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from floodmark.errors import StoreUnreachable
from floodmark.hwm import HWM, ColumnIntHWM, Span
from floodmark.sinks.contract import Atomic, Batch, Recorded, is_written, without_own
from floodmark.sources.contract import Immutable, Reading, Request, Session, Sight

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from floodmark.stores.contract import LevelStore
    from floodmark.stores.paged import PruneCounts
    from floodmark.stores.record import JobRecord, Lease, Owner, Receipt


class Accident(Enum):
    """What may stand between the rows."""

    CRASH = "kills this process with SIGKILL when its span is read"
    FAIL = "raises InjectedFailure when its span is read, until the source is healed"


CRASH, FAIL = Accident.CRASH, Accident.FAIL
Row: TypeAlias = Mapping[str, Any]


class InjectedFailure(Exception):
    """The failure that a test asked for: no error of Floodmark's, as a user's own would be.

    >>> job = fm.Job("orders", RowsSource([{"id": 1}, FAIL], "id long"), [ListSink()])
    >>> job.run(spark, fm.stores.open("memory"))
    Traceback (most recent call last):
    floodmark.errors.data.SourceUnreadable: source 'rows' of job 'orders' cannot be read: InjectedFailure: ...
    """


@dataclass(frozen=True)
class RowsSource(Immutable):
    """The rows of a list that the test holds: append to it between runs, and the next run finds them.

    The mark is the number of rows delivered. CRASH and FAIL are no rows: they strike when a span that holds the row
    behind them is read; at the end of the list, with the row before them.

    >>> rows = [{"id": 1}]
    >>> job, store = fm.Job("orders", RowsSource(rows, "id long"), [ListSink()]), fm.stores.open("memory")
    >>> job.run(spark, store).rows_read
    1
    >>> rows.append({"id": 2})
    >>> job.run(spark, store).mark_after
    2
    """

    rows: list[Row | Accident]
    schema: str | StructType | None = None
    name: str = "rows"

    def fingerprint(self, session: Session) -> str:
        """The name alone: the list may grow."""
        return f"rows {self.name}"

    def row_options(self) -> Mapping[str, object]:
        """Not the rows themselves: the list may grow."""
        return {"schema": self.schema}

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        """The rows behind the mark; `--from` is the number of rows to leave out."""
        delivered = int(request.start) if request.start else (mark.value or 0) if mark else 0
        there = len(self._real_rows())
        upto = there if request.max_rows is None else min(there, delivered + max(request.max_rows, 1))
        if upto <= delivered:
            return Sight(None)
        after = ColumnIntHWM(self.name, delivered) if delivered else None
        return Sight(Span(after, ColumnIntHWM(self.name, upto)), expected_rows=upto - delivered)

    def read(self, spark: SparkSession, span: Span) -> Reading:
        """The span's rows, if no CRASH or FAIL stands among them."""
        from pyspark.sql import functions as sf

        after, upto = span.after.value if span.after else 0, span.upto.value
        self._strike(after, upto)
        found = self._real_rows()[after:upto]
        return Reading(self._frame(spark, found), position=sf.monotonically_increasing_id())

    def without_rows(self, spark: SparkSession) -> Reading:
        """The declared columns, or those of all rows."""
        return Reading(self._frame(spark, self._real_rows()).limit(0))

    def heal(self) -> None:
        """Take every FAIL out of the list: what was broken is fixed now."""
        self.rows[:] = [row for row in self.rows if row is not FAIL]

    def _frame(self, spark: SparkSession, found: list[Row]) -> DataFrame:
        if self.schema is not None:
            return spark.createDataFrame([dict(row) for row in found], self.schema)
        columns = list(dict.fromkeys(name for row in found for name in row))  # from dicts, Spark would sort them
        return spark.createDataFrame([tuple(row.get(name) for name in columns) for row in found], columns)

    def _real_rows(self) -> list[Row]:
        return [row for row in self.rows if not isinstance(row, Accident)]

    def _strike(self, after: int, upto: int) -> None:
        delivered, last = 0, len(self._real_rows())
        for row in self.rows:
            if not isinstance(row, Accident):
                delivered += 1
            elif after <= min(delivered, last - 1) < upto:
                self._happen(row, delivered)

    def _happen(self, accident: Accident, delivered: int) -> None:
        if accident is CRASH:
            os.kill(os.getpid(), signal.SIGKILL)
        raise InjectedFailure(f"the list of rows '{self.name}' fails after row {delivered}")


@dataclass
class ListSink(Atomic):
    """Collects rows as dicts in `rows`; a repeated number adds nothing. The first `fail_times` writes fail.

    >>> sink = ListSink()
    >>> job = fm.Job("orders", RowsSource([{"id": 1}, {"id": 2}], "id long"), [sink])
    >>> job.run(spark, fm.stores.open("memory")).rows_read, sink.rows
    (2, [{'id': 1}, {'id': 2}])
    """

    name: str = "list"
    fail_times: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    ledger: dict[str, Recorded] = field(default_factory=dict)
    written: dict[tuple[str, int], int] = field(default_factory=dict)

    def describe(self) -> str:
        return f"list '{self.name}' in memory"

    def fingerprint(self) -> str:
        return f"list {self.name}"

    def recorded(self, ledger: str, session: Session) -> Recorded | None:
        return self.ledger.get(ledger)

    def holds_rows(self, session: Session) -> bool:
        return bool(self.rows)

    def write(self, rows: DataFrame, batch: Batch) -> int | None:
        ledger = batch.ledger(self.name)
        if is_written(self.ledger.get(ledger), batch, self.name, self.describe()):
            return self.written.get((ledger, batch.number))
        if self.fail_times > 0:
            self.fail_times -= 1
            raise InjectedFailure(f"sink '{self.name}' was told to fail")
        taken = [row.asDict(recursive=True) for row in without_own(rows).collect()]
        self.rows[:] = taken if batch.kind == "refresh" else [*self.rows, *taken]
        self.ledger[ledger] = Recorded(batch.number, batch.digest)
        self.written[ledger, batch.number] = len(taken)
        return len(taken)

    def counts_every_row(self) -> bool:
        return True

    def fence(self, ledger: str, number: int, session: Session) -> None:
        recorded = self.ledger.get(ledger)
        if recorded is None or recorded.number < number:
            self.ledger[ledger] = Recorded(number, is_fence=True, before=recorded.last_batch if recorded else 0)


Result = TypeVar("Result")


class FailingStore:
    """A store around another one. `fail_on={"commit": 2}` makes the second commit raise StoreUnreachable.

    `when="before"`: it was not done. `when="after"`: it was done, and the caller cannot know.
    `calls` counts what was asked for.

    >>> store = FailingStore(fm.stores.open("memory"), {"read": 1})
    >>> store.read("orders")
    Traceback (most recent call last):
    floodmark.errors.stores.StoreUnreachable: store failing memory cannot be used: injected: call 1 of read...
    >>> store.read("orders") is None
    True
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
    ) -> PruneCounts:
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
