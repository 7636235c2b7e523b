"""The safe horizon: which master elements can have no further partner, and what every stream still has to keep.

Pure values, no Spark. Every node of a join tree is ordered by its key 0; key 1 + i is what its i-th branch is joined
by. Keys never decrease along a lane (a partition), so whatever holds for one element holds for all before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal, TypeAlias, TypeVar

from floodmark.hwm import Json
from floodmark.stores.record import JobRecord

Keys: TypeAlias = tuple[Any, ...]
Level: TypeAlias = tuple[Any, ...]
"""Where a cut lies among keys; levels compare as tuples do. An element with key k stands at (0, k, lane, offset)."""
State = Literal["live", "ended", "idle"]
NOTHING: Level = (-1,)
EVERYTHING: Level = (1,)
PAST = 1 << 62


def at(key: object) -> Level:
    """Just below all elements with this key."""
    return (0, key)


def past(key: object) -> Level:
    """Just above all elements with this key."""
    return (0, key, PAST)


@dataclass(frozen=True)
class Piece:
    """Neighbouring elements of a lane: offsets from `first` to before `next`, with their lowest and highest keys.

    `run` is where the last run of equal keys 0 within it begins; None if the whole piece goes on with the run before.
    """

    first: int
    next: int
    count: int
    low: Keys
    high: Keys
    run: int | None = None


@dataclass(frozen=True)
class Lane:
    """One partition of a stream as a turn sees it: its elements from `first` to before `next` are still to be passed.

    `last` are the highest keys ever seen in it. An ended lane gets no more elements: its end is the message at `next`
    where `has_end_message`, which is passed with the last element; `has_rest` if elements follow it, which are for the
    next run. An idle lane is not waited for.
    """

    first: int
    next: int
    pieces: tuple[Piece, ...] = ()
    last: Keys | None = None
    state: State = "live"
    has_end_message: bool = False
    has_rest: bool = False

    @property
    def beyond(self) -> int:
        """The offset behind all of it, its end included."""
        return self.next + 1 if self.has_end_message else self.next

    def passed(self, level: Level) -> int:
        """The first offset at which an element may stand at or above the level."""
        held = (piece.first for piece in self.pieces if at(piece.high[0]) >= level)
        return next(held, self.beyond)

    def read_below(self, level: Level) -> int:
        """The offset behind the last element that may stand below the level."""
        wanted = [piece.next for piece in self.pieces if at(piece.low[0]) < level]
        return wanted[-1] if wanted else self.first


Lanes: TypeAlias = Mapping[int, Lane]
Seen: TypeAlias = Mapping[str, Lanes]


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
    """Masters below `until` are final. `needed` is the level, per stream, from which elements are still needed."""

    until: Level
    needed: Mapping[str, Level]
    stops: bool
    waits_for: frozenset[tuple[str, int]]
    """Lanes (stream, partition) that hold the horizon where it is: unless one of them rises, it will not."""


def horizon(root: Node, seen: Seen, done: Level = NOTHING) -> Horizon:
    """The horizon of a whole tree; `done` is what earlier turns have reached, and it never falls below that."""
    end, final = end_of(root, seen), final_below(root, seen)
    stops = end is not None and final >= end
    own = lowest(seen[root.name], 0)
    until = end if end is not None and stops else min(final, own)
    until = max(highest(seen[root.name]) if until == EVERYTHING else until, done)
    held = _holding(root, seen) | (_slowest(root.name, seen[root.name], 0, own) if own <= final else set())
    return Horizon(until, needed_from(root, seen, until), stops, frozenset(held))


def highest(lanes: Lanes) -> Level:
    """Above all that was ever seen."""
    return max((past(lane.last[0]) for lane in lanes.values() if lane.last), default=NOTHING)


def lowest(lanes: Lanes, key: int) -> Level:
    """The level of the slowest lane that is waited for: keys below it will not come any more."""
    live = [lane for lane in lanes.values() if lane.state == "live"]
    return min((_level(lane, key) for lane in live), default=EVERYTHING)


def end_of(node: Node, seen: Seen) -> Level | None:
    """The level of key 0 from which no element of the node matters any more; None while that is not known.

    A stream ends where its lanes do, or where an inner branch has ended and the node itself has gone beyond that.
    """
    lanes, ends = seen[node.name], []
    if all(lane.state == "ended" for lane in lanes.values()):
        ends.append(highest(lanes))
    for place, branch in enumerate(node.branches, start=1):
        end = end_of(branch.node, seen) if branch.is_inner else None
        if end is not None and _is_beyond(lanes, place, end):
            ends.append(end if branch.shares_key else _last_below(lanes, place, end))
    return min(ends, default=None)


def begun_apart(root: Node, seen: Seen) -> dict[str, int]:
    """How many elements of each stream stand before anything that they could be joined to, along the root's edges."""
    skipped: dict[str, int] = {}
    for place, branch in enumerate(root.branches, start=1):
        sides = {root.name: (seen[root.name], place), branch.node.name: (seen[branch.node.name], 0)}
        begin = max(_first(lanes, key) for lanes, key in sides.values())
        for name, (lanes, key) in sides.items():
            below = sum(p.count for lane in lanes.values() for p in lane.pieces if at(p.high[key]) < begin)
            skipped[name] = max(skipped.get(name, 0), below)
    return {name: count for name, count in skipped.items() if count}


