"""Cutting a span into ranges of its cursor that are read side by side: together the whole span, no row in two."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from floodmark.hwm import CompositeHWM
from floodmark.hwm.numbers import EXACT
from floodmark.probes.cursor_conditions import above, at_or_below, only_among, unseen
from floodmark.probes.cursor_sql import Dialect
from floodmark.probes.tables import Cursor, Low, Point
from floodmark.sources.table_marks import ENDS, NULLS, VOID, keys_from, low_of, point_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.hwm import Span

ROWS_WORTH_SPLITTING = 10_000
MOST_PARTITIONS = 8
"""Each partition is a connection to somebody's database."""


@dataclass(frozen=True)
class Range:
    """What lies above `low`, at or below `high`."""

    low: Low
    high: Point

    def condition(self, dialect: Dialect, cursor: Cursor) -> str:
        """The range in SQL; the lowest one of a first run has no lower end, and takes what arrived there meanwhile."""
        upper = at_or_below(dialect, cursor, self.high)
        return upper if self.low.value is None else f"{above(dialect, cursor, self.low)} AND {upper}"


def ranges(span: Span, partitions: int) -> list[Range]:
    """The span in at most so many ranges, cut by the first column of its cursor; none of a span without a range."""
    if span.detail.get(VOID):
        return []
    low, rows, high = low_of(span), span.detail.get("rows"), point_of(span.upto) or ()
    is_small = isinstance(rows, int) and rows <= ROWS_WORTH_SPLITTING
    ends = [*([] if is_small else cuts(span, partitions)), high]
    starts = [Low(low.value, low.inclusive), *(Low(end) for end in ends[:-1])]
    return [Range(start, end) for start, end in zip(starts, ends, strict=True)]


def cuts(span: Span, parts: int) -> list[Point]:
    """Values of the first column that cut the span."""
    lowest, highest = span.upto.parse(span.detail.get("lowest")), span.upto.value
    if not isinstance(span.upto, CompositeHWM):
        return [point_of(span.upto.set_value(cut)) or () for cut in between(lowest, highest, parts)]
    first = span.upto.kinds[0](span.upto.name)
    return [point_of(first.set_value(cut)) or () for cut in between(lowest[0], highest[0], parts)]


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


def partitions_for(spark: SparkSession, asked: int | None) -> int:
    """As asked, else one per core as far as the session's settings tell."""
    if asked is not None:
        return asked
    return min(int(spark.conf.get("spark.sql.shuffle.partitions") or 1), MOST_PARTITIONS)


def tie_conditions(dialect: Dialect, cursor: Cursor, span: Span) -> list[str]:
    """What leaves out rows at both ends of the span: those that were read before, and those that came since."""
    conditions, end = unseen(dialect, cursor, low_of(span)), point_of(span.upto)
    if ENDS in span.detail and end is not None:
        conditions.append(only_among(dialect, cursor, end, keys_from(span.detail[ENDS])))
    return conditions


def null_keys(span: Span) -> tuple[Point, ...]:
    """Keys of the rows without a cursor that belong to the span."""
    return keys_from(span.detail.get(NULLS))
