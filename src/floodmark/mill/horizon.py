"""The safe horizon: which master elements can have no further partner, and what every stream still has to keep.

Pure values, no Spark. Every node of a join tree is ordered by its key 0; key 1 + i is what its i-th branch is joined
by. Keys never decrease along a partition, so whatever holds for one element holds for all before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from floodmark.hwm import Json

Keys: TypeAlias = tuple[Any, ...]
Level: TypeAlias = tuple[Any, ...]
"""Where a cut lies among keys, compared as tuples are. An element with key k stands at (0, k, partition, offset)."""
State = Literal["live", "ended", "idle"]
NOTHING: Level = (-1,)
EVERYTHING: Level = (1,)
PAST = 1 << 62
UNBOUNDED = 1 << 64
"""The end of a partition whose source cannot say it."""


def at(key: object) -> Level:
    """Just below all elements with this key."""
    return (0, key)


def past(key: object) -> Level:
    """Just above all elements with this key."""
    return (0, key, PAST)


def first_of_key(level: Level) -> Level:
    """For a level between two elements with one key, just below all of them: those behind it are still needed."""
    return level[:2] if len(level) > len(past(None)) else level


@dataclass(frozen=True)
class KeyRange:
    """Neighbouring elements of a partition: offsets from `first` to before `next`, with their lowest and highest keys.

    `run` is where the last run of equal keys 0 within it begins; None if all of it goes on with the run before.
    """

    first: int
    next: int
    count: int
    low: Keys
    high: Keys
    run: int | None = None


@dataclass(frozen=True)
class PartitionView:
    """One partition of a stream as a turn sees it: its elements from `first` to before `next` are still to be passed.

    `last` are the highest keys ever seen in it. An ended partition gets no more elements: its end is the message at
    `next` where `has_end_message`, which is passed with the last element; `has_rest` if elements follow it, which are
    for the next run. An idle partition is not waited for.
    """

    first: int
    next: int
    key_ranges: tuple[KeyRange, ...] = ()
    last: Keys | None = None
    state: State = "live"
    has_end_message: bool = False
    has_rest: bool = False

    @property
    def beyond(self) -> int:
        """The offset behind all of it, its end included."""
        return self.next + 1 if self.has_end_message else self.next

    def can_be_passed_to(self, offset: int) -> bool:
        """Whether a mark can stand there: a stream without an end, a table, is passed as a whole or not at all."""
        return self.next < UNBOUNDED or offset >= UNBOUNDED

    def first_from(self, level: Level) -> int:
        """The first offset at which an element may stand at or above the level."""
        held = self.range_from(0, level)
        return held.first if held is not None else self.beyond

    def range_from(self, key: int, level: Level) -> KeyRange | None:
        """The first neighbours of which one may have this key at or above the level."""
        return next((each for each in self.key_ranges if at(each.high[key]) >= first_of_key(level)), None)

    def level(self, key: int) -> Level:
        """Keys below this will not come any more."""
        return at(self.last[key]) if self.last else NOTHING

    def end_below(self, level: Level) -> int:
        """The offset behind the last element that may stand below the level."""
        ends = [each.next for each in self.key_ranges if at(each.low[0]) < level]
        return ends[-1] if ends else self.first


Partitions: TypeAlias = Mapping[int, PartitionView]
StreamViews: TypeAlias = Mapping[str, Partitions]


@dataclass(frozen=True)
class Branch:
    """A node that is joined to another. `shares_key`: the other one is joined by the key that orders it."""

    node: Node
    is_inner: bool = True
    shares_key: bool = False


@dataclass(frozen=True)
class Node:
    """A stream of the join tree, by its name."""

    name: str
    branches: tuple[Branch, ...] = ()


@dataclass(frozen=True)
class Horizon:
    """Masters below `until` are final. `needed_levels`: the level, per stream, from which elements are still needed."""

    until: Level
    needed_levels: Mapping[str, Level]
    stops: bool
    waits_for: frozenset[tuple[str, int]]
    """Partitions (stream, partition) that hold the horizon where it is: unless one of them rises, it will not."""


def horizon(root: Node, views: StreamViews, done: Level = NOTHING) -> Horizon:
    """The horizon of a whole tree; `done` is what earlier turns have reached, and it never falls below that."""
    end, final = end_of(root, views), final_below(root, views)
    stops = end is not None and final >= end
    own = lowest(views[root.name], 0)
    until = end if end is not None and stops else min(final, own)
    until = max(above_all(views[root.name]) if until == EVERYTHING else until, done)
    held = _holding_partitions(root, views)
    held |= _slowest_partitions(root.name, views[root.name], 0, own) if own <= final else set()
    return Horizon(until, needed_from(root, views, until), stops, frozenset(held))


def above_all(partitions: Partitions, key: int = 0) -> Level:
    """Above all that was ever seen."""
    return max((past(partition.last[key]) for partition in partitions.values() if partition.last), default=NOTHING)


def lowest(partitions: Partitions, key: int) -> Level:
    """The level of the slowest partition that is waited for: keys below it will not come any more."""
    live = [partition for partition in partitions.values() if partition.state == "live"]
    return min((partition.level(key) for partition in live), default=EVERYTHING)


def end_of(node: Node, views: StreamViews) -> Level | None:
    """The level of key 0 from which no element of the node matters any more; None while that is not known.

    A stream ends where its partitions do, or where an inner branch has ended and the node itself has gone beyond that:
    in the key of the branch, and in key 0, of which other elements could still come with the same one.
    """
    partitions, ends = views[node.name], []
    if all(partition.state == "ended" for partition in partitions.values()):
        ends.append(above_all(partitions))
    for place, branch in enumerate(node.branches, start=1):
        end = end_of(branch.node, views) if branch.is_inner else None
        if end is None or not _is_beyond(partitions, place, end):
            continue
        own = end if branch.shares_key else _last_below(partitions, place, end)
        if branch.shares_key or lowest(partitions, 0) >= own:
            ends.append(own)
    return min(ends, default=None)


def count_skipped(root: Node, views: StreamViews) -> dict[str, int]:
    """How many elements of each stream stand before anything that they could be joined to, along the root's edges."""
    skipped: dict[str, int] = {}
    for place, branch in enumerate(root.branches, start=1):
        sides = {root.name: (views[root.name], place), branch.node.name: (views[branch.node.name], 0)}
        begin = max(_begin(partitions, key) for partitions, key in sides.values())
        for name, (partitions, key) in sides.items():
            below = sum(each.count for each in _all_ranges(partitions) if at(each.high[key]) < begin)
            skipped[name] = max(skipped.get(name, 0), below)
    return {name: count for name, count in skipped.items() if count}


