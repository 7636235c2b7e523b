"""What a backend keeps for a job (its page), and how a record becomes the text on it and back.

An itemised mark is a head in the record and rows of items beside it, so that a commit adds only what is new. The rules
on top of a page are the same for all backends and live in `paged`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from zlib import crc32

from floodmark.errors import FloodmarkError, FormatTooNew, MarkUnreadable
from floodmark.hwm import HWM, Growing, Itemised, Json
from floodmark.hwm.maps import FrozenMap
from floodmark.stores.record import Intent, JobRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

ITEMS = "items"
AFTER_IS_MARK = "after_is_mark"
TEXT = r'"(?:[^"\\]|\\.)*"'
BEGIN_OF_RECEIPT = re.compile(
    rf'\{{"format":\d+,"job":{TEXT},"run":{TEXT},"status":"(\w+)","started":"([^"\\]+)","seconds":(-?[\d.]+),'
    r'"batches":\d+,"number":\d+,"rows_read":(\d+),'
)
"""What `serialize` writes first; a receipt that begins otherwise is parsed."""
RECOVERED = '"recovered":true'
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, FloodmarkError)


@dataclass(frozen=True)
class Entry:
    """A record as text, without the items of its itemised marks; `stamp` is new with every save.

    >>> page = fm.stores.MemoryPage()
    >>> page.save(Entry("a1", number=3, modified_time="2026-01-03T12:00:00+00:00", val="{}"))
    >>> page.stamp()
    'a1'
    """

    stamp: str
    number: int
    modified_time: str
    val: str


@dataclass(frozen=True)
class ItemRow:
    """One item that a commit added to an itemised mark; `value` is JSON, `base` the number of the list's first rows.

    >>> ItemRow(source="files", base=1, number=2, item="/incoming/b.csv", value="null").item
    '/incoming/b.csv'
    """

    source: str
    base: int
    number: int
    item: str
    value: str


class Page(Protocol):
    """Everything stored for one job, inside one lock or transaction: all changes appear at its end, or none."""

    def stamp(self) -> str | None:
        """The stamp of the record alone."""

    def entry(self) -> Entry | None:
        """The record; None only if there never was one."""

    def save(self, entry: Entry) -> None:
        """Put the record in the place of the old one."""

    def items(self, source: str, base: int, after: int, upto: int) -> Iterable[tuple[str, str]]:
        """(item, value) of the rows of this base with after < number <= upto, in the order of their numbers."""

    def add_items(self, rows: Sequence[ItemRow]) -> None:
        """Add rows; those already there are not touched."""

    def keep_bases(self, used: frozenset[tuple[str, int]]) -> None:
        """Drop the rows of every (source, base) that no record needs any more."""

    def history(self, limit: int) -> Sequence[str]:
        """Texts of committed records, newest first."""

    def add_history(self, number: int, val: str, keep: int) -> None:
        """Add a committed record and drop the oldest ones above `keep`."""

    def trim_history(self, keep: int) -> None:
        """Drop the oldest committed records above `keep`."""

    def runs(self, limit: int) -> Sequence[str]:
        """Texts of receipts, the last added first."""

    def count_runs(self) -> int:
        """How many receipts are there."""

    def run_ends(self, limit: int) -> Sequence[Sequence[object]]:
        """Status, whether it was recovered, start, seconds and rows read of receipts, the last added first."""

    def runs_named(self, begin: str, limit: int) -> Sequence[str]:
        """Texts of receipts whose run id begins so, of the last `limit` that were added, the last first."""

    def add_run(self, text: str, keep: int) -> None:
        """Add a receipt and drop the oldest ones above `keep`."""

    def trim_runs(self, keep: int) -> None:
        """Drop the oldest receipts above `keep`."""

    def lease(self) -> str | None:
        """The lease as text."""

    def put_lease(self, text: str | None) -> None:
        """Put a lease in the place of the old one; None takes it away."""

    def looked(self) -> str | None:
        """When a loop last looked."""

    def put_looked(self, text: str) -> None:
        """Note that a loop looked."""

    def forget(self) -> None:
        """Drop all of it; nothing else is done to the page afterwards."""


class Pages(Protocol):
    """All pages of one namespace in one place."""

    def describe(self) -> str:
        """Where they are, without a secret."""

    def names(self) -> Sequence[str]:
        """Every job that has a record or a receipt."""

    def reading(self, job: str) -> AbstractContextManager[Page]:
        """A page that stays the same while it is read."""

    def writing(self, job: str) -> AbstractContextManager[Page]:
        """A page that nobody else changes meanwhile; what was done to it is durable when the block ends."""

    def close(self) -> None:
        """Let go of files and connections."""


@runtime_checkable
class RecordIndex(Protocol):
    """Pages that know without looking into each of them which have a record."""

    def recorded_names(self) -> Sequence[str]:
        """Every job that has a record."""


def names_recorded_in(pages: Pages) -> list[str]:
    """Every job that has a record, sorted."""
    if isinstance(pages, RecordIndex):
        return sorted(pages.recorded_names())

    def is_recorded(job: str) -> bool:
        with pages.reading(job) as page:
            return page.stamp() is not None

    return sorted(filter(is_recorded, pages.names()))


@dataclass(frozen=True)
class Base:
    """Where the rows of an itemised mark begin, how many items they make, and the sum over all of them."""

    number: int
    count: int
    checksum: int


@dataclass(frozen=True)
class CachedMark:
    """An itemised mark as it was at a number: the next one is told from it by what was added."""

    base: int
    number: int
    mark: HWM[Any]
    checksum: int = 0


@dataclass(frozen=True)
class CachedRecord:
    """A record that this process has read or saved, the stamp it had, and its itemised marks."""

    stamp: str
    record: JobRecord
    marks: Mapping[str, CachedMark] = field(default_factory=dict)
    was_read: bool = False
    """Whether it was made of the stored text: what somebody gave to be saved may hold objects that he still changes."""


@dataclass(frozen=True)
class EncodedRecord:
    """A record ready to be saved."""

    head: Mapping[str, Json]
    rows: tuple[ItemRow, ...]
    bases: Mapping[str, Base]
    cached_marks: Mapping[str, CachedMark]

    def val(self) -> str:
        return compact(self.head)

    def history_val(self) -> str:
        return compact({name: part for name, part in self.head.items() if name != AFTER_IS_MARK} | {"intent": None})


def end_facts(text: str) -> Sequence[object]:
    """What `run_ends` says of a receipt's text; of one that is damaged, nothing."""
    try:
        begin = BEGIN_OF_RECEIPT.match(text)
        if begin and RECOVERED not in text and text.endswith("}"):  # parsing all of it takes five times as long
            status, started, seconds, rows = begin.groups()
            return status, False, started, float(seconds), int(rows)
        receipt = json.loads(text)
        late, seconds, rows = receipt.get("recovered", False), receipt.get("seconds", 0.0), receipt.get("rows_read", 0)
        return receipt["status"], late, receipt["started"], seconds, rows
    except UNREADABLE:
        return ()


