"""How a record becomes text and back: an itemised mark is a head in the record and rows of items beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from floodmark.errors import FloodmarkError, MarkUnreadable
from floodmark.hwm import HWM, Itemised, Json
from floodmark.stores.page import ItemRow, Page
from floodmark.stores.record import Intent, JobRecord

if TYPE_CHECKING:
    from collections.abc import Mapping


ITEMS = "items"
AFTER_IS_MARK = "after_is_mark"
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, FloodmarkError)


@dataclass(frozen=True)
class Base:
    """Where the rows of an itemised mark begin, and how many items they make."""

    number: int
    count: int


@dataclass(frozen=True)
class Held:
    """An itemised mark as it was at a number: the next one is told from it by what was added."""

    base: int
    number: int
    mark: HWM[Any]


@dataclass(frozen=True)
class Seen:
    """A record that this process has read or saved, the stamp it had, and its itemised marks."""

    stamp: str
    record: JobRecord
    held: Mapping[str, Held] = field(default_factory=dict)


@dataclass(frozen=True)
class Encoded:
    """A record ready to be saved."""

    head: Mapping[str, Json]
    rows: tuple[ItemRow, ...]
    bases: Mapping[str, Base]
    held: Mapping[str, Held]

    def val(self) -> str:
        return compact(self.head)

    def history_val(self) -> str:
        return compact({name: part for name, part in self.head.items() if name != AFTER_IS_MARK} | {"intent": None})


def compact(value: object) -> str:
    """JSON on one line."""
    return json.dumps(value, separators=(",", ":"))


def encode(record: JobRecord, held: Mapping[str, Held]) -> Encoded:
    """The record as text, and the rows that it adds to what is `held`."""
    bases: dict[str, Base] = {}
    rows: list[ItemRow] = []
    now_held: dict[str, Held] = {}
    for source, mark in record.marks.items():
        items = items_of(mark)
        if not items:
            continue
        base, added = _growth(mark, items, held.get(source), record.number)
        bases[source] = Base(base, len(items))
        rows += [ItemRow(source, base, record.number, item, compact(value)) for item, value in added.items()]
        now_held[source] = Held(base, record.number, mark)
    return Encoded(_head(record, bases), tuple(rows), bases, now_held)


def items_of(mark: object) -> Mapping[str, Json]:
    """The items of an itemised mark; nothing for every other kind."""
    return mark.items() if isinstance(mark, Itemised) else {}


def _growth(mark: HWM[Any], items: Mapping[str, Json], old: Held | None, number: int) -> tuple[int, Mapping[str, Json]]:
    """The base and the items to add: only what is new if nothing was taken away, else everything under a new base."""
    if old is None:
        return number, items
    if old.mark is mark:
        return old.base, {}
    before = items_of(old.mark)
    added = {item: value for item, value in items.items() if item not in before or before[item] != value}
    is_superset = len(items) == len(before) + sum(item not in before for item in added)
    return (old.base, added) if is_superset else (number, items)


def _head(record: JobRecord, bases: Mapping[str, Base]) -> dict[str, Json]:
    marks = {source: _bare(mark) if source in bases else mark for source, mark in record.marks.items()}
    intent, shared = _slim(record.intent, record.marks, bases)
    head = replace(record, marks=marks, intent=intent).serialize()
    if bases:
        head[ITEMS] = {source: {"base": base.number, "count": base.count} for source, base in bases.items()}
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


def decode(job: str, val: str, page: Page, seen: Seen | None, *, where: str) -> tuple[JobRecord, Mapping[str, Held]]:
    """The record of a text, with the items that the page has for it; what `seen` knows already is not read again."""
    try:
        head = json.loads(val)
        record = JobRecord.deserialize(head)
        held = {s: _load(page, record, s, base, seen) for s, base in head.get(ITEMS, {}).items()}
        marks = {source: held[source].mark if source in held else mark for source, mark in record.marks.items()}
        intent = _whole(record.intent, marks, head.get(AFTER_IS_MARK, []))
    except MarkUnreadable:
        raise
    except UNREADABLE as error:
        raise MarkUnreadable(job, where=where, reason=f"{type(error).__name__}: {error}") from error
    if record.job != job:
        raise MarkUnreadable(job, where=where, reason=f"it is the record of '{record.job}'")
    return replace(record, marks=marks, intent=intent), held


def _load(page: Page, record: JobRecord, source: str, stored: Mapping[str, int], seen: Seen | None) -> Held:
    base, bare = stored["base"], record.marks[source]
    old = seen.held.get(source) if seen else None
    usable = old if old and old.base == base and old.number <= record.number else None
    rows = dict(page.items(source, base, usable.number if usable else base - 1, record.number))
    if usable and not rows and _bare(usable.mark).serialize() == bare.serialize():
        return replace(usable, number=record.number)
    items = {**(items_of(usable.mark) if usable else {}), **{item: json.loads(value) for item, value in rows.items()}}
    if len(items) != stored["count"]:
        raise ValueError(f"{len(items)} of {stored['count']} items of '{source}' are there")
    return Held(base, record.number, _with_items(bare, items))


def _with_items(bare: object, items: Mapping[str, Json]) -> HWM[Any]:
    if not isinstance(bare, Itemised):
        raise TypeError(f"{type(bare).__name__} has no items, but some are stored for it")
    return bare.with_items(items)


def _whole(intent: Intent | None, marks: Mapping[str, HWM[Any]], shared: list[str]) -> Intent | None:
    if intent is None or not shared:
        return intent
    whole = {source: replace(intent.spans[source], after=marks[source]) for source in shared}
    return replace(intent, spans={**intent.spans, **whole})
