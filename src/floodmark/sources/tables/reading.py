"""Reading a span of a table through Spark's JDBC reader, split over ranges of its cursor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from floodmark.errors import ConfigError
from floodmark.probes.cursor_conditions import from_clause, has_null, is_among
from floodmark.probes.cursor_query import Relation, for_jdbc
from floodmark.probes.cursor_sql import Dialect
from floodmark.probes.postgres_xmin import XMIN
from floodmark.probes.tables import Cursor, CursorColumn, Low
from floodmark.sources.contract import Reading
from floodmark.sources.table_marks import low_of, point_of
from floodmark.sources.table_split import null_keys, partitions_for, ranges, tie_conditions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from floodmark.hwm import Span

NEVER = "1 = 0"
CURSOR, WITHOUT_CURSOR = "_fm_cursor", "_fm_without"
"""The cursor as the table has it, beside the columns that Spark gets: a condition on it can use the index."""


class Selected(Protocol):
    """A column of a select list, and the Spark expression it becomes on arrival (None: it stays as it is)."""

    @property
    def name(self) -> str:
        """The column's name."""

    @property
    def item(self) -> str:
        """The column in a select list."""

    @property
    def arrival(self) -> str | None:
        """A Spark expression in which {0} stands for the column."""


@dataclass(frozen=True)
class JdbcTable:
    """What is read, and from where; `properties` hold the login."""

    url: str = field(repr=False)
    properties: Mapping[str, str] = field(repr=False)
    dialect: Dialect
    relation: Relation
    cursor: Cursor
    columns: Sequence[Selected]

    def reading(self, spark: SparkSession, span: Span, partitions: int | None) -> Reading:
        """The rows of the span, lazily; the cursor gives their order."""
        return self._read(spark, self._statement(span), self._predicates(span, partitions_for(spark, partitions)))

    def without_rows(self, spark: SparkSession) -> Reading:
        """The columns of `reading`, by a statement that finds nothing."""
        source = from_clause(self.dialect, self.relation, self.cursor, Low(None), None)
        return self._read(spark, f"(SELECT {', '.join(self._items())} FROM {source} fm) fm", [NEVER])

    def _read(self, spark: SparkSession, statement: str, predicates: Sequence[str]) -> Reading:
        rows = spark.read.jdbc(
            self.url,
            for_jdbc(statement),
            predicates=[for_jdbc(each) for each in predicates],
            properties=dict(self.properties),
        )
        own = tuple(column.name for column in self._renamed().columns)
        if self.cursor.columns == (XMIN,):  # no column of the table, so it is carried along for the order
            return Reading(self._arrived(rows), hidden=own, position=position(self._renamed()))
        return Reading(self._arrived(rows.drop(*own, WITHOUT_CURSOR)), position=position(self.cursor))

    def _statement(self, span: Span) -> str:
        dialect, cursor = self.dialect, self.cursor
        source = from_clause(dialect, self.relation, cursor, low_of(span), point_of(span.upto))
        items = self._items()
        if null_keys(span):
            is_one = f"CASE WHEN {is_among(dialect, cursor, null_keys(span))} THEN 1 ELSE 0 END"
            items.append(f"{is_one} AS {dialect.quote(WITHOUT_CURSOR)}")
        where = " AND ".join(tie_conditions(dialect, cursor, span))
        return f"(SELECT {', '.join(items)} FROM {source} fm{f' WHERE {where}' if where else ''}) fm"

    def _items(self) -> list[str]:
        """What is selected: the columns, and the cursor once more as the table orders it."""
        pairs = zip(self.cursor.columns, self._renamed().columns, strict=True)
        ordered = [f"{self.dialect.ordered(each)} AS {self.dialect.quote(renamed.name)}" for each, renamed in pairs]
        return [*(column.item for column in self.columns), *ordered]

    def _predicates(self, span: Span, partitions: int) -> list[str]:
        """One for each task; the rows without a cursor are a task of their own."""
        dialect, cursor = self.dialect, self._renamed()
        parts = [part.condition(dialect, cursor) for part in ranges(span, partitions)]
        if null_keys(span):
            parts.append(f"{has_null(dialect, cursor)} AND fm.{dialect.quote(WITHOUT_CURSOR)} = 1")
        return parts or [NEVER]

    def _renamed(self) -> Cursor:
        """The cursor as the statement gives it beside the columns; what stood in for a null is in it already."""
        columns = [
            replace(column, name=f"{CURSOR}{place or ''}", fallbacks=())
            for place, column in enumerate(self.cursor.columns)
        ]
        return replace(self.cursor, columns=tuple(columns))

    def _arrived(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        changed = {c.name: F.expr(c.arrival.format(backquoted(c.name))) for c in self.columns if c.arrival}
        return rows.withColumns(changed) if changed else rows


def position(cursor: Cursor) -> Column:
    """The cursor of a row in Spark, which orders rows as the table does."""
    from pyspark.sql import functions as F

    def value(column: CursorColumn) -> Column:
        return F.coalesce(*(F.col(backquoted(name)) for name in (column.name, *column.fallbacks)))

    return F.struct(*(value(column).alias(column.name) for column in cursor.columns))


def require_ordered(cursor: Cursor, types: Mapping[str, str]) -> None:
    """A number as text would order 9 above 10, and with it two versions of a row."""
    for column in cursor.columns:
        if column.kind in ("int", "decimal") and types.get(column.name) == "string":
            raise ConfigError(
                f"types: the cursor {column.name!r} is a number and cannot be read as string.",
                hint=f"types: {{{column.name}: decimal(38,10)}}",
            )


def backquoted(name: str) -> str:
    """A column's name in Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"