def is_named(text: str, begin: str) -> bool:
    """Whether the run id of a receipt's text begins so; one that is damaged has none."""
    try:
        return str(json.loads(text)["run"]).startswith(begin)
    except UNREADABLE:
        return False


def compact(value: object) -> str:
    """JSON on one line."""
    return json.dumps(value, separators=(",", ":"))


def encode(record: JobRecord, cached_marks: Mapping[str, CachedMark]) -> EncodedRecord:
    """The record as text, and the rows that it adds to what is cached."""
    bases: dict[str, Base] = {}
    rows: list[ItemRow] = []
    now_cached: dict[str, CachedMark] = {}
    for source, mark in record.marks.items():
        count = count_of(mark)
        if not count:
            continue
        old = cached_marks.get(source)
        base, added = _growth(mark, old, record.number)
        new = [(item, compact(value)) for item, value in added.items()]
        checksum = _checksum(new, old.checksum if old and old.base == base else 0)
        bases[source] = Base(base, count, checksum)
        rows += [ItemRow(source, base, record.number, item, value) for item, value in new]
        now_cached[source] = CachedMark(base, record.number, mark, checksum)
    return EncodedRecord(_head(record, bases), tuple(rows), bases, now_cached)


def _checksum(rows: Iterable[tuple[str, str]], before: int) -> int:
    """The sum over rows that are added to others: the same whatever order a backend gives them in."""
    return (before + sum(crc32(f"{item}\0{value}".encode(errors="surrogatepass")) for item, value in rows)) % 2**64


def items_of(mark: object) -> Mapping[str, Json]:
    """The items of an itemised mark; nothing for every other kind."""
    return mark.items() if isinstance(mark, Itemised) else {}


def count_of(mark: object) -> int:
    """How many items an itemised mark has; none for every other kind."""
    return mark.count() if isinstance(mark, Growing) else len(items_of(mark))


