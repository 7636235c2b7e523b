"""Reading a span of a table: through Spark's JDBC reader, and split over ranges of its cursor for every reader.

The ranges of a span are read side by side: together they are the whole span, and no row is in two of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from floodmark.errors import ConfigError
from floodmark.hwm import CompositeHWM
from floodmark.hwm.parsing import EXACT
from floodmark.locations import quote
from floodmark.probes.tables import CursorColumn, CursorValue, LowerBound, ResolvedCursor
from floodmark.probes.tables.dialects import XMIN, Dialect
from floodmark.probes.tables.queries import Conditions
from floodmark.probes.tables.relation import Relation, for_jdbc
from floodmark.sources.contract import Reading
from floodmark.sources.tables.cursor import ENDS, NULLS, VOID, cursor_value, keys_from_json, lower_bound
from floodmark.spark.session import cores

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from floodmark.hwm import Span


ROWS_WORTH_SPLITTING = 10_000
ROWS_WORTH_COPYING = 300_000
"""Before its first row a Python worker takes a third of a second or more, in which JDBC has read about as many."""
CORES_PER_COPY = 3
"""A task that copies keeps the server, a Python worker and Spark busy at once: with fewer cores JDBC is quicker."""
MOST_PARTITIONS = 8
"""Each partition is a connection to somebody's database."""
NEVER = "1 = 0"
CURSOR, WITHOUT_CURSOR = "_fm_cursor", "_fm_without"
"""The cursor as the table has it, beside the columns that Spark gets: a condition on it can use the index."""


@dataclass(frozen=True)
class SelectedColumn:
    """A column as it stands in a select list, and what Spark makes of it on arrival.

    `arrival` is an expression in which {0} stands for the column; None leaves it as it came.
    """

    name: str
    item: str
    arrival: str | None = None


class BulkReader(Protocol):
    """Another way to the rows than Spark's JDBC reader."""

    def rows(self, spark: SparkSession, schema: StructType, statements: Sequence[str]) -> DataFrame | None:
        """What is selected `FROM` each statement, a task for each; None if not every value would arrive as it was."""

    def few_rows(self, spark: SparkSession, schema: StructType, statement: str) -> DataFrame | None:
        """The same of one statement that is known to give few rows, which are read now; None also if they are many."""


