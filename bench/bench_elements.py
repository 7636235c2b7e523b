"""A million elements of a mill, checked field by field, beside the plainest Python that checks nothing; no Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from timing import compare

from floodmark.mill.codec import Codec

if TYPE_CHECKING:
    from run import Result

ELEMENTS, BATCH, ROUNDS = 1_000_000, 10_000, 3


@dataclass(frozen=True)
class Location:
    """What streams usually hold: a few plain fields."""

    time: int
    x: float
    y: float
    robot: str


TEXTS = [json.dumps({"time": n, "x": n / 2, "y": 2.0, "robot": f"robot {n % 7}"}) for n in range(BATCH)]
ROWS = [Location(n, n / 2, 2.0, f"robot {n % 7}") for n in range(BATCH)]
TURNS = range(ELEMENTS // BATCH)


def read_plainly(_: int) -> None:
    for _turn in TURNS:
        assert [Location(**raw) for raw in json.loads(f"[{','.join(TEXTS)}]")][-1] == ROWS[-1]


def read(_: int) -> None:
    codec = Codec(Location)
    for _turn in TURNS:
        assert codec.from_texts(TEXTS)[-1] == ROWS[-1]


def write_plainly(_: int) -> None:
    for _turn in TURNS:
        assert [json.dumps(vars(row)) for row in ROWS][-1] == TEXTS[-1]


def write(_: int) -> None:
    codec = Codec(Location)
    for _turn in TURNS:
        assert codec.texts([codec.snapshot(row) for row in ROWS])[-1] == TEXTS[-1]


def run() -> list[Result]:
    of = f"{ELEMENTS:,} elements of four fields"
    return [
        compare("elements read and checked", read_plainly, read, at_most=1.25, rounds=ROUNDS, of=of),
        compare("elements written", write_plainly, write, at_most=1.0, rounds=ROUNDS, of=of),
    ]
