"""Windows whose key a function tells, perhaps by the clock: decided once, in the driver, in the order of arrival."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from floodmark.errors import ConfigError, ElementInvalid
from floodmark.mill.declaration import Declaration
from floodmark.mill.join_tree import name_of
from floodmark.mill.keys import Key
from floodmark.spark.faults import position_text

Ranges: TypeAlias = "dict[int, tuple[int, int]]"
"""The elements of one window: in each partition the first offset and the one behind the last."""


@dataclass
class TimedWindows:
    """The windows of one stream that are not given out yet; the last of them is open.

    What is lost with the process are only windows that nobody was given: their elements are behind the mark, and the
    function is asked again. Windows that are given out stand in the intent.
    """

    key: Key
    poll_seconds: float | None = None
    now: Callable[[], float] = time.monotonic
    seen: dict[int, int] = field(default_factory=dict)
    windows: list[Ranges] = field(default_factory=list)
    last: object = None
    asked: float = 0.0

    def __post_init__(self) -> None:
        self.asked = self.now()

    def begin_at(self, firsts: Mapping[int, int]) -> None:
        """The mark stands here: what lies before it was given out, by this process or by another."""
        is_open_and_empty = self.windows[-1:] == [{}]
        self.windows = [rest for window in self.windows if (rest := _from(window, firsts))]
        self.windows += [{}] if is_open_and_empty else []
        for lane, first in firsts.items():
            self.seen[lane] = max(self.seen.get(lane, first), first)

    def forget(self) -> None:
        """Every element is to be asked about anew."""
        self.seen, self.windows, self.last = {}, [], None

    def take(self, rows: Iterable[tuple[int, int, str | None]]) -> None:
        """New elements, each with partition, offset and text. Raises ElementInvalid if one has no key."""
        for lane, offset, text in rows:
            key = self._key(lane, offset, text)
            if not self.windows or key != self.last:
                self._open(key)
            first, _ = self.windows[-1].get(lane, (offset, offset))
            self.windows[-1][lane] = (first, offset + 1)
            self.seen[lane], self.asked = offset + 1, self.now()

    def poll(self) -> None:
        """Nothing came for a while: ask whether the open window is over."""
        if not self.is_due():
            return
        self.asked = self.now()
        key = self.key.of(None)
        if self.windows and key != self.last:
            self._open(key)
        self.last = key

    def is_due(self) -> bool:
        """Whether an idle stream has to be asked again."""
        return self.poll_seconds is not None and self.now() - self.asked >= self.poll_seconds

    def closed(self, *, ended: bool) -> list[Ranges]:
        """The windows that are over."""
        over = self.windows if ended else self.windows[:-1]
        return [window for window in over if window]

    def _open(self, key: object) -> None:
        self.windows = [window for window in self.windows if window]
        self.windows.append({})
        self.last = key

    def _key(self, lane: int, offset: int, text: str | None) -> object:
        try:
            return self.key.of(self.key.codec.values_from_text(text or "null"))
        except ElementInvalid as error:
            raise error.at(position_text(lane, offset)) from error


def timed_windows(declared: Declaration, poll_seconds: float | None) -> TimedWindows | None:
    """The windows of a mill, if a function tells them.

    Raises ConfigError where `poll_timeout` is given and nobody could be asked on an idle poll.
    """
    key = declared.window_key
    if poll_seconds is not None and declared.tree.edges:
        raise _not_polled(declared, "it is joined, and a window waits for the partners of its elements")
    if key is None or not declared.tree.has_told_windows:
        if poll_seconds is not None and key is not None:
            raise _not_polled(declared, "windows by fields have nothing to say about an idle poll")
        return None
    if poll_seconds is not None:
        _require_an_answer(declared, key)
    return TimedWindows(key, poll_seconds)


def _require_an_answer(declared: Declaration, key: Key) -> None:
    try:
        key.of(None)
    except ElementInvalid as error:
        raise _not_polled(declared, f"its window expression fails on None: {error.reason}") from error


def _not_polled(declared: Declaration, reason: str) -> ConfigError:
    return ConfigError(
        f"poll_timeout does not go with {name_of(declared.tree.root)}: {reason}.",
        hint="give a single stream with window_expression=function_call(…) that takes None, or leave poll_timeout out",
    )


def _from(window: Ranges, firsts: Mapping[int, int]) -> Ranges:
    """What of a window lies behind the mark."""
    kept: dict[int, tuple[int, int]] = {}
    for lane, (first, upto) in window.items():
        begin = max(first, firsts.get(lane, first))
        if begin < upto:
            kept[lane] = (begin, upto)
    return kept


def ranges_to_json(windows: Iterable[Ranges]) -> list[Any]:
    """Windows as an intent holds them."""
    return [[[lane, first, upto] for lane, (first, upto) in window.items()] for window in windows]


def numbers_by_lane(stored: Iterable[Any]) -> dict[int, list[tuple[int, int, int]]]:
    """For each partition: first offset, offset behind the last, and number of every window, in order."""
    found: dict[int, list[tuple[int, int, int]]] = {}
    for number, window in enumerate(stored):
        for lane, first, upto in window:
            found.setdefault(lane, []).append((first, upto, number))
    return {lane: sorted(ranges) for lane, ranges in found.items()}
