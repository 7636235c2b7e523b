"""Waiting: for what passes by itself, and longer after each failure in a row."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = TypeVar("Answer")


def patiently(
    act: Callable[[], Answer], *, seconds: float, passing: Callable[[Exception], bool], pause_seconds: float
) -> Answer:
    """The answer of the act, which is done again after a pause while its error is a passing one and time is left.

    Raises the last error as it came; one that does not pass is raised at once.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return act()
        except Exception as error:
            if time.monotonic() > deadline or not passing(error):
                raise
        time.sleep(pause_seconds)


def doubling_pause(first_seconds: float, failures: int, longest_seconds: float) -> float:
    """How long to wait after so many failures in a row (one or more): twice as long each time, up to the longest."""
    return min(longest_seconds, first_seconds * 2.0 ** min(failures - 1, 32))
