"""Tables and queries of databases as sources, read above the mark of a cursor: what PostgreSQL, JDBC and SQLite share.

Looking is in `looking`, what guards a look while others write in `safety`, the cursor and its marks in `cursor`,
reading with Spark in `reading`. Each database has a module of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError, SourceUnreadable
from floodmark.probes.tables.relation import Relation
from floodmark.sources.tables.cursor import Cursor
from floodmark.sources.tables.looking import LagLook, TableLook, repeat_columns
from floodmark.sources.tables.safety import guard_for
from floodmark.spark.faults import fault_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.hwm import HWM, Span
    from floodmark.probes.tables import TableProbe
    from floodmark.sources.contract import Request, Session, Sight
    from floodmark.sources.tables.safety import Guard


class TableSource(ABC):
    """Rows of one table or query; a source of one database adds how it is probed, guarded and read."""

    table: str | None
    query: str | None
    cursor: str | Sequence[str] | Cursor
    key: Sequence[str]
    name: str

    @abstractmethod
    def probe(self, session: Session) -> TableProbe:
        """What answers about the table; only a probe that asks through Spark needs the session."""

    def fingerprint(self, session: Session) -> str:
        """Which table or query, by which columns of which types."""
        cursor = self.probe(session).cursor()
        return f"{self.description(session)} by {cursor.expression} ({cursor.types})"

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        """One statement; with a fence also who may still write, and another one if rows have to wait."""
        probe = self.probe(session)
        kind = LagLook if self.own_cursor.safety_way == "lag" else TableLook
        return kind(
            source=self.description(session),
            name=self.name,
            entity=self.relation.entity,
            cursor=self.own_cursor,
            probe=probe,
            guard=self._guard(probe),
            is_whole=self._is_whole,
        ).look(mark, request)

    def explain(self, error: Exception, spark: SparkSession, span: Span) -> SourceUnreadable | None:
        """A value that Spark cannot hold, met while reading."""
        reason = fault_in(error, "value")
        if reason is None:
            return None
        hint = "say how the column shall be read, as in `types: {column: string}`, or fix the row"
        return SourceUnreadable(self.description(lambda: spark), reason=reason, hint=hint)

    def repeats_by(self) -> tuple[str, ...]:
        """Its key and its cursor, where rows are read again."""
        return repeat_columns(self.own_cursor, self.key)

    def restates(self) -> str | None:
        """A row without a cursor comes again once it has one."""
        return self.own_cursor.restates

    def description(self, session: Session) -> str:
        """Where the table or query is, for people."""
        return f"{self.probe(session).place()} {self.relation.entity}"

    def require_sound(self) -> None:
        """Raises ConfigError for what names neither table nor query, or no cursor."""
        relation, cursor = self.relation, self.own_cursor
        if relation.is_bounded and cursor.collation == "database":
            raise ConfigError(
                "cursor: collation: database, and the query names :after and :upto.",
                hint="take them out: the bounds are put around the query",
            )

    @cached_property
    def relation(self) -> Relation:
        return Relation(self.table, self.query)

    @cached_property
    def own_cursor(self) -> Cursor:
        """The cursor, also where its column's name alone was given."""
        return Cursor.of(self.cursor)

    @property
    def _is_whole(self) -> bool:
        """Whether a look sees all of the table, also what lies at or below the mark."""
        return not self.relation.is_bounded

    def _guard(self, probe: TableProbe) -> Guard:
        return guard_for(self.own_cursor.safety, probe)


def no_session() -> SparkSession:
    """For a probe that is asked only what it knows without Spark."""
    raise LookupError("this is known without a session")
