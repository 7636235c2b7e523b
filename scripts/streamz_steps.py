#!/usr/bin/env python3
"""The same pushed pipelines through streamz and through `floodmark.streams`: ends with 0 if their results are the same.

scripts/streamz_steps.py      in an environment that has streamz 0.6.6 beside this tree
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Pipeline = Callable[[Any], None]
NUMBERS = [3, 1, 3, 2, 2, 5, 1, 4, 4, 4, 0, 3]


def main() -> int:
    """Run all pipelines through both, and say which differ."""
    from streamz import Stream as Original  # type: ignore[import-not-found]

    from floodmark.streams import Stream

    differing = [name for name, run in PIPELINES.items() if run(Original) != run(Stream)]
    for name in PIPELINES:
        print(f"{'differs' if name in differing else 'same   '}  {name}")
    return 1 if differing else 0


def pushed(build: Callable[[Any], Any], numbers: list[int] | None = None) -> Callable[[Any], list[object]]:
    """What a pipeline with one source gives for the numbers."""

    def run(stream: Any) -> list[object]:  # noqa: ANN401 (the class of either)
        source, seen = stream(), []
        build(source).sink(seen.append)
        for number in NUMBERS if numbers is None else numbers:
            source.emit(number)
        return seen

    return run


def joined(build: Callable[[Any, Any], Any]) -> Callable[[Any], list[object]]:
    """What a pipeline with two sources gives: odd numbers enter at the first, even ones at the second."""

    def run(stream: Any) -> list[object]:  # noqa: ANN401 (the class of either)
        odd, even, seen = stream(), stream(), []
        build(odd, even).sink(seen.append)
        for number in NUMBERS:
            (odd if number % 2 else even).emit(number)
        return seen

    return run


def collected(stream: Any) -> list[object]:  # noqa: ANN401 (the class of either)
    """A collect is emptied by its own flush in streamz, and by the stream's here."""
    source, seen = stream(), []
    gathered = source.collect()
    gathered.sink(seen.append)
    for number in NUMBERS:
        source.emit(number)
        if number == 0:
            gathered.flush()
    return seen


PIPELINES: dict[str, Callable[[Any], list[object]]] = {
    "map": pushed(lambda s: s.map(lambda x, by: x * by, by=2)),
    "starmap": pushed(lambda s: s.map(lambda x: (x, 1)).starmap(lambda a, b: a + b)),
    "filter": pushed(lambda s: s.filter(lambda x: x > 2)),
    "filter(None)": pushed(lambda s: s.filter(None)),
    "pluck": pushed(lambda s: s.map(lambda x: {"a": x}).pluck("a")),
    "pluck of several": pushed(lambda s: s.map(lambda x: (x, 1, 2)).pluck([0, 2])),
    "flatten": pushed(lambda s: s.map(lambda x: [x] * x).flatten()),
    "partition": pushed(lambda s: s.partition(5)),
    "nested partition": pushed(lambda s: s.partition(2).partition(2)),
    "sliding_window": pushed(lambda s: s.sliding_window(3)),
    "sliding_window, whole": pushed(lambda s: s.sliding_window(3, return_partial=False)),
    "accumulate": pushed(lambda s: s.accumulate(lambda total, x: total + x)),
    "accumulate from a start": pushed(lambda s: s.accumulate(lambda count, x: count + 1, start=0)),
    "accumulate with a result": pushed(
        lambda s: s.accumulate(lambda state, x: (x, x - state), start=0, returns_state=True)
    ),
    "accumulate with its state": pushed(lambda s: s.accumulate(max, with_state=True)),
    "unique": pushed(lambda s: s.unique()),
    "unique of the last": pushed(lambda s: s.unique(maxsize=1)),
    "unique of the last two": pushed(lambda s: s.unique(maxsize=2)),
    "unique by a key": pushed(lambda s: s.unique(key=lambda x: x % 3)),
    "unique, not hashable": pushed(lambda s: s.map(lambda x: [x]).unique(hashable=False)),
    "unique of two, not hashable": pushed(lambda s: s.map(lambda x: [x]).unique(maxsize=2, hashable=False)),
    "collect": collected,
    "union": joined(lambda odd, even: odd.union(even)),
    "zip": joined(lambda odd, even: odd.zip(even)),
    "zip with a constant": joined(lambda odd, even: odd.zip("x", even)),
    "zip_latest": joined(lambda odd, even: odd.zip_latest(even)),
    "combine_latest": joined(lambda odd, even: odd.combine_latest(even)),
    "combine_latest on one": joined(lambda odd, even: odd.combine_latest(even, emit_on=even)),
    "combine_latest on the first": joined(lambda odd, even: odd.combine_latest(even, emit_on=0)),
    "branches": pushed(lambda s: s.map(lambda x: x + 1).zip(s.map(lambda x: x * 2))),
    "rate_limit": pushed(lambda s: s.rate_limit(0.01), numbers=[1, 2, 3]),
}


if __name__ == "__main__":
    sys.exit(main())
