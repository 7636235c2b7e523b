"""A mark on the versions of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from floodmark.errors import MarkInvalid
from floodmark.hwm.kinds import register
from floodmark.hwm.numbers import shown_int, whole_number
from floodmark.hwm.ordered import OrderedHWM

if TYPE_CHECKING:
    from floodmark.hwm.mark import Json


@register
class VersionHWM(OrderedHWM[int]):
    """The last version of a table that was read; version 0 is one that was."""

    kind: ClassVar[str] = "version"
    entity_alias: ClassVar[str | None] = "source"

    def read(self, value: object) -> int:
        version = whole_number(self.kind, value)
        if version < 0:
            raise MarkInvalid(self.kind, value, reason="a version is 0 or higher")
        return version

    def shown(self, value: int) -> Json:
        return shown_int(value)

    def shift(self, value: int, by: object, sign: int) -> int:
        return value + sign * whole_number(self.kind, by)
