"""The mark of several tables that are read together."""

from __future__ import annotations

import pytest

from floodmark.errors import MarkInvalid
from floodmark.hwm import TableVersionsHWM, deserialize


def test_every_table_rises_on_its_own() -> None:
    """A lower version changes nothing, a table that is not named stays."""
    mark = TableVersionsHWM("inputs", {"usage": 5, "prices": 0}).update({"usage": 4, "prices": 2, "skus": 0})
    assert mark.value == {"usage": 5, "prices": 2, "skus": 0}
    assert mark.show() == {"prices": 2, "skus": 0, "usage": 5}


def test_it_covers_what_no_table_exceeds() -> None:
    """Version 0 is a version: a table that is missing is not covered."""
    mark = TableVersionsHWM("inputs", {"usage": 5})
    assert mark.covers({"usage": 5})
    assert not mark.covers({"usage": 6})
    assert not mark.covers({"skus": 0})


def test_it_survives_a_store() -> None:
    """Also without any table."""
    assert deserialize(TableVersionsHWM("inputs", {"usage": 5}).serialize()).value == {"usage": 5}
    assert TableVersionsHWM("inputs", '{"usage": 5}').value == {"usage": 5}
    assert deserialize(TableVersionsHWM("inputs").serialize()).value == {}


@pytest.mark.parametrize("value", [{"usage": -1}, {"usage": 1.5}, {"usage": None}, {1: 1}, [1], "usage"])
def test_what_is_no_map_of_versions_is_refused(value: object) -> None:
    """None is not version 0."""
    with pytest.raises(MarkInvalid):
        TableVersionsHWM("inputs", value)
