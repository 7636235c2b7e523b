"""Where what belongs to a job lies if nobody says otherwise: the next run has to find it again."""

from __future__ import annotations

from pathlib import Path

from floodmark.stores.contract import Housed, MarkStore


def spool_beside(store: MarkStore) -> str:
    """Where a batch is frozen if nobody says otherwise."""
    return f"{beside(store)}/spool"


def beside(store: MarkStore) -> Path:
    """A folder that the next run finds again: beside the marks, or hidden in the working folder."""
    return (store.folder if isinstance(store, Housed) else Path(".floodmark")).absolute()
