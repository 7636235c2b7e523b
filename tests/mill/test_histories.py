"""Whole lives of a mill, thrown by dice: whatever arrives when, and whoever dies, the calls are those of the loops.

Turns are bounded, so that looks divide their elements anew; processes die before a turn is durable, or after it;
transactions leave holes in the offsets; and the function ends the stream at some elements, behind which the next run
goes on.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from floodmark.mill import function_call, window
from floodmark.mill.join_tree import Stream
from tests.mill.cases import L, R, S
from tests.mill.nested_loop import Match, calls
from tests.mill.offline import END, HOLE, OfflineMill, offline_mill
from tests.mill.test_planning import (
    CHAIN,
    CHAIN_LEFT,
    JOIN,
    LEFT,
    STAR,
    TOLD_WINDOW_JOIN,
    TOLD_WINDOW_OTHER_KEY,
    WINDOW_JOIN,
    K,
    chain,
    pair,
    thirds,
    three,
    windowed,
    windowed_pair,
)

pytestmark = pytest.mark.slow
RUNS = 6
"""So many ends stand in each partition: a run that the function ends leaves those of others to the next."""


@dataclass(frozen=True)
class Shape:
    """A mill, its streams, and how many partitions they may have."""

    name: str
    process: Any
    streams: Sequence[Stream]
    declared: Mapping[str, Any]
    most_partitions: int = 3

    def __str__(self) -> str:
        return self.name


SHAPES = [
    Shape("join", pair, [L, R], {"join_tree": JOIN}),
    Shape("left join", pair, [L, R], {"join_tree": LEFT}),
    Shape("star", three, [L, R, S], {"join_tree": STAR}),
    Shape("chain", chain, [L, R, S], {"join_tree": CHAIN}),
    Shape("left chain", chain, [L, R, S], {"join_tree": CHAIN_LEFT}),
    Shape("windows", windowed, [L], {"stream_cls": window(L, K // 3)}),
    Shape("joined windows", windowed_pair, [L, R], {"join_tree": WINDOW_JOIN}),
    Shape("joined windows by a function", windowed_pair, [L, R], {"join_tree": TOLD_WINDOW_JOIN}),
    Shape("the same by another key", windowed_pair, [L, R], {"join_tree": TOLD_WINDOW_OTHER_KEY}),
    Shape("windows by a function", windowed, [L], {"stream_cls": window(L, function_call(thirds))}, most_partitions=1),
]


def history(shape: Shape, seed: int, *, ends: bool) -> tuple[OfflineMill, list[list[Match]]]:
    """A mill at the end of a life that the seed decides, and what the loops give over all its streams."""
    dice = random.Random(f"{shape} {seed}")
    has_holes = dice.random() < 0.3
    topics = {stream: topic(stream, shape.most_partitions, dice, has_holes=has_holes) for stream in shape.streams}
    plain = {
        stream: [[e for e in own if e is not HOLE and e is not END] for own in topics[stream]] for stream in topics
    }
    mill = offline_mill(shape.process, topics, **shape.declared)
    mill.turn_elements = dice.choice([None, 1, 2, 3, 5, 8])
    mill.restart()
    masters = [element.name for own in plain[L] for element in own]
    mill.enders = set(dice.sample(masters, min(len(masters), dice.randint(1, 3)))) if ends else set()
    for _ in range(dice.randint(0, 25)):
        arrive(mill, dice)
        live_on(mill, dice)
    for source in mill.broker.streams.values():
        source.arrived = {number: len(own) for number, own in enumerate(source.partitions)}
    while live_on(mill, dice):
        pass
    return mill, calls(mill.declared.tree, plain)


def topic(stream: Any, most_partitions: int, dice: random.Random, *, has_holes: bool) -> list[list[Any]]:  # noqa: ANN401
    """Partitions of elements with rising keys, and the ends of all runs behind them."""
    highest, partitions = dice.choice([3, 6, 12]), []
    for number in range(dice.randint(1, most_partitions)):
        own: list[Any] = []
        for key in sorted(dice.randint(0, highest) for _ in range(dice.randint(0, 9))):
            own += [HOLE] * (has_holes and dice.random() < 0.2)
            own.append(stream(key, f"{stream.__name__}{number}.{len(own)}"))
        partitions.append([*own, *[HOLE] * (has_holes and dice.random() < 0.3), *[END] * RUNS])
    return partitions


def arrive(mill: OfflineMill, dice: random.Random) -> None:
    """A few more elements, in one partition of one stream."""
    source = dice.choice(list(mill.broker.streams.values()))
    number = dice.randrange(len(source.partitions))
    source.arrived[number] = min(source.arrived.get(number, 0) + dice.randint(1, 6), len(source.partitions[number]))


def live_on(mill: OfflineMill, dice: random.Random) -> bool:
    """A turn, or one that fails or dies before it is durable; False if there is nothing to do."""
    if dice.random() < 0.2:
        has_work = mill.intend() is not None
        mill.step.run_state.forget_look()
    else:
        has_work = mill.turn()
    if dice.random() < 0.2:
        mill.restart()
    return has_work


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_mill_gives_out_what_the_loops_do_however_it_lives(shape: Shape) -> None:
    """Nothing is lost, nothing comes twice, and all of it in the order of the master."""
    lives = {seed: history(shape, seed, ends=False) for seed in range(25)}
    assert [seed for seed, (mill, expected) in lives.items() if mill.calls != expected] == []


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_next_run_goes_on_behind_the_element_at_which_the_function_ended_one(shape: Shape) -> None:
    """With the same partners for the elements behind it, also for those of the same key."""
    lives = {seed: history(shape, seed, ends=True) for seed in range(25)}
    assert [seed for seed, (mill, expected) in lives.items() if mill.calls != expected] == []


@pytest.mark.crash
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("ends", [False, True], ids=["", "with ends"])
def test_thousands_of_lives(shape: Shape, ends: bool) -> None:
    """The same for as long as it may take: some half a minute for each shape."""
    lives = {seed: history(shape, seed, ends=ends) for seed in range(100, 1_100)}
    assert [seed for seed, (mill, expected) in lives.items() if mill.calls != expected] == []
