"""Timing two ways of doing the same thing, turn by turn, so that a noisy machine disturbs both alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

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
) -> Result:
    """The median over the rounds of our time against the reference's; the round 0 of each warms up."""
    reference(0)
    ours(0)
    times = [(seconds(partial(reference, turn)), seconds(partial(ours, turn))) for turn in range(1, rounds + 1)]
    ratio = statistics.median(own / plain for plain, own in times)
    plain, own = (statistics.median(column) for column in zip(*times, strict=True))
    return Result(
        name, ratio, at_most, f"{of}: reference {plain:.2f} s, Floodmark {own:.2f} s, median of {rounds} rounds"
    )
