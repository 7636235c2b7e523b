"""However the streams arrive, the turns together give what a plain nested loop gives over all of them, in its order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.errors import KeyDecreased
from floodmark.mill import JoinWith, function_call, get_field, join_streams, window
from floodmark.mill.join_tree import Stream
from tests.mill.cases import L, R, S
from tests.mill.nested_loop import calls
from tests.mill.offline import END, OfflineMill, offline_mill

K = get_field("k")


def pair(left: L, rights: Mapping[L, list[R]]) -> None:
    """Only its signature is used here."""


def three(left: L, rights: Mapping[L, list[R]], others: Mapping[L, list[S]]) -> None:
    """A star."""


def chain(left: L, rights: Mapping[L, list[R]], others: Mapping[R, list[S]]) -> None:
    """A chain."""


def windowed(lefts: list[L]) -> None:
    """Windows."""


def windowed_pair(lefts: list[L], rights: Mapping[L, list[R]]) -> None:
    """Windows with a join."""


JOIN = join_streams(L, JoinWith(R, K, K))
STAR = join_streams(L, JoinWith(R, K, K), JoinWith(S, K // 2, K))
CHAIN = join_streams(L, JoinWith(join_streams(R, JoinWith(S, K // 2, K)), K, K))
LEFT = join_streams(L, JoinWith(R, K, K, how="left"))
CHAIN_LEFT = join_streams(L, JoinWith(join_streams(R, JoinWith(S, K, K // 2, how="left")), K + 1, K))
WINDOW_JOIN = join_streams(window(L, K // 3), JoinWith(R, K, K))


def thirds(element: dict[str, int]) -> int:
    """A window expression that only Python can evaluate."""
    return element["k"] // 3


TOLD_WINDOW_JOIN = join_streams(window(L, function_call(thirds)), JoinWith(R, K, K))
TOLD_WINDOW_OTHER_KEY = join_streams(window(L, function_call(thirds)), JoinWith(R, K // 2, K, how="left"))

partitions = st.lists(st.lists(st.integers(0, 12), max_size=9).map(sorted), min_size=1, max_size=3)
cuts = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 6)), max_size=25)


def elements(cls: Any, keys: list[list[int]]) -> list[list[Any]]:  # noqa: ANN401 (a class of elements)
    return [
        [cls(key, f"{cls.__name__}{partition}.{n}") for n, key in enumerate(own)] for partition, own in enumerate(keys)
    ]


def with_ends(partitions: list[list[Any]]) -> list[list[Any]]:
    return [[*own, END] for own in partitions]


def arrive(mill: OfflineMill, streams: list[Stream], stream: int, partition: int, count: int) -> None:
    source = mill.broker.streams[streams[stream % len(streams)]]
    number = partition % len(source.partitions)
    source.arrived[number] = min(source.arrived.get(number, 0) + count, len(source.partitions[number]))


def turned(process: Any, streams: Mapping[Stream, list[list[Any]]], plan: list[Any], **declared: Any) -> OfflineMill:  # noqa: ANN401
    """A mill that has seen everything, in the turns that the plan says, and then the ends."""
    mill = offline_mill(process, {stream: with_ends(own) for stream, own in streams.items()}, **declared)
    for stream, partition, count in plan:
        arrive(mill, list(streams), stream, partition, count)
        mill.turn()
    for source in mill.broker.streams.values():
        source.arrived = {number: len(own) for number, own in enumerate(source.partitions)}
    for _ in range(4):
        mill.turn()
    return mill


def test_a_look_that_reaches_less_far_than_one_before_it_loses_no_partner() -> None:
    """It may read so many elements, and divides them anew among partitions that have grown; a restart begins small.

    What was seen of the right stream says that all below 5 is there, and the second look alone reaches up to 3.
    """
    streams = {L: elements(L, [[1, 2, 3, 4, 5, 6]]), R: elements(R, [[1, 2, 3, 4, 5, 6]])}
    mill = offline_mill(pair, {stream: with_ends(own) for stream, own in streams.items()}, join_tree=JOIN)
    left, right = mill.broker.streams[L], mill.broker.streams[R]
    left.arrived, right.arrived = {0: 2}, {0: 5}
    mill.turn()
    left.arrived, right.arrived = {0: 6}, {0: 3}
    mill.turn()
    left.arrived, right.arrived = {0: 7}, {0: 7}
    mill.turn()
    mill.turn()
    assert mill.calls == calls(mill.declared.tree, streams)


def test_a_bounded_look_grows_until_it_holds_what_the_horizon_waits_for() -> None:
    """All that it may read was seen already, and what rose stands behind that; nothing else will come."""
    streams = {L: elements(L, [[1, 2, 3, 4, 5, 6, 7, 8]]), R: elements(R, [[1, 2, 3, 4, 5, 6, 7, 8], [2]])}
    mill = offline_mill(pair, {stream: with_ends(own) for stream, own in streams.items()}, join_tree=JOIN)
    mill.turn_elements = 1
    mill.restart()
    left, right = mill.broker.streams[L], mill.broker.streams[R]
    left.arrived, right.arrived = {0: 9}, {0: 9}
    assert not mill.turn()
    right.arrived = {0: 9, 1: 1}
    mill.turn()
    right.arrived = {0: 9, 1: 2}
    while mill.turn():
        pass
    assert (mill.calls, mill.ends) == (calls(mill.declared.tree, streams), 1)


def test_a_window_keeps_its_partners_in_a_look_that_reaches_less_far() -> None:
    """A turn fails after its windows were cut, and meanwhile another partition has taken the room of the first."""
    streams = {L: elements(L, [[0, 3, 6, 9]]), R: elements(R, [[0, 3, 6, 9], [9] * 40])}
    mill = offline_mill(
        windowed_pair, {stream: with_ends(own) for stream, own in streams.items()}, join_tree=TOLD_WINDOW_JOIN
    )
    mill.turn_elements = 5
    mill.restart()
    left, right = mill.broker.streams[L], mill.broker.streams[R]
    left.arrived, right.arrived = {0: 4}, {0: 4, 1: 1}
    assert mill.intend() is not None
    mill.step.run_state.forget_look()
    right.arrived = {0: 4, 1: 40}
    mill.turn()
    left.arrived, right.arrived = {0: 5}, {0: 5, 1: 41}
    while mill.turn():
        pass
    assert mill.calls == calls(mill.declared.tree, streams)


def test_a_run_does_not_end_within_a_window() -> None:
    """The joined stream has ended before the master's next element, and a later one still belongs to the window."""
    streams = {L: elements(L, [[3, 4, 5, 6]]), R: elements(R, [[3]])}
    mill = offline_mill(
        windowed_pair, {stream: with_ends(own) for stream, own in streams.items()}, join_tree=WINDOW_JOIN
    )
    left, right = mill.broker.streams[L], mill.broker.streams[R]
    left.arrived, right.arrived = {0: 2}, {0: 2}
    mill.turn()
    left.arrived = {0: 4}
    mill.turn()
    assert (mill.calls, mill.ends) == (calls(mill.declared.tree, streams), 1)


