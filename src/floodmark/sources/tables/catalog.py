"""Any table or view that Spark has a name for, as a source: by a cursor, or as whole snapshots.

Hive, Unity Catalog, Iceberg, Delta Sharing, a JDBC catalog: whoever keeps the table, Spark asks and reads, so nothing
but the name is needed. Such a table has no version that could be a mark here. What it knows instead is a column that
grows, read with an overlap (`safety: {lag: …}`), or nothing at all: then it is compared as a whole (`snapshots`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import dropwhile
from typing import TYPE_CHECKING, Any, Literal

from floodmark.errors import ConfigError, SourceUnreadable, UnknownKind
from floodmark.fields import ColumnNames
from floodmark.locations import quote
from floodmark.probes.tables import (
    Column,
    CursorColumn,
    CursorValue,
    Kind,
    LowerBound,
    RequestedCursor,
    ResolvedCursor,
    TableBounds,
    UpperBound,
)
from floodmark.probes.tables.dialects import Ansi
from floodmark.probes.tables.queries import Conditions, SqlProbe
from floodmark.probes.tables.relation import Catalog, CursorFinder, Relation, kind_by_type
from floodmark.sources.contract import Reading, StoredRows
from floodmark.sources.tables import TableSource
from floodmark.sources.tables.cursor import Cursor
from floodmark.sources.tables.reading import NEVER, null_keys, position, ranges, tie_conditions
from floodmark.sources.tables.snapshots import SnapshotReader
from floodmark.spark.table_files import read_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from floodmark.hwm import HWM, Span
    from floodmark.sources.contract import Request, Session, Sight


KINDS: dict[str, Kind] = {
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "int",
    "decimal": "decimal",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "string": "text",
}
FINDER = CursorFinder(kind_by_type(KINDS), ", ".join(KINDS))
DETAILS = "# Detailed Table Information"
"""Below it stands what a table is; above it are its columns, which may have any name."""
MOMENT = r"yyyy-MM-dd\'T\'HH:mm:ss.SSSSSSXXX"
"""A moment with its offset: the same instant in whatever zone a session is."""
KEY_FORMAT = f"map('timeZone', 'UTC', 'timestampFormat', '{MOMENT}', 'ignoreNullFields', 'false')"


@dataclass(frozen=True)
class Table(TableSource):
    """Rows of a table or view of Spark's catalog, named as SQL names it: `catalog.schema.table`. Every look asks Spark.

    With a `cursor` the rows above its mark are read. `Cursor("day", safety={"lag": "1d"})` reads the last day again, to
    find what came late; a sink leaves out what it has by `key` and cursor, and of rows that share both one is taken.
    With `snapshot` all rows are compared by `key` with what the job's first sink has, and those that are new or changed
    are read, with the moment as `snapshot_at`. A key that is gone is left alone, or with `absent="delete"` comes once
    more, `_deleted`. A snapshot without any row is refused then, unless `allow_empty`.

    >>> Table("main.shop.orders", cursor="updated_at").snapshot
    False
    """

    table: str | None = None
    cursor: str | Sequence[str] | Cursor = ""
    key: ColumnNames = ColumnNames()
    snapshot: bool = False
    absent: Literal["keep", "delete"] = "keep"
    allow_empty: bool = False
    name: str = "table"
    _stored: StoredRows | None = field(default=None, repr=False, compare=False)

    query = None

    def __post_init__(self) -> None:
        if self.absent not in ("keep", "delete"):
            raise UnknownKind("absent", self.absent, known=("keep", "delete"))
        if not self.table:
            raise ConfigError("a table source has no table.", hint="name it as SQL does: catalog.schema.table")
        if not self.snapshot:
            self.require_sound()
            self._require_no_snapshot_options()
        elif self.cursor or not self.key:
            what = "takes no cursor" if self.cursor else "is compared by key, and none is named"
            raise ConfigError(f"a snapshot of {self.table} {what}.", hint="give `snapshot: true` and `key: [...]`")

    def fingerprint(self, session: Session) -> str:
        if not self.snapshot:
            return super().fingerprint(session)
        return f"{self.description(session)} as snapshots by {', '.join(self.key)}"

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        """One pass over what lies at or above the lower bound; of a snapshot, over the whole table."""
        probe = self.probe(session)
        probe.refresh()
        if not self.snapshot:
            return super().look(mark, request, session)
        with probe.failing_as_unreadable():
            return self._snapshots(probe).look(mark, request)

    def read(self, spark: SparkSession, span: Span) -> Reading:
        """The rows of the span, lazily."""
        probe = self.probe(lambda: spark)
        with probe.failing_as_unreadable():
            return self._snapshots(probe).read(span) if self.snapshot else self._read_span(probe, span)

    def without_rows(self, spark: SparkSession) -> Reading:
        """The columns that the table has now."""
        probe = self.probe(lambda: spark)
        with probe.failing_as_unreadable():
            if self.snapshot:
                return Reading(self._snapshots(probe).every_row(None))
            return Reading(probe.rows(), position=position(probe.cursor()))

    def probe(self, session: Session) -> CatalogProbe:
        return CatalogProbe(self.relation, self._request(), session)

    def takes_snapshots(self) -> bool:
        """Whether it gives all rows of the table unless it is told what is known of them."""
        return self.snapshot

    def compared_with(self, stored: StoredRows) -> Table:
        """The source as it gives only what differs from these rows."""
        return replace(self, _stored=stored)

    def repeats_by(self) -> tuple[str, ...]:
        return () if self.snapshot else super().repeats_by()

    def restates(self) -> str | None:
        return None if self.snapshot else super().restates()

    @cached_property
    def relation(self) -> Relation:
        return Relation((self.table or "").replace("`", '"'))

    def _request(self) -> RequestedCursor:
        return RequestedCursor((), tuple(self.key)) if self.snapshot else self.own_cursor.request(self.key)

    def _snapshots(self, probe: CatalogProbe) -> SnapshotReader:
        is_delete = self.absent == "delete"
        return SnapshotReader(
            self.relation.entity, self.name, probe.rows(), tuple(self.key), self._stored, is_delete, self.allow_empty
        )

    def _read_span(self, probe: CatalogProbe, span: Span) -> Reading:
        conditions = Conditions(SPARK_SQL, probe.cursor())
        parts = [part.condition(conditions) for part in ranges(span, 1)] or [NEVER]
        wanted = " AND ".join([*(f"({part})" for part in parts), *tie_conditions(conditions, span)])
        if null_keys(span):
            wanted = f"({wanted}) OR ({conditions.is_null()} AND {conditions.is_among(null_keys(span))})"
        rows, repeats = probe.rows().where(wanted), list(self.repeats_by())
        return Reading(rows.dropDuplicates(repeats) if repeats else rows, position=position(probe.cursor()))

    def _require_no_snapshot_options(self) -> None:
        if self.absent == "delete" or self.allow_empty:
            raise ConfigError(
                "`absent` and `allow_empty` speak of whole snapshots: a row that is not above the mark is not gone.",
                hint="leave them out, or read with `snapshot: true`",
            )


@dataclass(frozen=True)
class SparkSql(Ansi):
    """How Spark itself spells names and values."""

    mark: str = "`"

    def literal(self, value: str | None, column: CursorColumn) -> str:
        return f"CAST({'NULL' if value is None else text_literal(value)} AS {column.type})"

    def pack(self, expressions: Sequence[str]) -> str:
        """A key as JSON: of any type, the same in every zone."""
        parts = ", ".join(f"'k{place}', {each}" for place, each in enumerate(expressions))
        return f"to_json(named_struct({parts}), {KEY_FORMAT})"

    def pack_literal(self, texts: CursorValue) -> str:
        return text_literal(texts[0])

    def unpack(self, value: object, width: int) -> CursorValue | None:
        return None if None in json.loads(str(value)).values() else (str(value),)

    def page(self, offset: int, rows: int) -> str:
        return f"LIMIT {rows} OFFSET {offset}"

    def truth(self, value: bool) -> str:
        return "TRUE" if value else "FALSE"

    def ahead(self, column: CursorColumn, seconds: float) -> str:
        """By the clock of Spark's driver; a time without a zone is nobody's clock."""
        if column.kind not in ("timestamptz", "date"):
            raise ConfigError(
                f"max_future and delay go by a clock, and the cursor {column.name!r} is {column.type}.",
                hint="leave max_future and delay out",
            )
        return f"CAST(current_timestamp() + make_dt_interval(0, 0, 0, {seconds:.6f}) AS {column.type})"

    def text(self, value: str, column: CursorColumn) -> str:
        """A value of the cursor as its mark takes it."""
        return f"date_format({value}, '{MOMENT}')" if column.kind == "timestamptz" else f"CAST({value} AS STRING)"


SPARK_SQL = SparkSql()


@dataclass(frozen=True)
class CatalogProbe(SqlProbe):
    """One table or view of Spark's catalog; every answer is one aggregate over it. A probe serves one look or read."""

    relation: Relation
    requested: RequestedCursor
    session: Session = field(repr=False)

    @property
    def dialect(self) -> SparkSql:
        return SPARK_SQL

    def place(self) -> str:
        return "table"

    def rows(self) -> DataFrame:
        """The whole table, known as `fm` to conditions; the same rows for every question of a probe."""
        return self._rows

    @cached_property
    def _rows(self) -> DataFrame:
        location = self._delta_location()
        if location is None:
            return self.session().table(self._sql_name).alias("fm")
        return read_table(self.session(), location).alias("fm")

    def _delta_location(self) -> str | None:
        """Where it lies, if it is a Delta table: a small one on a local disk is read by its files.

        Whatever a catalog does not tell is left to Spark, which has the words for what is wrong with a table.
        """
        from pyspark.errors import AnalysisException

        try:
            described = self.session().sql(f"DESCRIBE TABLE EXTENDED {self._sql_name}").collect()
        except AnalysisException:
            return None
        details = {row[0]: row[1] for row in dropwhile(lambda row: row[0] != DETAILS, described)}
        is_table = details.get("Type") in ("MANAGED", "EXTERNAL")
        return details.get("Location") if is_table and details.get("Provider") == "delta" else None

    def refresh(self) -> None:
        """Spark remembers which files a table has; others add some."""
        with self.failing_as_unreadable():
            self.session().catalog.refreshTable(self._sql_name)

    def columns(self) -> tuple[Column, ...]:
        with self.failing_as_unreadable():
            fields = self.rows().schema.fields
        return tuple(
            Column(
                each.name,
                "decimal" if each.dataType.typeName().startswith("decimal") else each.dataType.simpleString(),
                getattr(each.dataType, "precision", None),
                getattr(each.dataType, "scale", None),
            )
            for each in fields
        )

    def cursor(self) -> ResolvedCursor:
        return self._cursor

    @cached_property
    def _cursor(self) -> ResolvedCursor:
        found = FINDER.cursor(self.requested, self.columns(), Catalog(), f"table {self.relation.entity}")
        return replace(found, columns=tuple(self._with_size(each) for each in found.columns))

    def _with_size(self, column: CursorColumn) -> CursorColumn:
        """A literal that is cast to `decimal` alone would have no places behind the point."""
        declared = {each.name: each.declaration for each in self.columns()}
        return replace(column, type=declared[column.name])

    def bounds(self, low: LowerBound, max_rows: int | None, upper: Sequence[UpperBound] = ()) -> TableBounds:
        """One pass over what lies at or above the lower bound; over all only where nothing lies there."""
        conditions = Conditions(SPARK_SQL, self.cursor())
        inside = _inside(conditions, low, upper)
        held_back = [
            f"{_inside(conditions, low, upper[:place])} AND NOT ({conditions.under(bound)})"
            for place, bound in enumerate(upper)
        ]
        ends = [f"max({self._value}) FILTER (WHERE {conditions.has_value()})"]
        ends += [f"{which}({self._value}) FILTER (WHERE {inside})" for which in ("min", "max")]
        counted = [inside, conditions.is_null(), *held_back]
        answer = self._aggregate(ends, counted, self._reach(conditions, low))
        highest, lowest, top = (self._texts(each) for each in answer[:3])
        rows, nulls, *held = map(int, answer[3:])
        if highest is None and low.value is not None:
            highest = self._texts(self._aggregate(ends[:1], [], "TRUE")[0])
        cut = self._cut(inside, max_rows) if max_rows and rows > max_rows else None
        return TableBounds(highest, lowest, top, rows, nulls, cut, tuple(held))

    def neighbours(
        self, value: CursorValue, low: LowerBound, upper: Sequence[UpperBound] = ()
    ) -> tuple[CursorValue | None, CursorValue | None]:
        conditions = Conditions(SPARK_SQL, self.cursor())
        ends = [
            f"max({self._value}) FILTER (WHERE {conditions.below(value)})",
            f"min({self._value}) FILTER (WHERE {conditions.beyond(value)})",
        ]
        below, above = self._aggregate(ends, [], _inside(conditions, low, upper))
        return self._texts(below), self._texts(above)

    def fetch(self, sql: str) -> list[Row]:
        with self.failing_as_unreadable():
            return self.session().sql(sql).collect()

    @contextmanager
    def failing_as_unreadable(self) -> Iterator[None]:
        """What Spark cannot do with the table, in its own words."""
        try:
            yield
        except Exception as error:
            if not type(error).__module__.startswith(("pyspark.", "py4j.")):
                raise
            reason = str(error).strip().partition("\n")[0]
            raise SourceUnreadable(f"table {self.relation.entity}", reason=reason) from error

    @property
    def _sql_name(self) -> str:
        return self.relation.sql(quote, {})

    @property
    def _value(self) -> str:
        """The cursor as one value that is ordered from left to right."""
        operands = Conditions(SPARK_SQL, self.cursor()).operands()
        return f"struct({', '.join(f'{each} AS c{place}' for place, each in enumerate(operands))})"

    def _reach(self, conditions: Conditions, low: LowerBound) -> str:
        """What a look has to see, by the first column alone: that much a table can be pruned by."""
        if low.value is None:
            return "TRUE"
        first = replace(self.cursor(), columns=self.cursor().columns[:1])
        above = Conditions(SPARK_SQL, first).above(LowerBound(low.value[:1], inclusive=True))
        return f"({above}) OR {conditions.is_null()}"

    def _aggregate(self, ends: Sequence[str], counted: Sequence[str], where: str) -> Sequence[Any]:
        items = [f"{each} AS e{place}" for place, each in enumerate(ends)]
        items += [f"count_if({each}) AS n{place}" for place, each in enumerate(counted)]
        texts = [f"{self._text_array(f'e{place}')}" for place in range(len(ends))]
        counts = [f"n{place}" for place in range(len(counted))]
        with self.failing_as_unreadable():
            return self.rows().where(where).selectExpr(*items).selectExpr(*texts, *counts).collect()[0]

    def _cut(self, inside: str, max_rows: int) -> CursorValue | None:
        """Where so many rows end, without a second look at those before them."""
        from pyspark.sql import functions as F

        order = [F.expr(each) for each in Conditions(SPARK_SQL, self.cursor()).operands()]
        with self.failing_as_unreadable():
            sorted_rows = self.rows().where(inside).orderBy(*order).selectExpr(f"{self._value} AS e")
            found = sorted_rows.offset(max_rows - 1).limit(1).selectExpr(self._text_array("e")).collect()
        return self._texts(found[0][0]) if found else None

    def _text_array(self, value: str) -> str:
        columns = self.cursor().columns
        texts = [SPARK_SQL.text(f"{value}.c{place}", column) for place, column in enumerate(columns)]
        return f"IF({value} IS NULL, NULL, array({', '.join(texts)}))"

    def _texts(self, value: Any) -> CursorValue | None:  # noqa: ANN401 - what Spark made of an array
        return None if value is None else tuple(map(str, value))


def _inside(conditions: Conditions, low: LowerBound, upper: Sequence[UpperBound]) -> str:
    """Above the lower bound and under these upper ones."""
    return " AND ".join([conditions.above(low), *map(conditions.under, upper)])


def text_literal(value: str) -> str:
    """A text as Spark's SQL takes it, whatever is in it."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
