"""Marks with one value in a total order, or none: columns, versions, pairs of them."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from floodmark.errors import MarkInvalid, MarkKindMismatch
from floodmark.hwm.mark import HWM, Json

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class OrderedHWM(HWM[T | None], Generic[T]):
    """A mark at one value; None means that nothing was read. A kind says how to `read` and `write` a value."""

    @abstractmethod
    def read(self, value: object) -> T:
        """The value in its one true form; raises MarkInvalid. Never called with None."""

    def write(self, value: T) -> Json:
        """The value as JSON that `read` takes back; left alone, the value itself is JSON."""
        return value  # type: ignore[return-value]

    def shown(self, value: T) -> Json:
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
        return None if self.value is None else self.shown(self.value)

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
        return self._shifted(by, 1)

    def __sub__(self, by: object) -> Self:
        return self._shifted(by, -1)

    def _shifted(self, by: object, sign: int) -> Self:
        if self.value is None:
            raise MarkInvalid(self.kind, None, reason="an empty mark has nothing to add to")
        return self.set_value(self.shift(self.value, by, sign))
