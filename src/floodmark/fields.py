"""Fields of frozen dataclasses that take more forms than they keep.

A field that has one of these descriptors as its default is converted when the value is made, and reads as what it was
converted to; type checkers know both sides:

    @dataclass(frozen=True)
    class Table:
        key: ColumnNames = ColumnNames()

    Table("id").key == Table(["id"]).key == ("id",)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

Item = TypeVar("Item")


class TupleOf(Generic[Item]):
    """Items: anything that can be iterated over is given, and it is always a tuple; by default there are none."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, value: object | None, owner: type) -> tuple[Item, ...]:
        items: tuple[Item, ...] = vars(value)[self._name] if value is not None else ()
        return items

    def __set__(self, value: object, items: Iterable[Item]) -> None:
        vars(value)[self._name] = tuple(items)


class ColumnNames(TupleOf[str]):
    """Columns: one bare name or several are given, and it is always a tuple; by default there are none."""

    def __set__(self, value: object, items: str | Iterable[str]) -> None:
        super().__set__(value, (items,) if isinstance(items, str) else items)


class Nameable(Protocol):
    """A value that can name itself."""

    def default_name(self) -> str:
        """What it is called where nobody gave it a name."""


class NameOrDefault:
    """A name; where none is given, or an empty one, it is the value's own default."""

    def __get__(self, value: Nameable | None, owner: type) -> str:
        return (vars(value)["name"] or value.default_name()) if value is not None else ""

    def __set__(self, value: Nameable, name: str) -> None:
        vars(value)["name"] = name
