"""Fields that take more forms than they keep."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, replace

import pytest

from floodmark.fields import ColumnNames, NameOrDefault, TupleOf


@dataclass(frozen=True)
class Table:
    """A value with one of each."""

    key: ColumnNames = ColumnNames()
    sizes: TupleOf[int] = TupleOf()
    name: NameOrDefault = NameOrDefault()

    def default_name(self) -> str:
        return "_".join(self.key)


def test_one_name_or_several_are_a_tuple() -> None:
    """So equal tables are equal, however they were written down."""
    assert Table("id") == Table(["id"]) == Table(("id",))
    assert (Table("id").key, Table().key, hash(Table(["id"]))) == (("id",), (), hash(Table("id")))


def test_items_are_a_tuple() -> None:
    """A list of the caller's can change afterwards; the value does not."""
    sizes = [1, 2]
    table = Table(sizes=sizes)
    sizes.append(3)
    assert (table.sizes, Table().sizes) == ((1, 2), ())


def test_a_name_that_is_not_given_is_made_from_the_value() -> None:
    """Unless somebody chose one."""
    assert [table.name for table in (Table("id"), Table("id", name="mine"))] == ["id", "mine"]
    assert repr(Table("id")) == "Table(key=('id',), sizes=(), name='id')"


def test_a_frozen_value_stays_frozen() -> None:
    """A copy is made for a change."""
    with pytest.raises(FrozenInstanceError):
        Table("id").key = "no"  # type: ignore[misc, assignment]
    assert replace(Table("id"), sizes=[1]).sizes == (1,)
