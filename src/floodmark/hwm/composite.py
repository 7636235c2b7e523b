"""A mark on several columns at once, compared from left to right."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias
from uuid import UUID

from floodmark.errors import MarkInvalid
from floodmark.hwm.columns import (
    ColumnDateHWM,
    ColumnDateTimeHWM,
    ColumnDecimalHWM,
    ColumnHWM,
    ColumnIntHWM,
    ColumnTextHWM,
)
from floodmark.hwm.mark import NOT_GIVEN, Json, kind_of, register
from floodmark.hwm.parsing import from_json_text

if TYPE_CHECKING:
    from collections.abc import Sequence


PartKind: TypeAlias = type[ColumnHWM[Any]]

_KINDS_BY_TYPE: dict[type, PartKind] = {
    int: ColumnIntHWM,
    Decimal: ColumnDecimalHWM,
    datetime: ColumnDateTimeHWM,
    date: ColumnDateHWM,
    str: ColumnTextHWM,
    UUID: ColumnTextHWM,
}


@register
@dataclass(frozen=True, init=False, eq=False, repr=False)
class CompositeHWM(ColumnHWM[tuple[Any, ...]]):
    """A tuple such as `(updated_at, id)`; `kinds` are the classes (or wire types) of its parts.

    Left out, the kinds follow from the Python types in the value: text is then text, and never a date.

    >>> CompositeHWM("place", ("2026-01-31", 7)).covers(("2026-01-31", 6))
    True
    """

    kind: ClassVar[str] = "composite"

    kinds: tuple[PartKind, ...]

    def __init__(
        self,
        name: str,
        value: object = NOT_GIVEN,
        *,
        kinds: Sequence[PartKind | str] | None = None,
        entity: str | None = None,
        expression: str | None = None,
        description: str = "",
        modified_time: datetime | str | None = None,
        **alias: str | None,
    ) -> None:
        vars(self).update(kinds=_part_kinds(value) if kinds is None else tuple(map(_part_kind, kinds)))
        super().__init__(
            name,
            value,
            entity=entity,
            expression=expression,
            description=description,
            modified_time=modified_time,
            **alias,
        )
        if not self.kinds:
            raise MarkInvalid(self.kind, self.value, reason="it needs the kinds of its parts")

    def read(self, value: object) -> tuple[Any, ...]:
        parts = from_json_text(self.kind, value)
        if not isinstance(parts, (tuple, list)) or len(parts) != len(self.kinds):
            raise MarkInvalid(self.kind, value, reason=f"it is a tuple of {self._describe_kinds()}")
        if any(part is None for part in parts):
            raise MarkInvalid(self.kind, value, reason="a part has no value")
        return tuple(part.read(one) for part, one in zip(self._parts(), parts, strict=True))

    def write(self, value: tuple[Any, ...]) -> Json:
        return [part.write(one) for part, one in zip(self._parts(), value, strict=True)]

    def display(self, value: tuple[Any, ...]) -> Json:
        return [part.display(one) for part, one in zip(self._parts(), value, strict=True)]

    def at_or_below(self, low: tuple[Any, ...], high: tuple[Any, ...]) -> bool:
        pairs = zip(self._parts(), low, high, strict=True)
        return next((part.at_or_below(one, other) for part, one, other in pairs if one != other), True)

    def serialize(self) -> dict[str, Json]:
        return {**super().serialize(), "kinds": [kind.kind for kind in self.kinds]}

    def _parts(self) -> tuple[ColumnHWM[Any], ...]:
        return tuple(kind(self.name, modified_time=self.modified_time) for kind in self.kinds)

    def _describe_kinds(self) -> str:
        return ", ".join(kind.kind for kind in self.kinds)


def _part_kinds(value: object) -> tuple[PartKind, ...]:
    parts = value if isinstance(value, (tuple, list)) else ()
    return tuple(_kind_for(one) for one in parts)


def _kind_for(value: object) -> PartKind:
    for known in type(value).__mro__ if not isinstance(value, bool) else ():
        if known in _KINDS_BY_TYPE:
            return _KINDS_BY_TYPE[known]
    raise MarkInvalid(CompositeHWM.kind, value, reason="no kind of column holds this; name the kinds of the parts")


def _part_kind(kind: PartKind | str) -> PartKind:
    found = kind_of(kind) if isinstance(kind, str) else kind
    if not isinstance(found, type) or not issubclass(found, ColumnHWM) or issubclass(found, CompositeHWM):
        raise MarkInvalid(CompositeHWM.kind, kind, reason="a part is a column")
    return found
