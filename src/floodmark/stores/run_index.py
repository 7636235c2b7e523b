"""Runs that are found and counted without parsing whole receipts; and each receipt that is parsed, parsed once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING

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


@dataclass(frozen=True)
class RunEnd:
    """How a run ended, of all that its receipt says."""

    status: str
    recovered: bool
    started: datetime


def names_in(store: MarkStore) -> Sequence[str]:
    """Every job that has a record or a receipt, sorted."""
    if isinstance(store, RunIndex):
        return store.names()
    return sorted({*store.jobs(), *(run.job for run in store.runs(None, EVERYTHING))})


def run_ends(store: MarkStore, job: str) -> Sequence[RunEnd]:
    """How the runs of a job ended, newest first."""
    if isinstance(store, RunIndex):
        return store.run_ends(job)
    return [RunEnd(run.status, run.recovered, run.started) for run in store.runs(job, EVERYTHING)]


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
        ends = [RunEnd(str(status), bool(late), datetime.fromisoformat(at)) for status, late, at in rows]  # type: ignore[arg-type]
    except UNREADABLE as error:
        raise MarkUnreadable(job, where=where, reason=f"a receipt is damaged: {error}") from error
    return sorted(ends, key=attrgetter("started"), reverse=True)
