"""Marks on a column of a table: whole numbers, decimals, dates, timestamps."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar, TypeVar

from floodmark.errors import MarkInvalid
from floodmark.hwm.kinds import register
from floodmark.hwm.moments import database_text, fixed_offset, split_moment
from floodmark.hwm.numbers import EXACT, exact_decimal, shown_int, whole_number
from floodmark.hwm.ordered import OrderedHWM

if TYPE_CHECKING:
    from floodmark.hwm.mark import Json

T = TypeVar("T")


class ColumnHWM(OrderedHWM[T]):
    """A mark on a column; `entity` is its table, also spelled `source`, and `expression` the column."""

    entity_alias: ClassVar[str | None] = "source"

    def means_none(self, value: object) -> bool:
        return value is None or (isinstance(value, str) and value.strip().lower() == "null")


@register
class ColumnIntHWM(ColumnHWM[int]):
    """A whole number of any size, which never passes through a float."""

    kind: ClassVar[str] = "column_int"

    def read(self, value: object) -> int:
        return whole_number(self.kind, value)

    def shown(self, value: int) -> Json:
        return shown_int(value)

    def shift(self, value: int, by: object, sign: int) -> int:
        return value + sign * whole_number(self.kind, by)


@register
class ColumnDecimalHWM(ColumnHWM[Decimal]):
    """An exact decimal, kept as text."""

    kind: ClassVar[str] = "column_decimal"

    def read(self, value: object) -> Decimal:
        return exact_decimal(self.kind, value)

    def write(self, value: Decimal) -> Json:
        return format(value, "f")

    def shift(self, value: Decimal, by: object, sign: int) -> Decimal:
        operand = exact_decimal(self.kind, by)
        return EXACT.add(value, operand) if sign > 0 else EXACT.subtract(value, operand)


@register
class ColumnDateHWM(ColumnHWM[date]):
    """A day."""

    kind: ClassVar[str] = "column_date"

    def read(self, value: object) -> date:
        moment = _plain(self.kind, value)
        if moment.time() != time() or moment.tzinfo:
            raise MarkInvalid(self.kind, value, reason="a day has neither a time nor a zone")
        return moment.date()

    def write(self, value: date) -> Json:
        return value.isoformat()

    def shift(self, value: date, by: object, sign: int) -> date:
        if not isinstance(by, timedelta) or by % timedelta(days=1):
            raise MarkInvalid(self.kind, by, reason="a day moves by whole days, given as a timedelta")
        return _moved(self.kind, value, sign * by)


@register
class ColumnDateTimeHWM(ColumnHWM[datetime]):
    """A timestamp with all its microseconds; without a zone it stays so, and is never compared with one that has it."""

    kind: ClassVar[str] = "column_datetime"

    def read(self, value: object) -> datetime:
        return _plain(self.kind, value)

    def write(self, value: datetime) -> Json:
        return value.isoformat()

    def shown(self, value: datetime) -> Json:
        return database_text(value)

    def shift(self, value: datetime, by: object, sign: int) -> datetime:
        if not isinstance(by, timedelta):
            raise MarkInvalid(self.kind, by, reason="a timestamp moves by a timedelta")
        return _moved(self.kind, value, sign * by)


Day = TypeVar("Day", date, datetime)


def _moved(kind: str, value: Day, by: timedelta) -> Day:
    try:
        return value + by
    except OverflowError as error:
        raise MarkInvalid(kind, by, reason=f"{value} moved by that is outside the calendar") from error


def _plain(kind: str, value: object) -> datetime:
    """A datetime of the standard library, from text, a day, or a datetime of any library."""
    if isinstance(value, str):
        moment, nanoseconds = split_moment(kind, value)
    elif isinstance(value, datetime):
        moment, nanoseconds = fixed_offset(value), getattr(value, "nanosecond", 0)
    elif isinstance(value, date):
        moment, nanoseconds = datetime.combine(value, time()), 0
    else:
        raise MarkInvalid(kind, value, reason="not a date, a timestamp or ISO text")
    if nanoseconds:
        raise MarkInvalid(kind, value, reason="finer than microseconds, and cutting it would lose rows")
    return moment