@dataclass(frozen=True)
class JdbcTable:
    """What is read, and from where; `properties` hold the login."""

    url: str = field(repr=False)
    properties: Mapping[str, str] = field(repr=False)
    dialect: Dialect
    relation: Relation
    cursor: ResolvedCursor
    columns: Sequence[SelectedColumn]
    bulk: BulkReader | None = None
    """Reads rows faster than JDBC, where it can."""
    schemas: dict[Hashable, StructType] = field(default_factory=dict, repr=False)
    """What JDBC made of columns, by how the database describes them: it opens a connection to find out."""
    description: Hashable = None

    def reading(self, spark: SparkSession, span: Span, partitions: int | None) -> Reading:
        """The rows of the span, lazily; the cursor gives their order."""
        predicates = self._predicates(span, partitions_for(spark, partitions))
        statement, known = self._statement(span), self.schemas.get(self.description)
        if is_small(span) and known is not None and self.bulk is not None and len(predicates) == 1:
            few = self.bulk.few_rows(spark, known, f"{statement} WHERE {predicates[0]}")
            if few is not None:
                return Reading(self._convert(few), position=position(self.cursor))
        is_copied = is_worth_copying(span, len(predicates), cores(spark))
        return self._read(spark, statement, predicates, self.bulk if is_copied else None)

    def without_rows(self, spark: SparkSession) -> Reading:
        """The columns of `reading`, by a statement that finds nothing."""
        source = Conditions(self.dialect, self.cursor).from_clause(self.relation, LowerBound(), None)
        return self._read(spark, f"(SELECT {', '.join(self._items())} FROM {source} fm) fm", [NEVER])

    def _read(
        self, spark: SparkSession, statement: str, predicates: Sequence[str], bulk: BulkReader | None = None
    ) -> Reading:
        rows = self._through_jdbc(spark, statement, predicates)
        own = tuple(column.name for column in self._own_cursor.columns)
        if self.cursor.columns == (XMIN,):  # no column of the table, so it is carried along for the order
            return Reading(self._convert(rows), hidden=own, position=position(self._own_cursor))
        rows = rows.drop(*own, WITHOUT_CURSOR)
        self.schemas[self.description] = rows.schema
        selects = [f"{statement} WHERE {predicate}" for predicate in predicates]
        copied = bulk.rows(spark, rows.schema, selects) if bulk else None
        return Reading(self._convert(rows if copied is None else copied), position=position(self.cursor))

    def _through_jdbc(self, spark: SparkSession, statement: str, predicates: Sequence[str]) -> DataFrame:
        return spark.read.jdbc(
            self.url,
            for_jdbc(statement),
            predicates=[for_jdbc(each) for each in predicates],
            properties=dict(self.properties),
        )

    def _statement(self, span: Span) -> str:
        conditions, items = Conditions(self.dialect, self.cursor), self._items()
        source = conditions.from_clause(self.relation, lower_bound(span), cursor_value(span.upto))
        if null_keys(span):
            is_one = f"CASE WHEN {conditions.is_among(null_keys(span))} THEN 1 ELSE 0 END"
            items.append(f"{is_one} AS {self.dialect.quote(WITHOUT_CURSOR)}")
        where = " AND ".join(tie_conditions(conditions, span))
        return f"(SELECT {', '.join(items)} FROM {source} fm{f' WHERE {where}' if where else ''}) fm"

    def _items(self) -> list[str]:
        """What is selected: the columns, and the cursor once more as the table orders it."""
        pairs = zip(self.cursor.columns, self._own_cursor.columns, strict=True)
        cursor = [f"{self.dialect.operand(each)} AS {self.dialect.quote(own.name)}" for each, own in pairs]
        return [*(column.item for column in self.columns), *cursor]

    def _predicates(self, span: Span, partitions: int) -> list[str]:
        """One for each task; the rows without a cursor are a task of their own."""
        conditions = Conditions(self.dialect, self._own_cursor)
        parts = [part.condition(conditions) for part in ranges(span, partitions)]
        if null_keys(span):
            parts.append(f"{conditions.is_null()} AND fm.{self.dialect.quote(WITHOUT_CURSOR)} = 1")
        return parts or [NEVER]

    @cached_property
    def _own_cursor(self) -> ResolvedCursor:
        """The cursor as the statement gives it beside the columns; what stood in for a null is in it already."""
        columns = [
            replace(column, name=f"{CURSOR}{place or ''}", fallbacks=())
            for place, column in enumerate(self.cursor.columns)
        ]
        return replace(self.cursor, columns=tuple(columns))

    def _convert(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        changed = {c.name: F.expr(c.arrival.format(quote(c.name))) for c in self.columns if c.arrival}
        return rows.withColumns(changed) if changed else rows


def position(cursor: ResolvedCursor) -> Column | None:
    """The cursor of a row in Spark, which orders rows as the table does; None for text in the table's own order."""
    from pyspark.sql import functions as F

    if any(column.has_own_order for column in cursor.columns):
        return None

    def value(column: CursorColumn) -> Column:
        return F.coalesce(*(F.col(quote(name)) for name in (column.name, *column.fallbacks)))

    return F.struct(*(value(column).alias(column.name) for column in cursor.columns))


def require_ordered(cursor: ResolvedCursor, types: Mapping[str, str]) -> None:
    """A number as text would order 9 above 10, and with it two versions of a row."""
    for column in cursor.columns:
        if column.kind in ("int", "decimal") and types.get(column.name) == "string":
            raise ConfigError(
                f"types: the cursor {column.name!r} is a number and cannot be read as string.",
                hint=f'types: {{{column.name}: "decimal(38,10)"}}',
            )


@dataclass(frozen=True)
class Range:
    """What lies above `low`, at or below `high`."""

    low: LowerBound
    high: CursorValue

    def condition(self, conditions: Conditions) -> str:
        """The range in SQL; the lowest one of a first run has no lower end, and takes what arrived there meanwhile."""
        upper = conditions.at_or_below(self.high)
        return upper if self.low.value is None else f"{conditions.above(self.low)} AND {upper}"


def ranges(span: Span, partitions: int) -> list[Range]:
    """The span in at most so many ranges, cut by the first column of its cursor; none of a span without a range."""
    if span.detail.get(VOID):
        return []
    low, high = lower_bound(span), cursor_value(span.upto) or ()
    ends = [*([] if is_small(span) else cuts(span, partitions)), high]
    starts = [LowerBound(low.value, low.inclusive), *(LowerBound(end) for end in ends[:-1])]
    return [Range(start, end) for start, end in zip(starts, ends, strict=True)]


def is_small(span: Span) -> bool:
    """Whether the look found so few rows that one task has read them before a second one has begun."""
    rows = span.detail.get("rows")
    return isinstance(rows, int) and rows <= ROWS_WORTH_SPLITTING


def is_worth_copying(span: Span, tasks: int, cores: int) -> bool:
    """Whether the span may have so many rows that so many tasks with Python workers read them sooner than JDBC."""
    rows = span.detail.get("rows")
    may_be_large = not isinstance(rows, int) or rows > ROWS_WORTH_COPYING
    return may_be_large and cores >= CORES_PER_COPY * tasks


def cuts(span: Span, parts: int) -> list[CursorValue]:
    """Values of the first column that cut the span."""
    lowest, highest = span.upto.parse(span.detail.get("lowest")), span.upto.value
    if not isinstance(span.upto, CompositeHWM):
        return [cursor_value(span.upto.set_value(cut)) or () for cut in between(lowest, highest, parts)]
    first = span.upto.kinds[0](span.upto.name)
    return [cursor_value(first.set_value(cut)) or () for cut in between(lowest[0], highest[0], parts)]


def between(low: Any, high: Any, parts: int) -> list[Any]:  # noqa: ANN401 - any kind of cursor
    """Values that cut low..high into so many parts of one width; none where values have no distance (text)."""
    if isinstance(low, (int, Decimal)):
        width = EXACT.subtract(Decimal(high), Decimal(low)) if isinstance(low, Decimal) else high - low
        steps = [low + int(width) * part // parts for part in range(1, parts)]
    elif isinstance(low, date):  # a datetime is one too
        unit = timedelta(microseconds=1) if isinstance(low, datetime) else timedelta(days=1)
        steps = [low + (high - low) // unit * part // parts * unit for part in range(1, parts)]
    else:
        steps = []
    return sorted({step for step in steps if low <= step < high})


def partitions_for(spark: SparkSession, wanted: int | None) -> int:
    """As the user wants, else one per core."""
    return min(cores(spark), MOST_PARTITIONS) if wanted is None else wanted


def tie_conditions(conditions: Conditions, span: Span) -> list[str]:
    """What leaves out rows at both ends of the span: those that were read before, and those that came since."""
    ties, end = conditions.not_read_before(lower_bound(span)), cursor_value(span.upto)
    if ENDS in span.detail and end is not None:
        ties.append(conditions.only_keys_at(end, keys_from_json(span.detail[ENDS])))
    return ties


def null_keys(span: Span) -> tuple[CursorValue, ...]:
    """Keys of the rows without a cursor that belong to the span."""
    return keys_from_json(span.detail.get(NULLS))
