"""Runs that are found and counted without parsing whole receipts; and each receipt that is parsed, parsed once."""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from floodmark.errors import FormatTooNew, MarkUnreadable
from floodmark.formats import without_format
from floodmark.stores.contract import RunIndex
from floodmark.stores.record import RECEIPT_FORMAT, Receipt
from floodmark.stores.wire import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floodmark.stores.contract import MarkStore


EVERYTHING = 1_000_000_000
RECEIPTS_REMEMBERED = 16_384


class RunEnd(NamedTuple):
    """How a run ended, of all that its receipt says. A tuple, since a look at a project may make 100,000 of them."""

    status: str
    recovered: bool
    started: datetime
    seconds: float = 0.0
    rows_read: int = 0


def names_in(store: MarkStore) -> Sequence[str]:
    """Every job that has a record or a receipt, sorted."""
    if isinstance(store, RunIndex):
        return store.names()
    return sorted({*store.jobs(), *(run.job for run in store.runs(None, EVERYTHING))})


def run_ends(store: MarkStore, job: str, limit: int = EVERYTHING) -> Sequence[RunEnd]:
    """How the last runs of a job ended, newest first."""
    if isinstance(store, RunIndex):
        return store.run_ends(job, limit)
    return [_end_of(run) for run in store.runs(job, limit)]


def runs_since_done(store: MarkStore, job: str, ends: Sequence[RunEnd]) -> tuple[Receipt, ...]:
    """The newest receipts of a job, down to the last that is done, of which its `ends` tell how many there are."""
    places = (place for place, end in enumerate(ends, start=1) if end.status == "done")
    wanted = ends[: next(places, 1)]
    runs = store.runs(job, len(wanted)) if wanted else ()
    if [run.started for run in runs] != [end.started for end in wanted]:  # one that began earlier was added later
        runs = store.runs(job, len(ends))[: len(wanted)]
    return tuple(runs)


def _end_of(run: Receipt) -> RunEnd:
    return RunEnd(run.status, run.recovered, run.started, run.seconds, run.rows_read)


def runs_named(store: MarkStore, begin: str, job: str | None = None) -> Sequence[Receipt]:
    """Receipts whose run id begins so, newest first."""
    if isinstance(store, RunIndex):
        return store.runs_named(begin, job)
    return [run for run in store.runs(job, EVERYTHING) if run.run.startswith(begin)]


@lru_cache(maxsize=RECEIPTS_REMEMBERED)
def receipt_in(text: str, job: str, where: str) -> Receipt:
    """The receipt of a text. Raises FormatTooNew, or MarkUnreadable."""
    try:
        stored = without_format(json.loads(text), f"a receipt of job '{job}'", where=where, known=RECEIPT_FORMAT)
        return Receipt.deserialize(stored)
    except FormatTooNew:
        raise
    except UNREADABLE as error:
        raise MarkUnreadable(job, where=where, reason=f"a receipt is damaged: {error}") from error


def ends_in(rows: Sequence[Sequence[object]], job: str, where: str) -> list[RunEnd]:
    """Of a page's rows, newest first. Raises MarkUnreadable where one says nothing."""
    try:
        ends = [
            RunEnd(status, bool(late), datetime.fromisoformat(at), took or 0.0, read or 0)  # type: ignore[arg-type]
            for status, late, at, took, read in rows
        ]
    except UNREADABLE as error:
        raise MarkUnreadable(job, where=where, reason=f"a receipt is damaged: {error}") from error
    return sorted(ends, key=attrgetter("started"), reverse=True)