def test_elements_of_the_key_at_which_the_function_ended_a_run_wait_for_the_next() -> None:
    """A partition of the master that had ended is waited for again: a turn passes neither them nor their partners."""
    streams = {L: elements(L, [[0], [1, 1, 2]]), R: elements(R, [[0, 1, 3]])}
    ends = {stream: [[*own, END, END] for own in partitions] for stream, partitions in streams.items()}
    mill = offline_mill(pair, ends, join_tree=JOIN)
    mill.enders = {"L1.0"}
    left, right = mill.broker.streams[L], mill.broker.streams[R]
    left.arrived, right.arrived = {0: 2, 1: 1}, {0: 3}
    mill.turn()
    left.arrived = {0: 2, 1: 3}
    mill.turn()
    assert mill.ends == 1
    right.arrived = {0: 5}
    mill.turn()
    left.arrived = {0: 3, 1: 5}
    while mill.turn():
        pass
    assert mill.calls == calls(mill.declared.tree, streams)


def agrees(process: Any, streams: Mapping[Stream, list[list[Any]]], plan: list[Any], **declared: Any) -> bool:  # noqa: ANN401
    """Whether the turns together gave what the loops give, in their order, and the mill has come to its end."""
    mill = turned(process, streams, plan, **declared)
    return mill.ends > 0 and mill.calls == calls(mill.declared.tree, streams)


@settings(max_examples=100)
@given(partitions, partitions, cuts)
def test_a_join_is_the_same_in_whatever_turns(left: list[list[int]], right: list[list[int]], plan: list[Any]) -> None:
    """The horizon lets nothing out before its partners are there, and nothing twice."""
    assert agrees(pair, {L: elements(L, left), R: elements(R, right)}, plan, join_tree=JOIN)


