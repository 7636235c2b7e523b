"""How far a span goes into what lies above the mark, by the distance between values: no row is counted for it."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from floodmark.hwm import ColumnHWM


def share_ahead(lowest: ColumnHWM[Any], upto: ColumnHWM[Any], top: ColumnHWM[Any]) -> float | None:
    """The share of lowest..top that lies above `upto`; None where values have no distance (text) or are all one."""
    low, here, high = (_first(mark.value) for mark in (lowest, upto, top))
    whole = _distance(low, high)
    left = _distance(here, high)
    return None if not whole or left is None else left / whole


def _first(value: Any) -> Any:  # noqa: ANN401 - a value of any kind of cursor
    return value[0] if isinstance(value, tuple) else value


def _distance(low: object, high: object) -> float | None:
    if isinstance(low, (int, Decimal)) and isinstance(high, (int, Decimal)):
        return float(Decimal(high) - Decimal(low))
    if isinstance(low, datetime) and isinstance(high, datetime):
        return (high - low).total_seconds()
    if isinstance(low, date) and isinstance(high, date):
        return (high - low) / timedelta(days=1)
    return None
