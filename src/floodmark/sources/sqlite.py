"""A SQLite table or query as a source; each task reads its range from the file itself."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.probes.cursor_conditions import from_clause, has_null, is_among
from floodmark.probes.cursor_query import Relation
from floodmark.probes.cursor_sql import Sqlite as Dialect
from floodmark.probes.sqlite import SqliteProbe
from floodmark.sources.contract import Reading, Request, Session, Sight
from floodmark.sources.table_cursor import Cursor, entity, fingerprint
from floodmark.sources.table_guard import explained
from floodmark.sources.table_jdbc import position
from floodmark.sources.table_marks import low_of, point_of
from floodmark.sources.table_safety import guard_of
from floodmark.sources.table_safety_lag import looker_for, repeated_by
from floodmark.sources.table_split import null_keys, partitions_for, ranges, tie_conditions
from floodmark.sources.table_sqlite_rows import Field, ddl_of, fields, read_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.errors import SourceUnreadable
    from floodmark.hwm import HWM, Span

SQL = Dialect()


@dataclass(frozen=True)
class Sqlite:
    """Rows of a table or of a query in a SQLite file, read above the mark of `cursor`.

    The file has to be on a disk that Spark's tasks see: local mode, or a shared folder. Values are held to the
    declared types of their columns, or to `types`; one that does not fit stops the batch with its column and row.
    `key` tells rows apart that share a value of the cursor; left out, it is the primary key.
    """

    path: str | os.PathLike[str]
    table: str | None = None
    query: str | None = None
    cursor: str | Cursor = ""
    types: Mapping[str, str] = field(default_factory=dict)
    partitions: int | None = None
    fetch_rows: int = 10_000
    name: str = "sqlite"
    key: Sequence[str] = ()
    _relation: Relation = field(init=False, repr=False, compare=False)
    _cursor: Cursor = field(init=False, repr=False, compare=False)
    _probe: SqliteProbe = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        relation, cursor, path = Relation(self.table, self.query), Cursor.of(self.cursor), Path(self.path).absolute()
        object.__setattr__(self, "_relation", relation)
        object.__setattr__(self, "_cursor", cursor)
        object.__setattr__(self, "_probe", SqliteProbe(path, relation, cursor.asked(self.key)))

    def fingerprint(self, session: Session) -> str:
        return fingerprint(self._probe.place(), entity(self._relation), self._probe.cursor())

    def repeats_by(self) -> tuple[str, ...]:
        """Its key and its cursor, where rows are read again."""
        return repeated_by(self._cursor, self.key)

    def restates(self) -> str | None:
        """A row without a cursor comes again once it has one."""
        return self._cursor.restates

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        """One statement on the file, opened read-only."""
        whole, name = not self._relation.is_bounded, entity(self._relation)
        probe, guard = self._probe, guard_of(self._cursor.safety, self._probe)
        what = (self._described(), self.name, name, self._cursor, probe)
        return looker_for(self._cursor)(*what, is_whole=whole, guard=guard).look(mark, request)

    def read(self, spark: SparkSession, span: Span) -> Reading:
        """The rows of the span. Raises ColumnUnmapped for a column without a declared type."""
        columns = self._fields()
        work = read_ranges(str(self._probe.path), columns, self._cursor.columns[0], self.fetch_rows)
        rows = self._statements(spark, span).mapInArrow(work, ddl_of(columns))
        return Reading(rows, position=position(self._probe.cursor()))

    def without_rows(self, spark: SparkSession) -> Reading:
        """The columns, by their declared types."""
        rows = spark.createDataFrame([], ddl_of(self._fields()))
        return Reading(rows, position=position(self._probe.cursor()))

    def explain(self, error: Exception, spark: SparkSession, span: Span) -> SourceUnreadable | None:
        """A value that is not of its column's type, met while reading."""
        return explained(error, self._described())

    def _fields(self) -> tuple[Field, ...]:
        return fields(self._probe.columns(), self.types, self._described())

    def _statements(self, spark: SparkSession, span: Span) -> DataFrame:
        """One row per range; Spark makes a task of each, as far as it has cores."""
        cursor, end = self._probe.cursor(), point_of(span.upto)
        source = from_clause(SQL, self._relation, cursor, low_of(span), end)
        ties = tie_conditions(SQL, cursor, span)
        parts = ranges(span, partitions_for(spark, self.partitions))
        conditions = [" AND ".join([part.condition(SQL, cursor), *ties]) for part in parts]
        if null_keys(span):
            conditions.append(f"{has_null(SQL, cursor)} AND {is_among(SQL, cursor, null_keys(span))}")
        texts = [f"SELECT * FROM {source} AS fm WHERE {condition}" for condition in conditions]
        return spark.createDataFrame([(text,) for text in texts], "statement string")

    def _described(self) -> str:
        return f"{self._probe.place()} {entity(self._relation)}"
