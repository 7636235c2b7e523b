"""The rules of a mark store, the same for every backend: compare-and-set, leases, history, receipts."""

from __future__ import annotations

import json
import threading
import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from operator import attrgetter
from typing import TYPE_CHECKING

from floodmark.errors import FormatTooNew, LeaseHeld, LeaseLost, MarkInvalid, MarkMoved, MarkUnreadable
from floodmark.formats import with_format, without_format
from floodmark.stores.hwm_access import HwmAccess
from floodmark.stores.record import RECEIPT_FORMAT, JobRecord, Lease, Owner, Receipt
from floodmark.stores.run_index import EVERYTHING, RunEnd, ends_in, receipt_in
from floodmark.stores.wire import (
    ITEMS,
    UNREADABLE,
    CachedMark,
    CachedRecord,
    EncodedRecord,
    Entry,
    Page,
    Pages,
    compact,
    decode,
    encode,
    names_recorded_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from floodmark.stores.contract import MarkStore


@dataclass(frozen=True)
class PruneCounts:
    """How much was dropped, or would be."""

    history: int = 0
    runs: int = 0

    def __add__(self, other: PruneCounts) -> PruneCounts:
        return PruneCounts(self.history + other.history, self.runs + other.runs)


def utc_now() -> datetime:
    """The time, where nobody injects another one."""
    return datetime.now(timezone.utc)


class PagedMarkStore(HwmAccess):
    """A MarkStore over the pages of a backend; may be used from several threads.

    >>> isinstance(fm.stores.open("memory"), PagedMarkStore)
    True
    """

    def __init__(
        self,
        pages: Pages,
        *,
        namespace: str,
        keep_history: int = 100,
        keep_runs: int = 1000,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.namespace = namespace
        self._pages, self._now = pages, now
        self._keep_history, self._keep_runs = keep_history, keep_runs
        self._cache: dict[str, CachedRecord] = {}
        self._ends: dict[str, tuple[tuple[object, ...], Sequence[RunEnd]]] = {}
        self._guard = threading.Lock()

    def describe(self) -> str:
        """Where the marks are."""
        return self._pages.describe()

    def stamp(self, job: str) -> str | None:
        """The stamp of the job's record, without parsing it."""
        with self._pages.reading(job) as page:
            return page.stamp()

    def read(self, job: str, known: JobRecord | None = None) -> JobRecord | None:
        """The job's record; `known` itself if it still is the one."""
        with self._pages.reading(job) as page:
            cached = self._cache.get(job)
            if cached and (cached.was_read or cached.record is known) and page.stamp() == cached.stamp:
                return cached.record
            entry = page.entry()
            if entry is None:
                return None
            record, cached_marks = decode(job, entry.val, page, cached, where=self.describe())
        return self._remember(CachedRecord(entry.stamp, record, cached_marks, was_read=True))

    def intend(self, record: JobRecord, *, expected: int, lease: Lease) -> None:
        """Save the open intent."""
        if record.number != expected:
            raise MarkInvalid("an intent", record.number, reason=f"it may not change the number {expected}")
        with self._pages.writing(record.job) as page:
            entry, cached_marks = self._claim(page, record, expected, lease)
            encoded = encode(record, cached_marks)
            if encoded.rows or _marks(encoded.val()) != (_marks(entry.val) if entry else {}):
                raise MarkInvalid("an intent", list(record.marks), reason="it may not change a mark")
            stamp = self._save(page, entry, record, encoded)
        self._remember(CachedRecord(stamp, record, encoded.cached_marks))

    def commit(self, record: JobRecord, *, expected: int, lease: Lease, receipt: Receipt | None = None) -> None:
        """Save the record and its receipt."""
        with self._pages.writing(record.job) as page:
            cached = self._save_commit(page, record, expected, lease, receipt)
        self._remember(cached)

    def _save_commit(
        self, page: Page, record: JobRecord, expected: int, lease: Lease, receipt: Receipt | None
    ) -> CachedRecord:
        if record.number <= expected:
            raise MarkInvalid("a commit", record.number, reason=f"its number must be above {expected}")
        entry, cached_marks = self._claim(page, record, expected, lease)
        encoded = encode(record, cached_marks)
        stamp = self._save(page, entry, record, encoded)
        page.add_history(record.number, encoded.history_val(), self._keep_history)
        self._drop_unused(page, encoded, cached_marks)
        if receipt:
            page.add_run(compact(with_format(receipt.serialize(), RECEIPT_FORMAT)), self._keep_runs)
        return CachedRecord(stamp, record, encoded.cached_marks)

    def fill(self, record: JobRecord, stamp: str) -> None:
        """Take over the record of another level."""
        with self._pages.writing(record.job) as page:
            if page.stamp() == stamp:
                return
            cached = self._cache.get(record.job)
            cached_marks = cached.marks if cached and cached.stamp == page.stamp() else {}
            encoded = encode(record, cached_marks)
            if encoded.rows and (not cached_marks or any(old.number >= record.number for old in cached_marks.values())):
                encoded = encode(
                    record, {}
                )  # the rows here belong to another past: numbers alone cannot tell them apart
                page.keep_bases(frozenset())
            page.add_items(encoded.rows)
            page.save(self._entry(stamp, record, encoded))
        self._remember(CachedRecord(stamp, record, encoded.cached_marks))

    def _claim(
        self, page: Page, record: JobRecord, expected: int, lease: Lease
    ) -> tuple[Entry | None, Mapping[str, CachedMark]]:
        """What is stored now and may be replaced by this record; raises if it may not."""
        self._require(page, lease)
        try:
            entry = page.entry()
            stored, cached_marks = self._current(page, record.job, entry)
        except MarkUnreadable:
            if record.origin != "reset":
                raise
            return None, {}  # a reset is how a person gets rid of a record that cannot be read
        if stored != expected:
            raise MarkMoved(record.job, stored=stored, expected=expected)
        return entry, cached_marks

    def _current(self, page: Page, job: str, entry: Entry | None) -> tuple[int, Mapping[str, CachedMark]]:
        if entry is None:
            return 0, {}
        cached = self._cache.get(job)
        if cached and cached.stamp == entry.stamp:
            return entry.number, cached.marks
        record, cached_marks = decode(job, entry.val, page, cached, where=self.describe())
        return record.number, cached_marks

    def _save(self, page: Page, old: Entry | None, record: JobRecord, encoded: EncodedRecord) -> str:
        entry = self._entry(uuid.uuid4().hex, record, encoded)
        if old and _sorted(old.val) == _sorted(entry.val):
            return old.stamp
        page.add_items(encoded.rows)
        page.save(entry)
        return entry.stamp

    def _entry(self, stamp: str, record: JobRecord, encoded: EncodedRecord) -> Entry:
        return Entry(stamp, record.number, (record.modified_time or self._now()).isoformat(), encoded.val())

    def _drop_unused(self, page: Page, encoded: EncodedRecord, cached_marks: Mapping[str, CachedMark]) -> None:
        bases = {source: base.number for source, base in encoded.bases.items()}
        if bases == {source: old.base for source, old in cached_marks.items()}:
            return
        kept = [bases_in(val) for val in page.history(self._keep_history)]
        page.keep_bases(frozenset(bases.items()).union(*kept))

    def _remember(self, cached: CachedRecord) -> JobRecord:
        with self._guard:
            self._cache[cached.record.job] = cached
        return cached.record

    def jobs(self) -> Sequence[str]:
        """Jobs with a record, sorted."""
        return names_recorded_in(self._pages)

    def history(self, job: str, limit: int = 20) -> Sequence[JobRecord]:
        """Committed records, newest first."""
        with self._pages.reading(job) as page:
            found: list[JobRecord] = []
            cached = None
            for val in reversed(page.history(min(limit, self._keep_history))):  # so that each adds to the one before
                record, cached_marks = decode(job, val, page, cached, where=self.describe())
                cached = CachedRecord("", record, cached_marks)
                found.append(record)
        return found[::-1]

    def runs(self, job: str | None = None, limit: int = 20) -> Sequence[Receipt]:
        """Receipts, newest first."""
        if job is not None:
            return self._runs_of(job, limit)
        names = self._pages.names()
        share = -(-2 * limit // max(1, len(names)))  # of many jobs only what is shown is parsed
        found = {name: self._runs_of(name, share) for name in names}
        while True:
            newest = sorted((run for runs in found.values() for run in runs), key=attrgetter("started"), reverse=True)[
                :limit
            ]
            after = newest[-1].started if len(newest) == limit else None
            full = [name for name, runs in found.items() if len(runs) == share < min(limit, self._keep_runs)]
            left = [name for name in full if after is None or found[name][-1].started > after]
            if not left:
                return newest
            share = min(4 * share, limit)
            found |= {name: self._runs_of(name, share) for name in left}

    def _runs_of(self, job: str, limit: int) -> list[Receipt]:
        with self._pages.reading(job) as page:
            texts = page.runs(min(limit, self._keep_runs))
        found = [receipt_in(text, job, self.describe()) for text in texts]
        return sorted(found, key=attrgetter("started"), reverse=True)

    def names(self) -> Sequence[str]:
        """Jobs with a record or a receipt, sorted."""
        return sorted(self._pages.names())

    def run_ends(self, job: str, limit: int = EVERYTHING) -> Sequence[RunEnd]:
        """How runs ended, newest first."""
        with self._pages.reading(job) as page:
            if limit < self._keep_runs:
                return ends_in(page.run_ends(limit), job, self.describe())
            stamp, cached = (page.count_runs(), *page.runs(1)), self._ends.get(job)
            if cached is None or cached[0] != stamp:
                cached = stamp, ends_in(page.run_ends(self._keep_runs), job, self.describe())
        self._ends[job] = cached
        return cached[1]

    def runs_named(self, begin: str, job: str | None = None) -> Sequence[Receipt]:
        """Receipts by their run id, newest first."""
        found: list[Receipt] = []
        for name in self._pages.names() if job is None else [job]:
            with self._pages.reading(name) as page:
                texts = page.runs_named(begin, self._keep_runs)
            found += [receipt_in(text, name, self.describe()) for text in texts]
        return sorted(found, key=attrgetter("started"), reverse=True)

    def add_run(self, receipt: Receipt) -> None:
        """Keep a receipt alone."""
        with self._pages.writing(receipt.job) as page:
            page.add_run(compact(with_format(receipt.serialize(), RECEIPT_FORMAT)), self._keep_runs)

    def lease(self, job: str) -> Lease | None:
        """The lease as stored."""
        with self._pages.reading(job) as page:
            return self._lease(job, page)

    def take_lease(self, job: str, owner: Owner, *, over: Lease | None) -> Lease:
        """Take the lease if it is still in the state that the caller saw."""
        with self._pages.writing(job) as page:
            stored = self._lease(job, page)
            if stored and (over is None or stored.token != over.token):
                raise LeaseHeld(job, holder=str(stored.owner), since=stored.since.isoformat())
            lease = Lease(job, owner, uuid.uuid4().hex, 0, self._now())
            page.put_lease(compact(with_format(lease.serialize())))
        return lease

    def beat(self, lease: Lease, owner: Owner | None = None) -> None:
        """Show that the owner lives."""
        with self._pages.writing(lease.job) as page:
            stored = self._require(page, lease)
            page.put_lease(
                compact(with_format(replace(stored, beat=stored.beat + 1, owner=owner or stored.owner).serialize()))
            )

    def release(self, lease: Lease) -> None:
        """Give the lease back."""
        with self._pages.writing(lease.job) as page:
            stored = self._lease(lease.job, page)
            if stored and stored.token == lease.token:
                page.put_lease(None)

    def _require(self, page: Page, lease: Lease) -> Lease:
        stored = self._lease(lease.job, page)
        if stored is None or stored.token != lease.token:
            raise LeaseLost(lease.job, holder=str(stored.owner) if stored else None)
        return stored

    def _lease(self, job: str, page: Page) -> Lease | None:
        text = page.lease()
        try:
            if text is None:
                return None
            stored = without_format(json.loads(text), f"the lease of job '{job}'", where=self.describe())
            return Lease.deserialize(stored)
        except FormatTooNew:
            raise
        except UNREADABLE as error:
            raise MarkUnreadable(job, where=self.describe(), reason=f"its lease is damaged: {error}") from error

    def looked(self, job: str, at: datetime) -> None:
        """Note that a loop looked."""
        with self._pages.writing(job) as page:
            page.put_looked(at.isoformat())

    def last_looked(self, job: str) -> datetime | None:
        """When a loop last looked."""
        with self._pages.reading(job) as page:
            text = page.looked()
        return datetime.fromisoformat(text) if text else None

    def prune(
        self, job: str, *, history_before: datetime | None, keep_at_least: int, runs_before: datetime | None
    ) -> PruneCounts:
        """Drop old history and receipts, and the lists of files that only they needed."""
        with self._pages.writing(job) as page:
            try:
                limits = {"history_before": history_before, "runs_before": runs_before}
                return prune_page(page, keep_at_least=keep_at_least, **limits)
            except UNREADABLE as error:
                raise MarkUnreadable(job, where=self.describe(), reason=f"its past is damaged: {error}") from error

    def forget(self, job: str, *, lease: Lease) -> None:
        """Drop everything that is kept for the job."""
        with self._pages.writing(job) as page:
            self._require(page, lease)
            page.forget()
        with self._guard:
            self._cache.pop(job, None)

    def close(self) -> None:
        """Let go of files and connections."""
        self._pages.close()


def count_kept(newest_first: Sequence[datetime | None], before: datetime | None, at_least: int) -> int:
    """How many of these stay: the newest ones, as far back as any that is young enough; one without a time is."""
    if before is None:
        return len(newest_first)
    young = [at for at, moment in enumerate(newest_first, start=1) if moment is None or moment >= before]
    return min(len(newest_first), max([*young, at_least, 1]))  # the newest is the current record's own


def surplus(
    store: MarkStore, job: str, *, history_before: datetime | None, keep_at_least: int, runs_before: datetime | None
) -> PruneCounts:
    """What `prune` would drop."""
    history = [record.modified_time for record in store.history(job, EVERYTHING)]
    runs = [receipt.started for receipt in store.runs(job, EVERYTHING)]
    return PruneCounts(
        len(history) - count_kept(history, history_before, keep_at_least),
        len(runs) - count_kept(runs, runs_before, keep_at_least),
    )


def prune_page(
    page: Page, *, history_before: datetime | None, keep_at_least: int, runs_before: datetime | None
) -> PruneCounts:
    """Drop what is old from a page, and the lists of items that only that needed."""
    history, runs = page.history(EVERYTHING), page.runs(EVERYTHING)
    kept = count_kept([_moment(val, "modified_time") for val in history], history_before, keep_at_least)
    kept_runs = count_kept([_moment(text, "started") for text in runs], runs_before, keep_at_least)
    if kept < len(history):
        entry = page.entry()
        page.trim_history(kept)
        page.keep_bases(frozenset().union(*map(bases_in, [*history[:kept], *([entry.val] if entry else [])])))
    if kept_runs < len(runs):
        page.trim_runs(kept_runs)
    return PruneCounts(len(history) - kept, len(runs) - kept_runs)


def bases_in(val: str) -> frozenset[tuple[str, int]]:
    """Which lists of items a stored record needs: (source, base) of each."""
    return frozenset((source, base["base"]) for source, base in json.loads(val).get(ITEMS, {}).items())


def _moment(text: str, field: str) -> datetime | None:
    found = json.loads(text)[field]
    return datetime.fromisoformat(found) if found else None


def _marks(val: str) -> object:
    return json.loads(val)["marks"]


def _sorted(val: str) -> str:
    """The same text whatever order a database gave its keys."""
    return json.dumps(json.loads(val), sort_keys=True)
