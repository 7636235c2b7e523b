"""Marks with one value in a total order, or none: columns of numbers, decimals, days, times and text, and versions."""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar
from uuid import UUID

from floodmark.errors import MarkInvalid, MarkKindMismatch
from floodmark.hwm.mark import HWM, NOT_GIVEN, Json, register
from floodmark.hwm.parsing import (
    EXACT,
    database_text,
    display_int,
    exact_decimal,
    fixed_offset,
    split_moment,
    whole_number,
)

if TYPE_CHECKING:
    from typing_extensions import Self


T = TypeVar("T")


class OrderedHWM(HWM[T | None], Generic[T]):
    """A mark at one value; None means that nothing was read. A kind says how to `read` and `write` a value.

    >>> mark = fm.hwm.ColumnIntHWM("orders", 10)
    >>> (mark - 3).value, mark.covers(11)
    (7, False)
    """

    @abstractmethod
    def read(self, value: object) -> T:
        """The value in its one true form; raises MarkInvalid. Never called with None."""

    def write(self, value: T) -> Json:
        """The value as JSON that `read` takes back; left alone, the value itself is JSON."""
        return value  # type: ignore[return-value]

    def display(self, value: T) -> Json:
        """The value for people."""
        return self.write(value)

    def at_or_below(self, low: T, high: T) -> bool:
        """The order of the values; a TypeError says that they have none."""
        return bool(low <= high)  # type: ignore[operator]

    def shift(self, value: T, by: object, sign: int) -> T:
        """The value moved up (sign 1) or down (sign -1), for `+` and `-`."""
        raise MarkKindMismatch(self, by, reason=f"{self.kind} has no + and -")

    def means_none(self, value: object) -> bool:
        """Whether this is how somebody wrote "no value"."""
        return value is None

    def parse(self, value: object) -> T | None:
        return None if self.means_none(value) else self.read(value)

    def dump(self) -> Json:
        return None if self.value is None else self.write(self.value)

    def show(self) -> Json:
        return None if self.value is None else self.display(self.value)

    def reaches(self, value: T | None) -> bool:
        if value is None or self.value is None:
            return value is None
        try:
            return self.at_or_below(value, self.value)
        except TypeError as error:
            raise MarkKindMismatch(self, value, reason=str(error)) from error

    def joined(self, value: T | None) -> T | None:
        return value

    def covers(self, value: object) -> bool:
        if self.means_none(value):
            raise MarkInvalid(self.kind, value, reason="it lies neither above nor below a mark")
        return super().covers(value)

    def __add__(self, by: object) -> Self:
        return self._shift_value(by, 1)

    def __sub__(self, by: object) -> Self:
        return self._shift_value(by, -1)

    def _shift_value(self, by: object, sign: int) -> Self:
        if self.value is None:
            raise MarkInvalid(self.kind, None, reason="an empty mark has nothing to add to")
        return self.set_value(self.shift(self.value, by, sign))


class ColumnHWM(OrderedHWM[T]):
    """A mark on a column; `entity` is its table, also spelled `source`, and `expression` the column.

    >>> mark = fm.hwm.ColumnIntHWM("orders", 10, source="shop.orders", expression="id")
    >>> isinstance(mark, ColumnHWM), mark.entity
    (True, 'shop.orders')
    """

    entity_alias: ClassVar[str | None] = "source"

    def means_none(self, value: object) -> bool:
        return value is None or (isinstance(value, str) and value.strip().lower() == "null")


@register
class ColumnIntHWM(ColumnHWM[int]):
    """A whole number of any size, which never passes through a float.

    >>> ColumnIntHWM("id", 7).update(5)
    ColumnIntHWM(name='id', value=7)
    """

    kind: ClassVar[str] = "column_int"

    def read(self, value: object) -> int:
        return whole_number(self.kind, value)

    def display(self, value: int) -> Json:
        return display_int(value)

    def shift(self, value: int, by: object, sign: int) -> int:
        return value + sign * whole_number(self.kind, by)


@register
class ColumnDecimalHWM(ColumnHWM[Decimal]):
    """An exact decimal, kept as text.

    >>> ColumnDecimalHWM("price", "10.50").update("9.99")
    ColumnDecimalHWM(name='price', value='10.50')
    """

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
    """A day.

    >>> ColumnDateHWM("day", "2026-01-31").update("2026-02-01")
    ColumnDateHWM(name='day', value='2026-02-01')
    """

    kind: ClassVar[str] = "column_date"

    def read(self, value: object) -> date:
        moment = _datetime_of(self.kind, value)
        if moment.time() != time() or moment.tzinfo:
            raise MarkInvalid(self.kind, value, reason="a day has neither a time nor a zone")
        return moment.date()

    def write(self, value: date) -> Json:
        return value.isoformat()

    def shift(self, value: date, by: object, sign: int) -> date:
        if not isinstance(by, timedelta) or by % timedelta(days=1):
            raise MarkInvalid(self.kind, by, reason="a day moves by whole days, given as a timedelta")
        return _move(self.kind, value, sign * by)