def _begin(partitions: Partitions, key: int) -> Level:
    return min((at(each.low[key]) for each in _all_ranges(partitions)), default=NOTHING)


def _all_ranges(partitions: Partitions) -> list[KeyRange]:
    return [each for partition in partitions.values() for each in partition.key_ranges]


def final_below(node: Node, views: StreamViews) -> Level:
    """The level of key 0 below which every element of the node has all its partners, and they have theirs."""
    partitions, levels = views[node.name], []
    for place, branch in enumerate(node.branches, start=1):
        level = _branch_level(partitions, place, branch, views)
        levels.append(level if branch.shares_key else _first_with(partitions, place, level))
    return min(levels, default=EVERYTHING)


def _branch_level(partitions: Partitions, place: int, branch: Branch, views: StreamViews) -> Level:
    """The safe horizon of one edge, in its own keys."""
    theirs, end = final_below(branch.node, views), end_of(branch.node, views)
    if branch.is_inner and end is not None and theirs >= end and _is_beyond(partitions, place, end):
        return EVERYTHING  # whatever comes on either side finds no partner
    return min(lowest(partitions, place), lowest(views[branch.node.name], 0), theirs)


def _is_beyond(partitions: Partitions, key: int, end: Level) -> bool:
    return end == NOTHING or lowest(partitions, key) > end