def _first(lanes: Lanes, key: int) -> Level:
    return min((at(lane.pieces[0].low[key]) for lane in lanes.values() if lane.pieces), default=NOTHING)


def final_below(node: Node, seen: Seen) -> Level:
    """The level of key 0 below which every element of the node has all its partners, and they have theirs."""
    lanes, levels = seen[node.name], []
    for place, branch in enumerate(node.branches, start=1):
        level = _branch_level(lanes, place, branch, seen)
        levels.append(level if branch.shares_key else _first_from(lanes, place, level))
    return min(levels, default=EVERYTHING)


def _branch_level(lanes: Lanes, place: int, branch: Branch, seen: Seen) -> Level:
    """The safe horizon of one edge, in its own keys."""
    theirs, end = final_below(branch.node, seen), end_of(branch.node, seen)
    if branch.is_inner and end is not None and theirs >= end and _is_beyond(lanes, place, end):
        return EVERYTHING  # whatever comes on either side finds no partner
    return min(lowest(lanes, place), lowest(seen[branch.node.name], 0), theirs)


def _is_beyond(lanes: Lanes, key: int, end: Level) -> bool:
    return end == NOTHING or lowest(lanes, key) > end


def _first_from(lanes: Lanes, key: int, level: Level) -> Level:
    """In key 0: where the first elements stand whose other key may be at or above the level."""
    if level == NOTHING:
        return NOTHING
    held = [next((p for p in lane.pieces if at(p.high[key]) >= level), None) for lane in lanes.values()]
    return min((at(piece.low[0]) for piece in held if piece), default=EVERYTHING)


def _last_below(lanes: Lanes, key: int, level: Level) -> Level:
    """In key 0: above the last elements whose other key may be below the level."""
    below = [p for lane in lanes.values() for p in lane.pieces if at(p.low[key]) < level]
    return max((past(piece.high[0]) for piece in below), default=NOTHING)


def needed_from(root: Node, seen: Seen, until: Level) -> dict[str, Level]:
    """From the root down: an element is needed while a left one that is still to come, or to be joined, may want it."""
    needed = {root.name: until}
    for place, branch in enumerate(root.branches, start=1):
        level = until if branch.shares_key and until < EVERYTHING else _wanted(seen[root.name], place, until)
        needed.update(needed_from(branch.node, seen, level))
    return needed


def _wanted(lanes: Lanes, key: int, level: Level) -> Level:
    return min((_wanted_by(lane, key, level) for lane in lanes.values()), default=EVERYTHING)


def _wanted_by(lane: Lane, key: int, level: Level) -> Level:
    held = next((piece for piece in lane.pieces if at(piece.high[0]) >= level), None)
    if held is not None:
        return at(held.low[key])
    if lane.last is None:
        return EVERYTHING if lane.state == "ended" else NOTHING
    return past(lane.last[key]) if lane.state == "ended" else at(lane.last[key])


