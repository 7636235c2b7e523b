"""A source that is a list of rows, in which a crash or a failure is a row like any other."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from floodmark.hwm import HWM, ColumnIntHWM, Span
from floodmark.sources.contract import Immutable, Reading, Request, Session, Sight

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Accident(Enum):
    """What may stand between the rows."""

    CRASH = "kills this process with SIGKILL when its span is read"
    FAIL = "raises InjectedFailure when its span is read, until the source is healed"


CRASH, FAIL = Accident.CRASH, Accident.FAIL
Row: TypeAlias = Mapping[str, Any]


class InjectedFailure(Exception):
    """The failure that a test asked for: no error of Floodmark's, as a user's own would be."""


@dataclass(frozen=True)
class RowsSource(Immutable):
    """The rows of a list that the test holds: append to it between runs, and the next run finds them.

    The mark is the number of rows delivered. CRASH and FAIL are no rows: they strike when a span that holds the row
    behind them is read; at the end of the list, with the row before them.
    """

    rows: list[Row | Accident]
    schema: str | StructType | None = None
    name: str = "rows"

    def fingerprint(self, session: Session) -> str:
        """The name alone: the list may grow."""
        return f"rows {self.name}"

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        """The rows behind the mark; `--from` is the number of rows to leave out."""
        delivered = int(request.start) if request.start else (mark.value or 0) if mark else 0
        there = len(self._real())
        upto = there if request.max_rows is None else min(there, delivered + max(request.max_rows, 1))
        if upto <= delivered:
            return Sight(None)
        after = ColumnIntHWM(self.name, delivered) if delivered else None
        return Sight(Span(after, ColumnIntHWM(self.name, upto)), expected_rows=upto - delivered)

    def read(self, spark: SparkSession, span: Span) -> Reading:
        """The span's rows, if no CRASH or FAIL stands among them."""
        from pyspark.sql import functions as sf

        after, upto = span.after.value if span.after else 0, span.upto.value
        self._strike(after, upto)
        found = self._real()[after:upto]
        return Reading(self._frame(spark, found), position=sf.monotonically_increasing_id())

    def without_rows(self, spark: SparkSession) -> Reading:
        """The declared columns, or those of all rows."""
        return Reading(self._frame(spark, self._real()).limit(0))

    def heal(self) -> None:
        """Take every FAIL out of the list: what was broken is mended now."""
        self.rows[:] = [row for row in self.rows if row is not FAIL]

    def _frame(self, spark: SparkSession, found: list[Row]) -> DataFrame:
        if self.schema is not None:
            return spark.createDataFrame([dict(row) for row in found], self.schema)
        columns = list(dict.fromkeys(name for row in found for name in row))  # from dicts, Spark would sort them
        return spark.createDataFrame([tuple(row.get(name) for name in columns) for row in found], columns)

    def _real(self) -> list[Row]:
        return [row for row in self.rows if not isinstance(row, Accident)]

    def _strike(self, after: int, upto: int) -> None:
        delivered, last = 0, len(self._real())
        for row in self.rows:
            if not isinstance(row, Accident):
                delivered += 1
            elif after <= min(delivered, last - 1) < upto:
                self._happen(row, delivered)

    def _happen(self, accident: Accident, delivered: int) -> None:
        if accident is CRASH:
            os.kill(os.getpid(), signal.SIGKILL)
        raise InjectedFailure(f"the list of rows '{self.name}' fails after row {delivered}")
