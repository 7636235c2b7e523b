"""Laws of marks, tried with many values."""

from __future__ import annotations

import json
from datetime import timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.hwm import (
    ColumnDateHWM,
    ColumnDateTimeHWM,
    ColumnDecimalHWM,
    ColumnIntHWM,
    ColumnTextHWM,
    CompositeHWM,
    FileListHWM,
    FileModifiedTimeHWM,
    FileMoment,
    KeyValueIntHWM,
    VersionHWM,
    deserialize,
)

if TYPE_CHECKING:
    from floodmark.hwm import HWM

ints = st.integers(-(2**70), 2**70)
zones = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)
moments = st.datetimes(timezones=zones, allow_imaginary=False)
words = st.text(st.characters(exclude_categories=["Cs"]))
offsets = st.dictionaries(st.integers(0, 5), st.integers(0, 100))
paths = st.text("abc./", min_size=1).map(lambda tail: f"/d/x{tail}").filter(lambda path: "/.." not in path)
names = st.sampled_from(["/d/a", "/d/b", "/d/c/d"])
stats = st.none() | st.tuples(st.integers(0, 2**63), st.integers(0, 2**63))

marks: st.SearchStrategy[HWM[Any]] = st.one_of(
    st.builds(ColumnIntHWM, st.just("a"), st.none() | ints),
    st.builds(ColumnDecimalHWM, st.just("a"), st.none() | st.decimals(allow_nan=False, allow_infinity=False)),
    st.builds(ColumnDateHWM, st.just("a"), st.none() | st.dates()),
    st.builds(ColumnDateTimeHWM, st.just("a"), st.none() | st.datetimes()),
    st.builds(ColumnDateTimeHWM, st.just("a"), moments),
    st.builds(ColumnTextHWM, st.just("a"), st.none() | words),
    st.builds(CompositeHWM, st.just("a"), st.tuples(moments, ints, words)),
    st.builds(KeyValueIntHWM, st.just("a"), st.dictionaries(ints, ints)),
    st.builds(FileListHWM, st.just("a"), st.lists(paths), directory=st.just("/d")),
    st.builds(FileListHWM, st.just("a"), st.dictionaries(names, stats)),
    st.builds(
        FileModifiedTimeHWM, st.just("a"), st.builds(FileMoment, st.integers(-(2**60), 2**62), st.none() | paths)
    ),
    st.builds(VersionHWM, st.just("a"), st.none() | st.integers(0)),
)


@given(marks)
def test_every_mark_survives_json_exactly(mark: HWM[Any]) -> None:
    """What a store writes is what it reads."""
    back = deserialize(json.loads(json.dumps(mark.serialize())))
    assert back == mark
    assert hash(back) == hash(mark)
    assert back.serialize() == mark.serialize()


@given(marks)
def test_people_can_be_shown_every_mark_as_json(mark: HWM[Any]) -> None:
    """`marks show --json` never fails on a mark that could be stored."""
    assert json.loads(json.dumps(mark.show())) == mark.show()


@given(ints, ints)
def test_an_int_mark_goes_to_the_higher_value(first: int, second: int) -> None:
    """In either order, and once is as good as twice."""
    mark = ColumnIntHWM("a", first).update(second)
    assert mark.value == max(first, second)
    assert mark.update(second) is mark
    assert mark == ColumnIntHWM("a", second).update(first)


@given(offsets, offsets, offsets)
def test_updates_of_offsets_commute_and_never_lower(
    start: dict[int, int], one: dict[int, int], two: dict[int, int]
) -> None:
    """The mark does not depend on the order in which batches report."""
    mark = KeyValueIntHWM("a", start)
    raised = mark.update(one).update(two)
    assert raised == mark.update(two).update(one)
    assert raised >= mark
    assert raised.update(one) is raised
    assert raised.covers(one)
    assert raised.covers(two)


@given(st.dictionaries(names, stats), st.dictionaries(names, stats))
def test_a_file_list_holds_what_it_was_updated_with(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Whatever was known of a path, the state read last is covered."""
    mark = FileListHWM("a", first, directory="/d").update(second)
    assert mark.value.keys() == first.keys() | second.keys()
    assert mark.covers(second)
    assert mark.update(second) is mark
    assert mark.with_items({}).with_items(mark.items()) == mark


@given(st.tuples(moments, ints), st.tuples(moments, ints))
def test_a_composite_is_ordered_like_its_tuple(first: tuple[Any, int], second: tuple[Any, int]) -> None:
    """Left to right, by the instant and not by its zone."""
    low, high = CompositeHWM("a", first), CompositeHWM("a", second)
    assert (low <= high) == (first <= second)
    assert (low < high) == (first < second)


@given(ints, ints)
def test_equal_marks_have_equal_hashes(first: int, second: int) -> None:
    """And marks are equal exactly when their values are."""
    left, right = ColumnIntHWM("a", first), ColumnIntHWM("a", second)
    assert (left == right) == (first == second)
    assert len({left, right}) == len({first, second})


@pytest.mark.parametrize(("left", "right"), [("1.0", "1.00"), ("100", "1e2"), ("-0", "0")])
def test_decimals_that_are_equal_have_equal_hashes(left: str, right: str) -> None:
    """However many zeros they were written with."""
    assert ColumnDecimalHWM("a", left) == ColumnDecimalHWM("a", right)
    assert hash(ColumnDecimalHWM("a", left)) == hash(ColumnDecimalHWM("a", right))