def _holding(root: Node, seen: Seen) -> set[tuple[str, int]]:
    """The slowest lanes, over both sides of every edge."""
    held: set[tuple[str, int]] = set()
    for place, branch in enumerate(root.branches, start=1):
        level = min(lowest(seen[root.name], place), lowest(seen[branch.node.name], 0))
        held |= _slowest(root.name, seen[root.name], place, level)
        held |= _slowest(branch.node.name, seen[branch.node.name], 0, level)
        held |= _holding(branch.node, seen)
    return held


def _slowest(name: str, lanes: Lanes, key: int, level: Level) -> set[tuple[str, int]]:
    live = {number: lane for number, lane in lanes.items() if lane.state == "live"}
    return {(name, number) for number, lane in live.items() if _level(lane, key) <= level}


def _level(lane: Lane, key: int) -> Level:
    return at(lane.last[key]) if lane.last else NOTHING


# What a mill keeps in its record beside the marks: how high each partition's keys were, and which have ended.
Part = TypeVar("Part")


@dataclass(frozen=True)
class Memory:
    """What is remembered of one stream: by partition the highest keys, the next unseen offset, and where it ended.

    `done` and `stopped` are kept with the master: the level below which everything was given to the function, and
    whether the mill has come to its end. `promised` is kept with the others: the level below which masters were given
    out without waiting for partners. `has_rest`: elements were seen behind an end, which the next run reads.
    """

    last: Mapping[int, Keys] = field(default_factory=dict)
    seen: Mapping[int, int] = field(default_factory=dict)
    ended: Mapping[int, int] = field(default_factory=dict)
    done: Level = NOTHING
    promised: Level = NOTHING
    stopped: bool = False
    has_rest: bool = False
    expressions: tuple[str, ...] = ()
    """What the keys in `last` are, in their order."""

    def to_json(self) -> dict[str, Json]:
        return {
            "last": {str(lane): [key_to_json(key) for key in keys] for lane, keys in self.last.items()},
            "seen": {str(lane): offset for lane, offset in self.seen.items()},
            "ended": {str(lane): offset for lane, offset in self.ended.items()},
            "done": level_to_json(self.done),
            "promised": level_to_json(self.promised),
            "stopped": self.stopped,
            "has_rest": self.has_rest,
            "expressions": list(self.expressions),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Memory:
        """What a record holds; an empty memory if the stream is new to it."""
        if "last" not in stored:  # a source may have left something there before the first turn
            return cls()
        return cls(
            last={int(lane): tuple(map(key_from_json, keys)) for lane, keys in stored["last"].items()},
            seen={int(lane): offset for lane, offset in stored["seen"].items()},
            ended={int(lane): offset for lane, offset in stored["ended"].items()},
            done=level_from_json(stored["done"]),
            promised=level_from_json(stored.get("promised", NOTHING)),
            stopped=stored["stopped"],
            has_rest=stored["has_rest"],
            expressions=tuple(stored.get("expressions", ())),
        )

    def in_terms_of(self, expressions: Sequence[str]) -> Memory:
        """The same for a tree that has these keys: with another node, one key may be asked for more often, or less."""
        if not self.expressions or self.expressions == tuple(expressions):
            return self
        if not set(expressions) <= set(self.expressions):
            return replace(self, last={}, expressions=tuple(expressions))
        places = [self.expressions.index(each) for each in expressions]
        last = {lane: tuple(keys[place] for place in places) for lane, keys in self.last.items()}
        return replace(self, last=last, expressions=tuple(expressions))

    def begun_anew(self) -> Memory:
        """For the run after the one that ended: ended partitions go on behind their end, and their keys begin anew."""
        has_ended = bool(self.seen) and self.ended.keys() >= self.seen.keys()
        return Memory(
            last={lane: keys for lane, keys in self.last.items() if lane not in self.ended},
            seen=self.seen,
            done=NOTHING if has_ended else self.done,
            expressions=self.expressions,
        )


def forgotten(record: JobRecord, streams: Sequence[str]) -> JobRecord:
    """The record without these streams."""
    return replace(
        record,
        marks=_without(record.marks, streams),
        sources=_without(record.sources, streams),
        extras=record.extras.without(streams),
    )


def _without(part: Mapping[str, Part], streams: Sequence[str]) -> dict[str, Part]:
    return {name: own for name, own in part.items() if name not in streams}


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
