"""What a mill keeps in its record beside the marks: how high each partition's keys were, and which have ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, TypeVar

from floodmark.hwm import Json
from floodmark.mill.horizon import NOTHING, Keys, Level
from floodmark.stores.record import JobRecord

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
        extras=_without(record.extras, streams),
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
