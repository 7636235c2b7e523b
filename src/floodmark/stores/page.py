"""What a backend has to be able to do for one job; the rules on top of it are the same for all and live in `paged`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager


@dataclass(frozen=True)
class Entry:
    """A record as text, without the items of its itemised marks; `stamp` is new with every save."""

    stamp: str
    number: int
    modified_time: str
    val: str


@dataclass(frozen=True)
class ItemRow:
    """One item that a commit added to an itemised mark; `value` is JSON, `base` the number of the list's first rows."""

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