@register
class ColumnDateTimeHWM(ColumnHWM[datetime]):
    """A timestamp with all its microseconds; without a zone it stays so, and is never compared with one that has it.

    >>> ColumnDateTimeHWM("updated_at", "2026-01-31 12:00:00").covers("2026-01-31 11:00:00")
    True
    """

    kind: ClassVar[str] = "column_datetime"

    def read(self, value: object) -> datetime:
        return _datetime_of(self.kind, value)

    def write(self, value: datetime) -> Json:
        return value.isoformat()

    def display(self, value: datetime) -> Json:
        return database_text(value)

    def shift(self, value: datetime, by: object, sign: int) -> datetime:
        if not isinstance(by, timedelta):
            raise MarkInvalid(self.kind, by, reason="a timestamp moves by a timedelta")
        return _move(self.kind, value, sign * by)


Day = TypeVar("Day", date, datetime)


def _move(kind: str, value: Day, by: timedelta) -> Day:
    try:
        return value + by
    except OverflowError as error:
        raise MarkInvalid(kind, by, reason=f"{value} moved by that is outside the calendar") from error


def _datetime_of(kind: str, value: object) -> datetime:
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


BYTE_ORDERS = ("C", "POSIX", "C.UTF-8", "ucs_basic", "BINARY", "UTF8_BINARY")
"""The names under which databases and Spark sort text by its bytes; the order of any other is theirs alone."""
DATABASE = "database"
"""The order of the column itself, which is asked in SQL and never here."""

_UUID = re.compile(
    r"[{]?[0-9a-f]{8}-[0-9a-f]{4}-([0-9a-f])[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}[}]?", re.IGNORECASE
)
_VERSIONS_WITHOUT_ORDER = "12345"


@register
@dataclass(frozen=True, init=False, eq=False, repr=False)
class ColumnTextHWM(ColumnHWM[str]):
    """A text that grows, such as a ULID or a UUIDv7; `collation` names the order that the source must use with it.

    In the order of a DATABASE, only that can compare: here a mark reaches its own value alone, and moves to any other.

    >>> ColumnTextHWM("code", "b").covers("a")
    True
    """

    kind: ClassVar[str] = "column_text"

    collation: str

    def __init__(
        self,
        name: str,
        value: object = NOT_GIVEN,
        *,
        collation: str = "C",
        entity: str | None = None,
        expression: str | None = None,
        description: str = "",
        modified_time: datetime | str | None = None,
        **alias: str | None,
    ) -> None:
        if collation not in (*BYTE_ORDERS, DATABASE):
            known = ", ".join((*BYTE_ORDERS, DATABASE))
            raise MarkInvalid(self.kind, collation, reason=f"only the database knows this order; compare by {known}")
        vars(self).update(collation=collation)
        super().__init__(
            name,
            value,
            entity=entity,
            expression=expression,
            description=description,
            modified_time=modified_time,
            **alias,
        )

    def means_none(self, value: object) -> bool:
        return value is None  # the text "null" is a text here

    def reaches(self, value: str | None) -> bool:
        return super().reaches(value) if self.collation != DATABASE else value is None or value == self.value

    def read(self, value: object) -> str:
        text = str(value) if isinstance(value, UUID) else value
        if not isinstance(text, str):
            raise MarkInvalid(self.kind, value, reason="not text")
        found = _UUID.fullmatch(text)
        if found and found[1] in _VERSIONS_WITHOUT_ORDER:
            raise MarkInvalid(
                self.kind, value, reason=f"a UUID of version {found[1]} does not grow, so rows would be missed"
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise MarkInvalid(self.kind, value, reason="not valid Unicode") from error
        return text  # Python compares by code points, which is the order of the UTF-8 bytes

    def serialize(self) -> dict[str, Json]:
        return {**super().serialize(), "collation": self.collation}


@register
class VersionHWM(OrderedHWM[int]):
    """The last version of a table that was read; version 0 is one that was.

    >>> VersionHWM("orders", 0) < VersionHWM("orders", 3)
    True
    """

    kind: ClassVar[str] = "version"
    entity_alias: ClassVar[str | None] = "source"

    def read(self, value: object) -> int:
        version = whole_number(self.kind, value)
        if version < 0:
            raise MarkInvalid(self.kind, value, reason="a version is 0 or higher")
        return version

    def display(self, value: int) -> Json:
        return display_int(value)

    def shift(self, value: int, by: object, sign: int) -> int:
        return value + sign * whole_number(self.kind, by)
