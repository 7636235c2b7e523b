"""The safe horizon, in literal keys: what is final, what is still needed, who is waited for, when a mill stops."""

from __future__ import annotations

from floodmark.mill.horizon import (
    EVERYTHING,
    NOTHING,
    Branch,
    KeyRange,
    Node,
    PartitionView,
    State,
    at,
    count_skipped,
    horizon,
    past,
    promised_levels,
)

JOIN = Node("l", (Branch(Node("r"), shares_key=True),))
LEFT = Node("l", (Branch(Node("r"), is_inner=False, shares_key=True),))
CHAIN = Node("l", (Branch(Node("r", (Branch(Node("s"), shares_key=True),)), shares_key=True),))
HALVED = Node("l", (Branch(Node("r")),))
"""Joined by another expression than the one that orders it: key 1."""


def partition(*keys: int, state: State = "live", ends: bool = False, places: int = 2) -> PartitionView:
    """A partition with these keys, an element each; every one of its keys has the same value."""
    key_ranges = tuple(KeyRange(n, n + 1, 1, (key,) * places, (key,) * places, n) for n, key in enumerate(keys))
    last = (keys[-1],) * places if keys else None
    return PartitionView(0, len(keys), key_ranges, last, "ended" if ends else state, has_end_message=ends)


def halved(*keys: int) -> PartitionView:
    """A partition whose elements are joined by half of the key that orders them."""
    key_ranges = tuple(KeyRange(n, n + 1, 1, (key, key // 2), (key, key // 2), n) for n, key in enumerate(keys))
    return PartitionView(0, len(keys), key_ranges, (keys[-1], keys[-1] // 2))


def test_the_horizon_is_the_slower_side_and_leaves_equals_out() -> None:
    """Another 3 may still come on the right, so the master's 3 has to wait."""
    found = horizon(JOIN, {"l": {0: partition(1, 2, 3, 4)}, "r": {0: partition(1, 3)}})
    assert found.until == at(3)


def test_the_masters_own_partitions_hold_it_too() -> None:
    """Output is in master order: a slower partition of the master may still bring lower keys."""
    found = horizon(JOIN, {"l": {0: partition(1, 5), 1: partition(2)}, "r": {0: partition(9)}})
    assert found.until == at(2)


def test_a_partition_that_was_never_filled_holds_everything_and_is_named() -> None:
    """It may begin with any key."""
    found = horizon(JOIN, {"l": {0: partition(1, 5)}, "r": {0: partition(9), 1: partition()}})
    assert (found.until, ("r", 1) in found.waits_for) == (NOTHING, True)


def test_only_the_slower_side_is_waited_for() -> None:
    """More masters change nothing while the right side stands at 3: a turn need not even read them."""
    found = horizon(JOIN, {"l": {0: partition(1, 2, 3, 4)}, "r": {0: partition(1, 3)}})
    assert found.waits_for == {("r", 0)}


def test_an_idle_partition_is_not_waited_for() -> None:
    """Leaving it out is a choice."""
    found = horizon(JOIN, {"l": {0: partition(1, 5)}, "r": {0: partition(9), 1: partition(state="idle")}})
    assert found.until == at(5)


def test_an_ended_stream_holds_nothing() -> None:
    """What the others hold up to its last key is joined; the master is not beyond that yet."""
    found = horizon(JOIN, {"l": {0: partition(1, 3)}, "r": {0: partition(1, 3, ends=True)}})
    assert (found.until, found.stops) == (at(3), False)


def test_the_mill_stops_when_the_master_is_beyond_an_ended_stream() -> None:
    """No later master can find a partner; those behind the last key stay unread for the next run."""
    found = horizon(JOIN, {"l": {0: partition(1, 3, 4)}, "r": {0: partition(1, 3, ends=True)}})
    assert (found.until, found.stops) == (past(3), True)


def test_the_mill_stops_at_once_beside_a_stream_that_ended_empty() -> None:
    """Nothing can ever match, also if the master has not begun."""
    found = horizon(JOIN, {"l": {0: partition()}, "r": {0: partition(ends=True)}})
    assert (found.until, found.stops) == (NOTHING, True)


def test_a_left_join_goes_on_beside_a_stream_that_ended() -> None:
    """Its masters need no partner."""
    found = horizon(LEFT, {"l": {0: partition(1, 3, 4)}, "r": {0: partition(1, 3, ends=True)}})
    assert (found.until, found.stops) == (at(4), False)


def test_the_mill_stops_when_the_master_has_ended_and_all_of_it_is_final() -> None:
    """The right side is beyond the last master."""
    found = horizon(JOIN, {"l": {0: partition(1, 3, ends=True)}, "r": {0: partition(1, 3, 4)}})
    assert (found.until, found.stops) == (past(3), True)


def test_a_chain_holds_a_master_whose_partner_still_waits() -> None:
    """r 2 is not final before s is beyond 2, so neither is l 2."""
    found = horizon(CHAIN, {"l": {0: partition(1, 2, 5)}, "r": {0: partition(1, 2, 5)}, "s": {0: partition(1, 2)}})
    assert found.until == at(2)


def test_an_edge_with_another_key_is_translated_to_the_masters_own() -> None:
    """Halves below 3 are final: masters below 6."""
    found = horizon(HALVED, {"l": {0: halved(2, 4, 5, 6, 7, 8)}, "r": {0: partition(1, 2, 3)}})
    assert found.until == at(6)


def test_what_is_needed_begins_at_the_first_master_that_is_not_final() -> None:
    """Its mark stays before the right's 3; 1 and 2 are behind it."""
    right = partition(1, 2, 3, 3)
    found = horizon(JOIN, {"l": {0: partition(1, 2, 3, 4)}, "r": {0: right}})
    assert right.first_from(found.needed_levels["r"]) == 2


def test_a_right_stream_that_lags_keeps_only_what_masters_may_still_want() -> None:
    """The master's next key is 9: the right's 1 and 2 are passed, also where nothing follows them yet."""
    right = partition(1, 2)
    found = horizon(JOIN, {"l": {0: partition(9)}, "r": {0: right}}, done=at(2))
    assert right.first_from(found.needed_levels["r"]) == 1


def test_an_end_message_is_passed_with_the_last_element() -> None:
    """The offset behind the end, so that the next run begins there."""
    assert partition(1, 2, ends=True).first_from(EVERYTHING) == 3


def test_the_horizon_never_falls() -> None:
    """A new partition may be slower than what was given out before; it is found out by its keys."""
    found = horizon(JOIN, {"l": {0: partition(5)}, "r": {0: partition(5), 1: partition()}}, done=at(4))
    assert found.until == at(4)


def test_streams_that_begin_apart_are_counted() -> None:
    """Two right elements stand before the first master."""
    assert count_skipped(JOIN, {"l": {0: partition(3, 4)}, "r": {0: partition(1, 2, 3, 4)}}) == {"r": 2}


def test_what_was_promised_is_the_slower_side_of_an_edge_without_idle_partitions() -> None:
    """A partition that is not waited for may bring something lower later: that comes too late."""
    seen = {"l": {0: partition(1, 5)}, "r": {0: partition(1, 9), 1: partition(2, state="idle")}}
    assert promised_levels(JOIN, seen) == {"r": at(5)}


def test_with_idle_partitions_only_what_was_given_out_is_promised() -> None:
    """Nobody is waited for, and every master that was seen went out."""
    seen = {"l": {0: partition(1, 5, state="idle")}, "r": {0: partition(2, state="idle")}}
    assert promised_levels(JOIN, seen) == {"r": past(5)}
