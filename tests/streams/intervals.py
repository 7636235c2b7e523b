"""Calls that write down from when to when they ran, and in which process, so that a test can see them overlap."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Interval(NamedTuple):
    """One call: seconds of the machine's clock, which all its processes share."""

    start: float
    end: float
    process: int


def recording(path: Path, function: Callable[[Any], object]) -> Callable[[Any], object]:
    """The function, with every call written down when it has ended."""

    def recorded(value: Any) -> object:  # noqa: ANN401 (whatever it is given)
        start = time.monotonic()
        try:
            return function(value)
        finally:
            with path.open("ab", buffering=0) as file:
                file.write(f"{start} {time.monotonic()} {os.getpid()}\n".encode())

    return recorded


def read_intervals(path: Path) -> list[Interval]:
    """The calls that were written down."""
    words = [line.split() for line in path.read_text().splitlines()]
    return [Interval(float(start), float(end), int(process)) for start, end, process in words]


def most_at_once(intervals: list[Interval]) -> int:
    """How many calls were under way at the busiest moment."""
    return max(sum(each.start <= start < each.end for each in intervals) for start, _, _ in intervals)
