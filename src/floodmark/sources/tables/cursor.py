"""Where a span may end if rows share a value: the keys at its end are known, or the value is final, or it has to wait.

A mark on a value that two rows may share says nothing about a third one that comes later. So the keys of the rows that
were read there are remembered, the next look reads at the mark again, and leaves those out. What is read at the end of
a span is held to the keys that were seen when it was fixed: then a repeat reads the same rows, and no key is forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Literal

from floodmark.errors import ConfigError, TiesTooMany
from floodmark.probes.tables import Ceiling, Cursor, Low, Point, TableProbe
from floodmark.sources.table_marks import keys_from, stored_keys, stored_point

if TYPE_CHECKING:
    from collections.abc import Mapping

    from floodmark.hwm import Json

REMEMBERED_BYTES = 64 * 1024
SHORTEST_KEY_BYTES = 4
"""A digit, its quotes and a comma."""
VALUES_TRIED = 16
"""A table with so many values in a row that cannot be remembered has the wrong cursor."""
TIES, NULLS = "ties", "nulls"
MOVING_ON = ("int", "timestamp", "timestamptz")
"""Kinds of which a later transaction takes another value. A day lasts, and a text may come again."""


@dataclass(frozen=True)
class End:
    """The value a span reaches, and the keys of the rows there; None if no row can come there any more."""

    value: Point
    keys: tuple[Point, ...] | None = None

    def remembered(self) -> dict[str, Json]:
        """What the record has to know beside the mark."""
        return {} if self.keys is None else {TIES: {"at": stored_point(self.value), "keys": stored_keys(self.keys)}}


@dataclass(frozen=True)
class Ties:
    """Looks for the end of one span of a cursor that is not unique."""

    probe: TableProbe
    low: Low
    ceilings: Sequence[Ceiling]
    budget_bytes: int = REMEMBERED_BYTES

    def end(self, wanted: Point) -> End | None:
        """At the wanted value if its rows can be remembered; else below it, or above it; None if all have to wait."""
        found = (self._end_at(value) for value in islice(self._candidates(wanted), VALUES_TRIED))
        return next((end for end in found if end is not None), None)

    def _candidates(self, wanted: Point) -> Iterator[Point]:
        """The value, then those below it from near to far, then those above it."""
        yield wanted
        yield from islice(self._towards(wanted, 0), VALUES_TRIED // 2)
        yield from self._towards(wanted, 1)

    def _towards(self, value: Point, side: Literal[0, 1]) -> Iterator[Point]:
        found = self.probe.beside(value, self.low, self.ceilings)[side]
        while found is not None:
            yield found
            found = self.probe.beside(found, self.low, self.ceilings)[side]

    def _end_at(self, value: Point) -> End | None:
        keys = known_keys(self.probe, value, self.budget_bytes)
        if keys is not None:
            return End(value, keys)
        return End(value) if self._is_final(value) else None

    def _is_final(self, value: Point) -> bool:
        final = next((ceiling.upto for ceiling in self.ceilings if ceiling.is_final), None)
        if final is None:
            return False
        return final != value or all(column.kind in MOVING_ON for column in self.probe.cursor().columns)


def known_keys(probe: TableProbe, value: Point | None, budget_bytes: int) -> tuple[Point, ...] | None:
    """The keys at a value; None if they are too many to be remembered. Raises ConfigError if two rows have the same."""
    keys = tuple(sorted(probe.keys_at(value, budget_bytes // SHORTEST_KEY_BYTES)))
    twice = next((one for one, other in pairwise(keys) if one == other), None)
    if twice is not None:
        named = ", ".join(probe.cursor().key)
        raise ConfigError(
            f"key: several rows with the same cursor have the same {named} ({', '.join(twice)}).",
            hint="name columns that are unique together",
        )
    return keys if len(json.dumps(stored_keys(keys)).encode()) <= budget_bytes else None


def low_above(point: Point, cursor: Cursor, extras: Mapping[str, Json]) -> Low:
    """Above the mark; or at it, without what was read there. A mark that somebody set was read to its end."""
    ties = extras.get(TIES)
    if cursor.is_unique or not isinstance(ties, dict) or ties.get("at") != stored_point(point):
        return Low(point)
    return Low(point, inclusive=True, seen=keys_from(ties.get("keys")))


def require_told_apart(source: str, cursor: Cursor, *, is_whole: bool) -> None:
    """A row that comes later, at a value that was read, must not be lost."""
    if cursor.is_unique:
        return
    hint = (
        f"read by more columns, as in column: [{cursor.columns[0].name}, id]; or say unique: true if no two rows ever"
        " have the same"
    )
    if not is_whole:
        raise ConfigError(
            f"{source}: the query reads above :after, and a row that comes later with the same {cursor.shown} is not.",
            hint=hint,
        )
    if not cursor.key:
        raise ConfigError(
            f"{source}: several rows may have the same {cursor.shown}, and nothing tells them apart.",
            hint=f"name the key, as in key: [id]; or {hint}",
        )


def too_many(source: str, cursor: Cursor, value: Point | None) -> TiesTooMany:
    """More rows share a value than can be remembered, and nothing says that no more will come."""
    return TiesTooMany(source, column=cursor.shown, value=None if value is None else ", ".join(value))
