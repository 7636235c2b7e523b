"""Reading a span of a table through Spark's JDBC reader, split over ranges of its cursor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from floodmark.errors import ConfigError
from floodmark.probes.cursor_query import Relation, for_jdbc
from floodmark.probes.cursor_sql import Dialect, from_clause
from floodmark.probes.tables import Cursor
from floodmark.sources.contract import Reading
from floodmark.sources.table_cursor import low_of
from floodmark.sources.table_split import partitions_for, ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.hwm import Span

CURSOR = "_fm_cursor"
"""The cursor as the table has it, beside the column that Spark gets: a condition on it can use the index."""


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
        from pyspark.sql import functions as F

        rows = spark.read.jdbc(
            self.url,
            for_jdbc(self._statement(span)),
            predicates=[for_jdbc(each) for each in self._predicates(spark, span, partitions)],
            properties=dict(self.properties),
        )
        return Reading(self._arrived(rows.drop(CURSOR)), position=F.struct(F.col(backquoted(self.cursor.column))))

    def _statement(self, span: Span) -> str:
        source = from_clause(self.dialect, self.relation, self.cursor, low_of(span), str(span.upto.dump()))
        items = ", ".join(column.item for column in self.columns)
        cursor = f"{self.dialect.quote(self.cursor.column)} AS {self.dialect.quote(CURSOR)}"
        return f"(SELECT {items}, {cursor} FROM {source} fm) fm"

    def _predicates(self, spark: SparkSession, span: Span, partitions: int | None) -> list[str]:
        if span.detail.get("void"):
            return ["1 = 0"]
        cursor = replace(self.cursor, column=CURSOR)
        return [part.condition(self.dialect, cursor) for part in ranges(span, partitions_for(spark, partitions))]

    def _arrived(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        changed = {c.name: F.expr(c.arrival.format(backquoted(c.name))) for c in self.columns if c.arrival}
        return rows.withColumns(changed) if changed else rows


def require_ordered(cursor: Cursor, types: Mapping[str, str]) -> None:
    """A number as text would order 9 above 10, and with it two versions of a row."""
    if cursor.kind in ("int", "decimal") and types.get(cursor.column) == "string":
        raise ConfigError(
            f"types: the cursor {cursor.column!r} is a number and cannot be read as string.",
            hint=f"types: {{{cursor.column}: decimal(38,10)}}",
        )


def backquoted(name: str) -> str:
    """A column's name in Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"
