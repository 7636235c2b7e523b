"""Marks on text, and on several columns at once."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from floodmark.errors import MarkInvalid, MarkKindMismatch, UnknownKind
from floodmark.hwm import (
    ColumnDateTimeHWM,
    ColumnDecimalHWM,
    ColumnIntHWM,
    ColumnTextHWM,
    CompositeHWM,
    FileListHWM,
    deserialize,
)

V7 = "018f4e3a-7c00-7a3b-9c1d-0123456789ab"
V4 = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


@pytest.mark.parametrize("given", ["order-0007", "", V7, "01HYZ8Q4V5K3N2M1P0R9S8T7W6", "null", "é"])
def test_a_text_mark_accepts_text_as_it_is(given: str) -> None:
    """Also the word null, which is a text."""
    assert ColumnTextHWM("x", given).value == given


def test_a_uuid_of_version_7_becomes_its_text() -> None:
    """Its text grows with time."""
    assert ColumnTextHWM("x", UUID(V7)).value == V7


@pytest.mark.parametrize(
    "given", [V4, V4.upper(), "{" + V4 + "}", UUID(V4), "c232ab00-9414-11ec-b3c8-9f6bdeced846", 1, b"a", "\ud800"]
)
def test_a_text_mark_refuses_random_uuids_and_what_is_not_text(given: object) -> None:
    """The next random UUID may lie below the mark, and its row would never be read."""
    with pytest.raises(MarkInvalid):
        ColumnTextHWM("x", given)


def test_text_is_compared_by_its_bytes() -> None:
    """Upper case before lower case, and beyond the basic plane last: as `COLLATE "C"` does it."""
    mark = ColumnTextHWM("x", "Z")
    assert mark.update("a").value == "a"
    assert mark.covers("A")
    assert ColumnTextHWM("x", "\uffff").update("\U0001f30a").value == "\U0001f30a"


def test_the_collation_is_named_and_stored() -> None:
    """A source must compare with the order that the mark was made with."""
    mark = ColumnTextHWM("x", "a", collation="UTF8_BINARY")
    assert mark.serialize()["collation"] == "UTF8_BINARY"
    assert deserialize(mark.serialize()) == mark
    assert mark != ColumnTextHWM("x", "a")


def test_an_order_that_only_the_database_knows_is_refused() -> None:
    """Comparing by bytes what the database sorts by language would lose rows."""
    with pytest.raises(MarkInvalid) as caught:
        ColumnTextHWM("x", "a", collation="en_US.UTF-8")
    assert caught.value.value == "en_US.UTF-8"


def pair(value: object = None) -> CompositeHWM:
    """A mark on (updated_at, id)."""
    return CompositeHWM("o", value, kinds=(ColumnDateTimeHWM, ColumnIntHWM), source="orders")


@pytest.mark.parametrize(
    ("new", "raised"),
    [
        (("2024-01-01T00:00:00Z", 6), True),
        (("2024-01-02T00:00:00Z", 1), True),
        (("2024-01-01T00:00:00Z", 5), False),
        (("2024-01-01T00:00:00Z", 4), False),
        (("2023-12-31T00:00:00Z", 9), False),
    ],
)
def test_a_composite_is_compared_from_left_to_right(new: object, raised: bool) -> None:
    """Ties on the first column are decided by the second."""
    mark = pair(("2024-01-01T00:00:00Z", 5))
    assert (mark.update(new) is not mark) == raised
    assert mark.covers(new) == (not raised)


@pytest.mark.parametrize(
    "given", [("2024-01-01", 1, 2), ("2024-01-01",), ("2024-01-01", "b"), (1, 1), 5, ("2024-01-01", None)]
)
def test_a_composite_refuses_tuples_of_another_length_or_kind(given: object) -> None:
    """A part that is missing or of another kind has no place in the order."""
    with pytest.raises(MarkInvalid):
        pair(given)


def test_a_composite_with_and_without_a_zone_is_a_mismatch() -> None:
    """The rule of its parts holds for the whole."""
    with pytest.raises(MarkKindMismatch):
        pair(("2024-01-01T00:00:00Z", 5)).update(("2025-01-01T00:00:00", 5))


def test_a_composite_is_stored_with_the_types_of_its_parts() -> None:
    """Also while it is empty."""
    stored = pair(("2024-01-01T00:00:00Z", 2**60)).serialize()
    assert stored["kinds"] == ["column_datetime", "column_int"]
    assert stored["value"] == ["2024-01-01T00:00:00+00:00", 2**60]
    assert deserialize(stored).value == (datetime(2024, 1, 1, tzinfo=timezone.utc), 2**60)
    assert deserialize(pair().serialize()) == pair()


def test_people_are_shown_the_parts_of_a_composite_exactly() -> None:
    """And what is shown can be set."""
    mark = pair(("2024-01-01T00:00:00Z", 2**60))
    assert mark.show() == ["2024-01-01 00:00:00+00", "1152921504606846976"]
    assert mark.set_value('["2024-01-01 00:00:00+00", "1152921504606846976"]') is mark


def test_the_kinds_follow_from_the_value_where_they_are_not_named() -> None:
    """Python's own types say what they are."""
    assert CompositeHWM("o", (Decimal("1.5"), 1, "a")).kinds == (ColumnDecimalHWM, ColumnIntHWM, ColumnTextHWM)


def test_an_empty_composite_needs_its_kinds() -> None:
    """Otherwise the first value could be anything."""
    with pytest.raises(MarkInvalid):
        CompositeHWM("o")


@pytest.mark.parametrize("kinds", [(FileListHWM,), (CompositeHWM,), ("file_list",)])
def test_a_part_is_a_column(kinds: Any) -> None:  # noqa: ANN401 - wrong on purpose
    """Maps have no total order, and a tuple of tuples is a longer tuple."""
    with pytest.raises(MarkInvalid):
        CompositeHWM("o", kinds=kinds)


def test_a_part_of_an_unknown_type_is_refused_by_name() -> None:
    """The stored mark was made by a program that knows more kinds."""
    with pytest.raises(UnknownKind) as caught:
        CompositeHWM("o", kinds=["column_money"])
    assert caught.value.kind == "column_money"