def _growth(mark: HWM[Any], old: CachedMark | None, number: int) -> tuple[int, Mapping[str, Json]]:
    """The base and the items to add: only what is new if nothing was taken away, else everything under a new base."""
    if old is not None and old.mark is mark:
        return old.base, {}
    added = None if old is None else _items_since(mark, old.mark)
    return (old.base, added) if old is not None and added is not None else (number, items_of(mark))


def _items_since(mark: object, older: HWM[Any]) -> Mapping[str, Json] | None:
    """What was added since; None if something was taken away."""
    if isinstance(mark, Growing) and isinstance(older, type(mark)):
        return mark.items_since(older)
    return FrozenMap(items_of(mark)).entries_since(FrozenMap(items_of(older)))


def _head(record: JobRecord, bases: Mapping[str, Base]) -> dict[str, Json]:
    marks = {source: _bare(mark) if source in bases else mark for source, mark in record.marks.items()}
    intent, shared = _slim(record.intent, record.marks, bases)
    head = replace(record, marks=marks, intent=intent).serialize()
    if bases:
        head[ITEMS] = {
            source: {"base": base.number, "count": base.count, "checksum": base.checksum}
            for source, base in bases.items()
        }
    if shared:
        head[AFTER_IS_MARK] = shared
    return head


def _bare(mark: HWM[Any]) -> HWM[Any]:
    itemised: object = mark
    return itemised.with_items({}) if isinstance(itemised, Itemised) else mark


def _slim(
    intent: Intent | None, marks: Mapping[str, HWM[Any]], bases: Mapping[str, Base]
) -> tuple[Intent | None, list[Json]]:
    """The intent without lists that are the mark's own: an open batch must not write a million known files again."""
    if intent is None:
        return None, []
    shared = [
        s for s, span in intent.spans.items() if s in bases and (span.after is marks[s] or span.after == marks[s])
    ]
    bare = {s: replace(intent.spans[s], after=_bare(marks[s])) for s in shared}
    return replace(intent, spans={**intent.spans, **bare}), list(shared)


def decode(
    job: str, val: str, page: Page, cached: CachedRecord | None, *, where: str
) -> tuple[JobRecord, Mapping[str, CachedMark]]:
    """The record of a text, with the items that the page has for it; what `cached` has already is not read again."""
    try:
        head = json.loads(val)
        record = JobRecord.deserialize(head, where=where)
        itemised = {s: _load(page, record, s, base, cached) for s, base in head.get(ITEMS, {}).items()}
        marks = {source: itemised[source].mark if source in itemised else mark for source, mark in record.marks.items()}
        intent = _whole(record.intent, marks, head.get(AFTER_IS_MARK, []))
    except (FormatTooNew, MarkUnreadable):
        raise
    except UNREADABLE as error:
        raise MarkUnreadable(job, where=where, reason=f"{type(error).__name__}: {error}") from error
    if record.job != job:
        raise MarkUnreadable(job, where=where, reason=f"it is the record of '{record.job}'")
    return replace(record, marks=marks, intent=intent), itemised


def _load(
    page: Page, record: JobRecord, source: str, stored: Mapping[str, int], cached: CachedRecord | None
) -> CachedMark:
    base, bare = stored["base"], record.marks[source]
    nothing = CachedMark(base, base - 1, bare)
    old = cached.marks.get(source) if cached and "checksum" in stored else None
    for known in (old, nothing) if old and old.base == base and old.number <= record.number else (nothing,):
        rows = list(page.items(source, base, known.number, record.number))
        checksum = _checksum(rows, known.checksum)
        if checksum == stored.get("checksum", checksum):  # else what is known is of another past, with the same numbers
            break
    if not rows and _bare(known.mark).serialize() == bare.serialize():
        return replace(known, number=record.number)
    items = {**items_of(known.mark), **{item: json.loads(value) for item, value in rows}}
    if len(items) != stored["count"]:
        raise ValueError(f"{len(items)} of {stored['count']} items of '{source}' are there")
    if checksum != stored.get("checksum", checksum):
        raise ValueError(f"the items of '{source}' are not those that were saved")
    return CachedMark(base, record.number, _with_items(bare, items), checksum)


def _with_items(bare: object, items: Mapping[str, Json]) -> HWM[Any]:
    if not isinstance(bare, Itemised):
        raise TypeError(f"{type(bare).__name__} has no items, but some are stored for it")
    return bare.with_items(items)


def _whole(intent: Intent | None, marks: Mapping[str, HWM[Any]], shared: list[str]) -> Intent | None:
    if intent is None or not shared:
        return intent
    whole = {source: replace(intent.spans[source], after=marks[source]) for source in shared}
    return replace(intent, spans={**intent.spans, **whole})
