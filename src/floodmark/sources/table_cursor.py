"""The column or columns that a table is read by, as a user names them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from floodmark.errors import ConfigError, UnknownKind
from floodmark.probes.cursor_query import Relation
from floodmark.probes.durations import seconds_in
from floodmark.probes.tables import Asked
from floodmark.probes.tables import Cursor as Seen
from floodmark.sources.table_safety import Chosen, Safety, Way

OnNull = Literal["fail", "exclude", "include"]


@dataclass(frozen=True)
class Cursor:
    """The column that grows, or several that do together. `start` is "earliest", "latest" or a value, read too.

    `unique` is the user's word that no two rows share a value; without it the catalog is asked, and where rows may
    share one, those at the mark are read again and told apart by their key. `coalesce` names the column and others of
    its type that stand in for it where it is null. `max_future` ("1h") keeps rows waiting that lie further ahead of
    the database's clock. `safety` says what is done about rows that commit late: "fence" (left out, it is this on
    PostgreSQL), "none" (left out elsewhere), {"delay": "30s"} or {"lag": "1h"}.
    """

    column: str | Sequence[str] = ()
    start: str | int | Sequence[str | int] = "earliest"
    on_null: OnNull = "fail"
    safety: Chosen | None = None
    unique: bool = False
    coalesce: Sequence[str] = ()
    max_future: str | None = None

    def __post_init__(self) -> None:
        if self.on_null not in get_args(OnNull):
            raise UnknownKind("on_null", self.on_null, known=get_args(OnNull))
        if self.safety is not None:
            Safety.of(self.safety)
        if self.max_future is not None:
            seconds_in(self.max_future, field="max_future")
        if self.coalesce and self.coalesce[0] not in self.columns:
            raise ConfigError(
                f"cursor: coalesce begins with {self.coalesce[0]!r}, which is not the column that is read by.",
                hint=f"begin with it, as in coalesce: [{self.columns[0]}, {self.coalesce[0]}]",
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns, also of a cursor that names one alone, or only what stands in for it."""
        named = (self.column,) if isinstance(self.column, str) else tuple(self.column)
        return tuple(name for name in named if name) or tuple(self.coalesce[:1])

    @property
    def safety_way(self) -> Way | None:
        """What was chosen, if anything was."""
        return Safety.of(self.safety).way if self.safety is not None else None

    @property
    def safety_seconds(self) -> float:
        """How long the choice lasts."""
        return Safety.of(self.safety or "none").seconds

    @property
    def restates(self) -> str | None:
        """What makes a row come twice, as a user wrote it."""
        return "on_null: include" if self.on_null == "include" else None

    def asked(self, key: Sequence[str] = ()) -> Asked:
        """The cursor in the words of a probe; `key` is the source's."""
        stand_in = {name: tuple(self.coalesce) for name in self.coalesce[:1]}
        groups = tuple(stand_in.get(name, (name,)) for name in self.columns)
        return Asked(groups, tuple(key), self.unique)

    @classmethod
    def of(cls, given: str | Cursor) -> Cursor:
        """The cursor, from its column's name alone too."""
        cursor = cls(given) if isinstance(given, str) else given
        if not cursor.columns:
            raise ConfigError("a table is read by a cursor.", hint="name a column that grows, as in cursor: id")
        twice = sorted({name for name in cursor.columns if cursor.columns.count(name) > 1})
        if twice:
            raise ConfigError(f"cursor: the column {twice[0]!r} is named twice.", hint="name each column once")
        return cursor


def fingerprint(place: str, entity: str, seen: Seen) -> str:
    """Which table or query, by which columns of which types."""
    return f"{place} {entity} by {seen.shown} ({seen.types})"


def entity(relation: Relation) -> str:
    """A table by its name, a query by its hash: which rows a mark speaks of."""
    if relation.table is not None:
        return relation.table
    return f"query {hashlib.sha256((relation.query or '').encode()).hexdigest()[:12]}"
