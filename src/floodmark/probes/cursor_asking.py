"""The questions that every probe of a table asks, however it gets its answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from floodmark.errors import SourceUnreadable
from floodmark.probes.cursor_bounds import Question, question
from floodmark.probes.cursor_query import Relation
from floodmark.probes.cursor_sql import Dialect
from floodmark.probes.tables import Bounds, Ceiling, Cursor, Low, Point


class Asking(ABC):
    """A probe that asks in SQL; it knows its relation, its dialect and its cursor, and fetches rows."""

    relation: Relation

    @property
    @abstractmethod
    def dialect(self) -> Dialect:
        """How the database spells things."""

    @abstractmethod
    def cursor(self) -> Cursor:
        """The cursor, as the database knows it."""

    @abstractmethod
    def _rows(self, sql: str) -> Sequence[Sequence[Any]]:
        """What one statement gives. Raises SourceUnreadable."""

    def question(self, low: Low, ceilings: Sequence[Ceiling] = ()) -> Question:
        """What lies above the low bound and under every ceiling, as a statement."""
        return question(self.dialect, self.relation, self.cursor(), low, ceilings)

    def bounds(self, low: Low, max_rows: int | None, ceilings: Sequence[Ceiling] = ()) -> Bounds:
        asked = self.question(low, ceilings)
        return asked.told(self._rows(asked.bounds(max_rows))[0])

    def keys_at(self, value: Point | None, at_most: int) -> tuple[Point, ...]:
        rows = self._rows(self.question(Low()).keys_at(value, at_most))
        key = self.cursor().key
        found = [self.dialect.unpacked(each[0], len(key)) for each in rows]
        if None in found:
            what = f"a row whose {', '.join(key)} is null"
            raise SourceUnreadable(what, reason="a key tells rows with the same cursor apart, and no two such rows")
        return tuple(key for key in found if key is not None)

    def beside(self, value: Point, low: Low, ceilings: Sequence[Ceiling] = ()) -> tuple[Point | None, Point | None]:
        asked = self.question(low, ceilings)
        below, over = self._rows(asked.beside(value))[0]
        return self.dialect.unpacked(below, asked.width), self.dialect.unpacked(over, asked.width)
