"""Reading some rows again: those so close below the mark that one which came late may stand among them.

The mark goes to the true maximum all the same. Whether anything came late is told by the number of rows in the window;
where that is beyond what a look counts, the window is read again with the next new row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError
from floodmark.hwm import CompositeHWM
from floodmark.probes.tables import Bounds, Ceiling, Low, Point
from floodmark.sources.contract import Request, Sight
from floodmark.sources.table_cursor import Cursor
from floodmark.sources.table_looking import Beginning, Looker
from floodmark.sources.table_marks import point_of
from floodmark.sources.table_safety import TIMES, Guarded
from floodmark.sources.table_ties import End

if TYPE_CHECKING:
    from floodmark.hwm import HWM

LAG = "lag"
"""Under which the record keeps how many rows the window had."""
DAY_SECONDS = 86_400


@dataclass(frozen=True)
class Again(Looker):
    """A look that begins below the mark."""

    def look(self, mark: HWM[Any] | None, request: Request) -> Sight:
        """The window as a whole and what lies above it: part of it would be read for ever."""
        self._require_possible()
        has_mark = mark is not None and mark.value is not None
        return super().look(mark, replace(request, max_rows=None) if has_mark else request)

    def _beginning(self, mark: HWM[Any] | None, request: Request) -> Beginning | None:
        beginning = super()._beginning(mark, request)
        if beginning is None or beginning.after is None:
            return beginning
        return Beginning(beginning.after, self._before(beginning.after))

    def _end(self, wanted: Point, low: Low, ceilings: tuple[Ceiling, ...]) -> End | None:
        """What comes later at the last value is in the next window."""
        return End(point_of(self._marks.found(wanted)) or ())

    def _sight(self, beginning: Beginning, guarded: Guarded, request: Request) -> Sight:
        sight = super()._sight(beginning, guarded, request)
        if sight.span is None or self._is_known(beginning, guarded.bounds, request):
            return replace(sight, span=None, expected_rows=0)
        upto = point_of(sight.span.upto)
        window = self.probe.bounds(self._before(sight.span.upto), None, (Ceiling(upto),)) if upto else guarded.bounds
        return replace(sight, extras={**sight.extras, LAG: window.rows})

    def _is_known(self, beginning: Beginning, bounds: Bounds, request: Request) -> bool:
        """Whether there is nothing above the mark, and nothing more below it than there was."""
        if beginning.after is None or self._marks.found(bounds.top).value != beginning.after.value:
            return False
        return bounds.rows is None or bounds.rows == request.extras.get(LAG)

    def _before(self, mark: HWM[Any]) -> Low:
        first: HWM[Any] = mark.kinds[0](mark.name) if isinstance(mark, CompositeHWM) else mark
        value: Any = (mark.value or ())[0] if isinstance(mark, CompositeHWM) else mark.value
        seconds, is_day = self.cursor.safety_seconds, self.probe.cursor().columns[0].kind == "date"
        back = timedelta(days=math.ceil(seconds / DAY_SECONDS)) if is_day else timedelta(seconds=seconds)
        return Low(point_of(first.set_value(value - back)), inclusive=True)

    def _require_possible(self) -> None:
        first = self.probe.cursor().columns[0]
        if first.kind not in (*TIMES, "date"):
            raise ConfigError(
                f"safety: lag needs a cursor that is a time, and {first.name} is {first.type}.",
                hint="read by a time, or choose safety: fence",
            )
        if not self.is_whole:
            raise ConfigError(
                "safety: lag reads below the mark, and the query begins at :after.", hint="take :after and :upto out"
            )


def looker_for(cursor: Cursor) -> type[Looker]:
    """How a cursor is looked at by its safety."""
    return Again if cursor.safety_way == "lag" else Looker


def repeated_by(cursor: Cursor, key: Sequence[str]) -> tuple[str, ...]:
    """The columns by which a row that is read again is known; none if no row is. Raises ConfigError without a key."""
    if cursor.safety_way != "lag":
        return ()
    if not key:
        raise ConfigError("safety: lag reads some rows again, and nothing tells them apart.", hint="name the key: [id]")
    return tuple(dict.fromkeys((*key, *cursor.columns)))
