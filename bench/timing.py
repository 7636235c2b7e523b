"""Timing two ways of doing the same thing, turn by turn, so that a noisy machine disturbs both alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from run import Result


def seconds(act: Callable[[], object]) -> float:
    begun = time.monotonic()
    act()
    return time.monotonic() - begun


def compare(
    name: str,
    reference: Callable[[int], object],
    ours: Callable[[int], object],
    *,
    at_most: float,
    rounds: int,
    of: str,
    clock: Callable[[Callable[[], object]], float] = seconds,
) -> Result:
    """The median over the rounds of our time against the reference's; the round 0 of each warms up.

    Who goes first changes from round to round: the second finds caches warm, and a heap that is full.
    """
    reference(0)
    ours(0)
    times = [_round(turn, reference, ours, clock) for turn in range(1, rounds + 1)]
    plain, own = zip(*times, strict=True)
    ratio = statistics.median(mine / theirs for theirs, mine in times)
    medians = f"reference {statistics.median(plain):.2f} s, Floodmark {statistics.median(own):.2f} s"
    return Result(name, ratio, at_most, f"{of}: {medians}, median of {rounds} rounds", ours=own, reference=plain)


def _round(
    turn: int,
    reference: Callable[[int], object],
    ours: Callable[[int], object],
    clock: Callable[[Callable[[], object]], float],
) -> tuple[float, float]:
    if turn % 2:
        plain = clock(lambda: reference(turn))
        return plain, clock(lambda: ours(turn))
    own = clock(lambda: ours(turn))
    return clock(lambda: reference(turn)), own
