"""What may be dropped from the history of a job and from its receipts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from floodmark.stores.wire import ITEMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floodmark.stores.contract import MarkStore
    from floodmark.stores.page import Page

EVERYTHING = 1_000_000_000


@dataclass(frozen=True)
class Pruned:
    """How much was dropped, or would be."""

    history: int = 0
    runs: int = 0

    def __add__(self, other: Pruned) -> Pruned:
        return Pruned(self.history + other.history, self.runs + other.runs)


def kept_count(newest_first: Sequence[datetime | None], before: datetime | None, at_least: int) -> int:
    """How many of these stay: the newest ones, as far back as any that is young enough; one without a time is."""
    if before is None:
        return len(newest_first)
    young = [at for at, moment in enumerate(newest_first, start=1) if moment is None or moment >= before]
    return min(len(newest_first), max([*young, at_least, 1]))  # the newest is the current record's own


def surplus(
    store: MarkStore, job: str, *, history_before: datetime | None, keep_at_least: int, runs_before: datetime | None
) -> Pruned:
    """What `prune` would drop."""
    history = [record.modified_time for record in store.history(job, EVERYTHING)]
    runs = [receipt.started for receipt in store.runs(job, EVERYTHING)]
    return Pruned(
        len(history) - kept_count(history, history_before, keep_at_least),
        len(runs) - kept_count(runs, runs_before, keep_at_least),
    )


def prune_page(
    page: Page, *, history_before: datetime | None, keep_at_least: int, runs_before: datetime | None
) -> Pruned:
    """Drop what is old from a page, and the lists of items that only that needed."""
    history, runs = page.history(EVERYTHING), page.runs(EVERYTHING)
    kept = kept_count([_moment(val, "modified_time") for val in history], history_before, keep_at_least)
    kept_runs = kept_count([_moment(text, "started") for text in runs], runs_before, keep_at_least)
    if kept < len(history):
        entry = page.entry()
        page.trim_history(kept)
        page.keep_bases(frozenset().union(*map(bases_in, [*history[:kept], *([entry.val] if entry else [])])))
    if kept_runs < len(runs):
        page.trim_runs(kept_runs)
    return Pruned(len(history) - kept, len(runs) - kept_runs)


def bases_in(val: str) -> frozenset[tuple[str, int]]:
    """Which lists of items a stored record needs: (source, base) of each."""
    return frozenset((source, base["base"]) for source, base in json.loads(val).get(ITEMS, {}).items())


def _moment(text: str, field: str) -> datetime | None:
    found = json.loads(text)[field]
    return datetime.fromisoformat(found) if found else None
