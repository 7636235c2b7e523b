"""Marks on whole numbers, decimals and versions: what they accept, refuse and do."""

from __future__ import annotations

import sys
from decimal import Decimal

import pytest

from floodmark.errors import MarkInvalid
from floodmark.hwm import ColumnDecimalHWM, ColumnIntHWM, VersionHWM


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (1, 1),
        ("1", 1),
        ("1.0", 1),
        (1.0, 1),
        (Decimal("1.0"), 1),
        (" 7 ", 7),
        ("-3", -3),
        (0, 0),
        ("null", None),
        (None, None),
    ],
)
def test_an_int_mark_accepts_every_spelling_of_a_whole_number(given: object, value: int | None) -> None:
    """Drivers and people write the same number in different ways."""
    assert ColumnIntHWM("a", given).value == value


@pytest.mark.parametrize(
    "given", [1.5, "1.23", "abc", "", [], True, "inf", float("inf"), float("nan"), "1e3", "1_000", "٣", Decimal("1.5")]
)
def test_an_int_mark_refuses_what_is_no_whole_number(given: object) -> None:
    """Cutting or guessing would skip rows or read them twice."""
    with pytest.raises(MarkInvalid) as caught:
        ColumnIntHWM("a", given)
    assert caught.value.kind == "column_int"


def test_an_int_beyond_a_float_is_kept_exactly() -> None:
    """Ids above 2^53 never pass through a float."""
    assert ColumnIntHWM("a", "9007199254740993").value == 9007199254740993
    assert ColumnIntHWM("a", Decimal("9007199254740993.0")).value == 9007199254740993


def test_a_float_that_may_have_been_rounded_is_refused() -> None:
    """Above 2^53 a float no longer says which whole number was meant."""
    with pytest.raises(MarkInvalid):
        ColumnIntHWM("a", float(2**53 + 2))


def test_a_number_too_long_for_text_is_refused_and_not_a_crash() -> None:
    """Python stops at 4300 digits; a mark must be writable as text."""
    with pytest.raises(MarkInvalid):
        ColumnIntHWM("a", "9" * 4301)
    with pytest.raises(MarkInvalid):
        ColumnIntHWM("a", 10**4300)


@pytest.mark.parametrize(("start", "new", "value"), [(2, 1, 2), (2, 2, 2), (2, 3, 3), (None, 5, 5), (2, None, 2)])
def test_an_update_raises_and_never_lowers(start: int | None, new: int | None, value: int) -> None:
    """The higher value wins; no value is below every value."""
    assert ColumnIntHWM("a", start).update(new).value == value


def test_updating_an_empty_mark_with_nothing_gives_the_same_mark() -> None:
    """Nothing was read, so nothing moved."""
    mark = ColumnIntHWM("a")
    assert mark.update(None) is mark


def test_an_update_validates_like_the_constructor() -> None:
    """A mark cannot be made wrong by the back door."""
    with pytest.raises(MarkInvalid):
        ColumnIntHWM("a", 1).update(150.9)


def test_plus_and_minus_give_a_new_mark() -> None:
    """The first mark is a value, and still what it was."""
    mark = ColumnIntHWM("a", 1)
    assert (mark + 2).value == 3
    assert (mark - 2).value == -1
    assert mark.value == 1


def test_plus_on_an_empty_mark_is_refused() -> None:
    """No mark is a state of its own and never counts as 0."""
    with pytest.raises(MarkInvalid):
        ColumnIntHWM("a") + 1


@pytest.mark.parametrize(
    ("given", "text"), [(1, "1"), ("1.10", "1.10"), (" 2.5 ", "2.5"), (0.5, "0.5"), ("1e3", "1000")]
)
def test_a_decimal_mark_is_exact_text(given: object, text: str) -> None:
    """Decimals are stored as text, so that no reader rounds them."""
    assert ColumnDecimalHWM("a", given).serialize()["value"] == text


@pytest.mark.parametrize(
    "given",
    [0.1, float("nan"), float("inf"), "NaN", Decimal("NaN"), Decimal("Infinity"), "abc", "", True, [], "1e999999"],
)
def test_a_decimal_mark_refuses_what_is_not_exact(given: object) -> None:
    """0.1 as a float is not one tenth."""
    with pytest.raises(MarkInvalid):
        ColumnDecimalHWM("a", given)


def test_decimal_arithmetic_does_not_round() -> None:
    """The usual context of Python would cut this to 28 digits."""
    mark = ColumnDecimalHWM("a", "1234567890123456789012345678901234567890.5")
    assert (mark + "0.25").value == Decimal("1234567890123456789012345678901234567890.75")
    assert (mark - "0.5").value == Decimal(1234567890123456789012345678901234567890)


def test_version_0_is_a_value() -> None:
    """A table's first version is 0; that it was read is not the same as that nothing was."""
    assert VersionHWM("v", 0).covers(0)
    assert not VersionHWM("v").covers(0)
    assert VersionHWM("v", 0) != VersionHWM("v")


@pytest.mark.parametrize("given", [-1, "-1", 1.5, True, "latest"])
def test_a_version_mark_refuses_what_is_no_version(given: object) -> None:
    """Versions count from 0."""
    with pytest.raises(MarkInvalid):
        VersionHWM("v", given)


def test_a_version_cannot_be_moved_below_0() -> None:
    """The result of - is validated too."""
    with pytest.raises(MarkInvalid):
        VersionHWM("v", 1) - 2


@pytest.mark.parametrize(
    ("value", "shown"),
    [(2**53, 2**53), (2**53 + 1, "9007199254740993"), (-(2**53) - 1, "-9007199254740993"), (None, None)],
)
def test_people_are_shown_large_ints_as_text(value: int | None, shown: object) -> None:
    """A reader of JSON that uses floats still sees the exact number."""
    assert ColumnIntHWM("a", value).show() == shown


def test_a_stored_int_is_a_json_int_of_any_size() -> None:
    """The store keeps the number itself."""
    assert ColumnIntHWM("a", sys.maxsize * 10).serialize()["value"] == sys.maxsize * 10