def _first_with(partitions: Partitions, key: int, level: Level) -> Level:
    """In key 0: where the first elements stand whose other key may be at or above the level."""
    if level == NOTHING:
        return NOTHING
    held = [partition.range_from(key, level) for partition in partitions.values()]
    return min((at(each.low[0]) for each in held if each), default=EVERYTHING)


def _last_below(partitions: Partitions, key: int, level: Level) -> Level:
    """In key 0: above the last elements whose other key may be below the level."""
    below = [each for each in _all_ranges(partitions) if at(each.low[key]) < level]
    return max((past(each.high[0]) for each in below), default=NOTHING)


def needed_from(root: Node, views: StreamViews, until: Level) -> dict[str, Level]:
    """From the root down: an element is needed while a left one that is still to come, or to be joined, may want it."""
    needed = {root.name: until}
    for place, branch in enumerate(root.branches, start=1):
        level = until if branch.shares_key and until < EVERYTHING else _needed_by(views[root.name], place, until)
        needed.update(needed_from(branch.node, views, level))
    return needed


def _needed_by(partitions: Partitions, key: int, level: Level) -> Level:
    return min((_needed_by_one(partition, key, level) for partition in partitions.values()), default=EVERYTHING)


def _needed_by_one(partition: PartitionView, key: int, level: Level) -> Level:
    held = partition.range_from(0, level)
    if held is not None:
        return at(held.low[key])
    if partition.last is None:
        return EVERYTHING if partition.state == "ended" else NOTHING
    return past(partition.last[key]) if partition.state == "ended" else at(partition.last[key])


def promised_levels(root: Node, views: StreamViews) -> dict[str, Level]:
    """By joined stream: the level, in its key 0, below which elements were given out without waiting for partners."""
    levels: dict[str, Level] = {}
    for place, branch in enumerate(root.branches, start=1):
        lefts, rights = views[root.name], views[branch.node.name]
        level = min(lowest(lefts, place), lowest(rights, 0))
        levels[branch.node.name] = above_all(lefts, place) if level == EVERYTHING else level
        levels |= promised_levels(branch.node, views)
    return levels


def _holding_partitions(root: Node, views: StreamViews) -> set[tuple[str, int]]:
    """The slowest partitions, over both sides of every edge."""
    held: set[tuple[str, int]] = set()
    for place, branch in enumerate(root.branches, start=1):
        level = min(lowest(views[root.name], place), lowest(views[branch.node.name], 0))
        held |= _slowest_partitions(root.name, views[root.name], place, level)
        held |= _slowest_partitions(branch.node.name, views[branch.node.name], 0, level)
        if not branch.shares_key:
            held |= _slowest_partitions(root.name, views[root.name], 0, lowest(views[root.name], 0))
        held |= _holding_partitions(branch.node, views)
    return held


def _slowest_partitions(name: str, partitions: Partitions, key: int, level: Level) -> set[tuple[str, int]]:
    live = {number: partition for number, partition in partitions.items() if partition.state == "live"}
    return {(name, number) for number, partition in live.items() if partition.level(key) <= level}


def level_to_json(level: Level) -> Json:
    """A level as a record holds it."""
    kind, *rest = level
    return [kind, *map(key_to_json, rest)]


def level_from_json(stored: Any) -> Level:  # noqa: ANN401 (out of a record)
    """The level that was stored."""
    kind, *rest = stored
    return (kind, *map(key_from_json, rest))


def key_to_json(key: Any) -> Json:  # noqa: ANN401 (a key of whatever kind)
    """A key as JSON keeps it exactly."""
    return {"decimal": str(key)} if isinstance(key, Decimal) else key


def key_from_json(stored: Any) -> Any:  # noqa: ANN401 (a key of whatever kind)
    """The key that was stored."""
    return Decimal(stored["decimal"]) if isinstance(stored, dict) else stored
