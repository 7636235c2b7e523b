"""How far a table is read: from a mark and one probe to the span of the next batch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from floodmark.errors import ConfigError, CursorNull, MarkInvalid, SourceRegressed, SourceUnreadable, UnknownKind
from floodmark.hwm import ColumnHWM, Span
from floodmark.probes.cursor_query import Relation
from floodmark.probes.tables import MARKS, Bounds, Low, TableProbe
from floodmark.probes.tables import Cursor as Seen
from floodmark.sources.contract import Request, Sight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floodmark.hwm import HWM, Json

OnNull = Literal["fail", "exclude"]
LATER = "comes with a later part of Floodmark"


@dataclass(frozen=True)
class Cursor:
    """The column that grows. `start` is "earliest", "latest" (only what comes) or a value, which is read too.

    Rows are read above the mark and up to the highest value that one probe saw. So the column has to be unique, or at
    least no row may appear later at or below a value that was read: `safety` is "none" now, and says just that. A row
    that commits late with a lower value (two writers at once) is missed.
    """

    column: str | Sequence[str]
    start: str | int = "earliest"
    on_null: OnNull = "fail"
    safety: str = "none"

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) and len(self.column) != 1:
            raise ConfigError(f"cursor: a cursor of {len(self.column)} columns {LATER}.", hint="name one column")
        if self.on_null not in get_args(OnNull):
            raise UnknownKind("on_null", self.on_null, known=get_args(OnNull))
        if self.safety != "none":
            raise ConfigError(f"cursor: safety {self.safety!r} {LATER}.", hint="leave it out, or write safety: none")

    @property
    def name(self) -> str:
        """The one column."""
        return self.column if isinstance(self.column, str) else self.column[0]

    @classmethod
    def of(cls, given: str | Cursor) -> Cursor:
        """The cursor, from its column's name alone too."""
        cursor = cls(given) if isinstance(given, str) else given
        if not cursor.name:
            raise ConfigError("a table is read by a cursor.", hint="name a column that grows, as in cursor: id")
        return cursor


@dataclass(frozen=True)
class Looker:
    """One look at one table. `is_whole` says that the probe sees all of it, also what lies at or below the mark."""

    source: str
    name: str
    entity: str
    cursor: Cursor
    probe: TableProbe
    is_whole: bool = True

    def look(self, mark: HWM[Any] | None, request: Request) -> Sight:
        """The span above the mark, the user's start, or the beginning. Raises CursorNull, SourceRegressed."""
        start = request.start if request.start is not None else self._first(mark, request)
        if start == "latest":
            return self._nothing_before()
        if start is not None and start != "earliest":
            return self._span(None, Low(str(self._mark(start).dump()), inclusive=True), request.max_rows)
        after = self._mark(mark.dump()) if mark is not None and mark.value is not None else None
        low = Low(None if after is None else str(after.dump()))
        return self._span(after, low, request.max_rows)

    def _first(self, mark: HWM[Any] | None, request: Request) -> str | int | None:
        return self.cursor.start if mark is None and not request.whole else None

    def _nothing_before(self) -> Sight:
        """A mark at the table's end by a batch without rows; of an empty table too, since all that comes is new."""
        bounds = self.probe.bounds(Low(), None)
        return Sight(Span(None, self._found(bounds.highest), {"void": True}), expected_rows=0)

    def _span(self, after: ColumnHWM[Any] | None, low: Low, max_rows: int | None) -> Sight:
        bounds = self.probe.bounds(low, max_rows)
        held, reason = self._left_out(bounds)
        highest = self._found(bounds.highest)
        if after is not None and self.is_whole:
            self._require_not_below(after, highest)
        if bounds.lowest is None:
            return Sight(None, held_back=held, held_reason=reason, expected_rows=0)
        upto, rows = (highest, bounds.rows) if bounds.cut is None else (self._found(bounds.cut), max_rows)
        detail: dict[str, Json] = {"lowest": self._found(bounds.lowest).dump(), "rows": rows}
        if low.inclusive:
            detail["from"] = low.value
        return Sight(Span(after, upto, detail), held_back=held, held_reason=reason, expected_rows=rows)

    def _left_out(self, bounds: Bounds) -> tuple[int, str | None]:
        if not bounds.nulls:
            return 0, None
        if self.cursor.on_null == "fail":
            raise CursorNull(self.source, column=self.cursor.name, rows=bounds.nulls)
        return bounds.nulls, f"{bounds.nulls} rows have no {self.cursor.name} and are left out (on_null: exclude)"

    def _require_not_below(self, after: ColumnHWM[Any], highest: ColumnHWM[Any]) -> None:
        if highest.value is None or not highest.reaches(after.value):
            shown = "no row at all" if highest.value is None else str(highest.show())
            raise SourceRegressed(self.source, mark=str(after.show()), highest=shown)

    def _mark(self, value: object) -> ColumnHWM[Any]:
        """A mark of this column's kind at a value that a user or a store gave."""
        seen = self.probe.cursor()
        mark = MARKS[seen.kind](self.name, value, entity=self.entity, expression=seen.column)
        has_zone = getattr(mark.value, "tzinfo", None) is not None
        if (
            mark.value is not None
            and seen.kind in ("timestamp", "timestamptz")
            and has_zone != (seen.kind == "timestamptz")
        ):
            needs = "needs a time zone" if seen.kind == "timestamptz" else "has no time zone"
            raise MarkInvalid(mark.kind, value, reason=f"the column {seen.column!r} is {seen.type}, so it {needs}")
        return mark

    def _found(self, text: str | None) -> ColumnHWM[Any]:
        """A mark at what the database said."""
        try:
            return self._mark(text)
        except MarkInvalid as error:
            what = f"the cursor {self.cursor.name!r} holds {text!r}, which no mark can follow ({error.reason})"
            raise SourceUnreadable(self.source, reason=what, hint="mend the row, or leave it out by a query") from error


def low_of(span: Span) -> Low:
    """Where a span begins, as a statement needs it."""
    if "from" in span.detail:
        return Low(str(span.detail["from"]), inclusive=True)
    return Low(None if span.after is None or span.after.value is None else str(span.after.dump()))


def fingerprint(place: str, entity: str, seen: Seen) -> str:
    """Which table or query, by which column of which type."""
    return f"{place} {entity} by {seen.column} ({seen.type})"


def entity(relation: Relation) -> str:
    """A table by its name, a query by its hash: which rows a mark speaks of."""
    if relation.table is not None:
        return relation.table
    return f"query {hashlib.sha256((relation.query or '').encode()).hexdigest()[:12]}"
