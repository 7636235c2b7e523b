"""Cutting a span into ranges of its cursor that are read side by side: together the whole span, no row in two."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from floodmark.hwm.numbers import EXACT
from floodmark.probes.cursor_sql import Dialect, above, at_or_below
from floodmark.probes.tables import Cursor, Low
from floodmark.sources.table_cursor import low_of

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
    high: str

    def condition(self, dialect: Dialect, cursor: Cursor) -> str:
        """The range in SQL; the lowest one of a first run has no lower end, and takes what arrived there meanwhile."""
        upper = at_or_below(dialect, cursor, self.high)
        return upper if self.low.value is None else f"{above(dialect, cursor, self.low)} AND {upper}"


def ranges(span: Span, partitions: int) -> list[Range]:
    """The span in at most so many ranges."""
    low, rows = low_of(span), span.detail.get("rows")
    is_small = isinstance(rows, int) and rows <= ROWS_WORTH_SPLITTING
    lowest = span.upto.parse(span.detail.get("lowest"))
    cuts = [] if is_small else between(lowest, span.upto.value, partitions)
    ends = [str(span.upto.set_value(cut).dump()) for cut in cuts] + [str(span.upto.dump())]
    starts = [low, *(Low(end) for end in ends[:-1])]
    return [Range(start, end) for start, end in zip(starts, ends, strict=True)]


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
