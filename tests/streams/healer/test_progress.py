"""The rule of healing, without Kafka or Spark: how far outcomes let a mark move."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.errors import MarkInvalid
from floodmark.streams.healer.progress import MOST_OFFSETS, MOST_RANGES, Progress

OFFSETS = st.integers(min_value=0, max_value=60)


@pytest.mark.parametrize(
    ("before", "read_upto", "unsettled", "mark", "settled"),
    [
        (Progress.beginning(0), 3, [], 3, ()),
        (Progress.beginning(0), 3, [0, 1], 0, ((2, 3),)),
        (Progress.beginning(0), 3, [0], 0, ((1, 3),)),
        (Progress(0, 3, ((1, 3),)), 3, [], 3, ()),
        (Progress.beginning(0), 3, [1], 1, ((2, 3),)),
        (Progress.beginning(0), 4, [1], 1, ((2, 4),)),
        (Progress.beginning(0), 6, [], 6, ()),
        (Progress.beginning(0), 2, [0], 0, ((1, 2),)),
        (Progress.beginning(10), 7, [], 10, ()),
        (Progress.beginning(10), 12, [5, 6], 12, ()),
    ],
)
def test_the_mark_is_the_first_record_that_waits(
    before: Progress, read_upto: int, unsettled: list[int], mark: int, settled: tuple[tuple[int, int], ...]
) -> None:
    """The spec's table: outcomes in any order, holes, one partition at a time, and never back."""
    after = before.after(read_upto, unsettled)
    assert (after.mark, after.settled_ranges) == (mark, settled)


@given(start=OFFSETS, length=OFFSETS, unsettled=st.sets(OFFSETS))
def test_settled_and_waiting_are_the_two_halves_of_what_was_read(start: int, length: int, unsettled: set[int]) -> None:
    """Nothing is forgotten and nothing is in both, however the outcomes fell."""
    after = Progress.beginning(start).after(start + length, unsettled)
    read = range(start, start + length)
    waiting = sorted(unsettled & set(read))
    assert list(after.unsettled_offsets()) == waiting
    assert [offset for offset in read if not after.is_settled(offset)] == waiting
    assert after.mark == min([*waiting, start + length])


@given(first=st.sets(OFFSETS), later=st.sets(OFFSETS), read_upto=OFFSETS, more=OFFSETS)
def test_a_mark_never_goes_back(first: set[int], later: set[int], read_upto: int, more: int) -> None:
    """What was passed once stays passed, whatever a later turn reports."""
    before = Progress.beginning(0).after(read_upto, first)
    after = before.after(read_upto + more, later)
    assert after.mark >= before.mark
    assert after.read_upto >= before.read_upto


@given(read_upto=OFFSETS, unsettled=st.sets(OFFSETS))
def test_progress_comes_back_from_the_record_as_it_was(read_upto: int, unsettled: set[int]) -> None:
    """Extras are JSON; a restart finds exactly what was settled."""
    progress = Progress.beginning(0).after(read_upto, unsettled)
    assert Progress.deserialize(progress.serialize()) == progress


@pytest.mark.parametrize(
    "stored",
    [
        {"mark": 0, "reached": 3},
        {"mark": 0, "reached": "x", "settled": []},
        {"mark": 5, "reached": 3, "settled": []},
        {"mark": 0, "reached": 9, "settled": [[4, 6], [1, 2]]},
        {"mark": 0, "reached": 9, "settled": [[1, 2, 3]]},
    ],
)
def test_damaged_progress_is_refused(stored: dict[str, object]) -> None:
    """Taken for a beginning, it would run everything again."""
    with pytest.raises(MarkInvalid):
        Progress.deserialize(stored)


def test_a_partition_is_full_when_it_remembers_too_many_ranges() -> None:
    """Every other record failed: there is no room for one more gap."""
    full = Progress.beginning(0).after(2 * MOST_RANGES, range(0, 2 * MOST_RANGES, 2))
    assert (len(full.settled_ranges), full.free_ranges, full.free_offsets) == (MOST_RANGES, 0, 0)


def test_a_partition_is_full_when_it_remembers_too_many_offsets() -> None:
    """One record waits and a million after it are done."""
    full = Progress.beginning(0).after(MOST_OFFSETS + 1, [0])
    assert (full.free_ranges, full.free_offsets) == (MOST_RANGES - 1, 0)


def test_a_partition_that_is_not_stuck_has_all_the_room() -> None:
    """What lies below the mark need not be remembered."""
    assert Progress.beginning(0).after(5_000_000, []).free_offsets == MOST_OFFSETS