@settings(max_examples=50)
@given(partitions, partitions, cuts)
def test_a_left_join_gives_lonely_masters_too(left: list[list[int]], right: list[list[int]], plan: list[Any]) -> None:
    """A master without a partner is given out once it can have none."""
    assert agrees(pair, {L: elements(L, left), R: elements(R, right)}, plan, join_tree=LEFT)


@settings(max_examples=60)
@given(partitions, partitions, partitions, cuts)
def test_a_star_waits_for_every_branch(
    left: list[list[int]], right: list[list[int]], other: list[list[int]], plan: list[Any]
) -> None:
    """Two edges with different keys: an element is final when both are."""
    assert agrees(three, {L: elements(L, left), R: elements(R, right), S: elements(S, other)}, plan, join_tree=STAR)


@settings(max_examples=60)
@given(partitions, partitions, partitions, cuts)
def test_a_chain_waits_for_the_partners_of_partners(
    left: list[list[int]], right: list[list[int]], other: list[list[int]], plan: list[Any]
) -> None:
    """A master is final when its partners are, all along the chain."""
    assert agrees(chain, {L: elements(L, left), R: elements(R, right), S: elements(S, other)}, plan, join_tree=CHAIN)


@settings(max_examples=100)
@given(partitions, partitions, partitions, cuts)
def test_a_chain_may_end_in_a_left_join(
    left: list[list[int]], right: list[list[int]], other: list[list[int]], plan: list[Any]
) -> None:
    """Partners without partners of their own stay."""
    assert agrees(
        chain, {L: elements(L, left), R: elements(R, right), S: elements(S, other)}, plan, join_tree=CHAIN_LEFT
    )


@settings(max_examples=50)
@given(partitions, cuts)
def test_windows_are_never_split_between_turns(left: list[list[int]], plan: list[Any]) -> None:
    """An open window stays unread, however many partitions it has elements in."""
    assert agrees(windowed, {L: elements(L, left)}, plan, stream_cls=window(L, K // 3))


@settings(max_examples=100)
@given(st.lists(st.integers(0, 3), max_size=15), cuts)
def test_windows_of_one_partition_are_runs_of_neighbours(keys: list[int], plan: list[Any]) -> None:
    """Their keys may go up and down."""
    assert agrees(windowed, {L: elements(L, [keys])}, plan, stream_cls=window(L, K))


@settings(max_examples=50)
@given(partitions, partitions, cuts)
def test_windows_of_joined_masters_are_never_split(
    left: list[list[int]], right: list[list[int]], plan: list[Any]
) -> None:
    """A window is given out when all its elements are final and no other can belong to it."""
    assert agrees(windowed_pair, {L: elements(L, left), R: elements(R, right)}, plan, join_tree=WINDOW_JOIN)


@settings(max_examples=100)
@given(partitions, partitions, cuts)
def test_windows_that_a_function_tells_wait_for_the_partners_of_their_elements(
    left: list[list[int]], right: list[list[int]], plan: list[Any]
) -> None:
    """Decided once, in the order of the master over its partitions, and given out when every element is final."""
    assert agrees(windowed_pair, {L: elements(L, left), R: elements(R, right)}, plan, join_tree=TOLD_WINDOW_JOIN)


@settings(max_examples=100)
@given(partitions, partitions, cuts)
def test_windows_that_a_function_tells_go_with_a_left_join_too(
    left: list[list[int]], right: list[list[int]], plan: list[Any]
) -> None:
    """By another key, and with masters that have no partner."""
    assert agrees(windowed_pair, {L: elements(L, left), R: elements(R, right)}, plan, join_tree=TOLD_WINDOW_OTHER_KEY)


def test_a_partition_that_is_added_later_must_not_bring_what_was_joined_already() -> None:
    """Its elements would find no master any more, without a word."""
    streams = {L: [[*elements(L, [[1, 5]])[0]]], R: [[*elements(R, [[1, 9]])[0]]]}
    mill = offline_mill(pair, streams, join_tree=JOIN)
    right = mill.broker.streams[R]
    right.arrived = mill.broker.streams[L].arrived = {0: 2}
    mill.turn()
    right.partitions, right.arrived = [*right.partitions, [R(3, "late")]], {0: 2, 1: 1}
    with pytest.raises(KeyDecreased) as caught:
        mill.turn()
    assert (caught.value.stream, caught.value.position, caught.value.key) == ("R", "partition 1, offset 0", "3")
