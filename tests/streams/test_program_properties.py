"""Whatever steps a stream has, every record is settled exactly once, and by its own fate alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from floodmark.streams import Stream, healing
from floodmark.streams.program import compile_program
from tests.streams.rows import element_of

Row: TypeAlias = "tuple[dict[str, Any], str]"
Step: TypeAlias = "Callable[[Stream], Stream]"


def may_fail(row: Row) -> Row:
    if row[1] == "failed":
        raise ValueError("as the record asked")
    return row


STEPS: dict[str, Step] = {
    "map": lambda stream: stream.map(may_fail),
    "pass": lambda stream: stream.map(lambda row: (dict(row[0]), row[1])),
    "filter": lambda stream: stream.filter(lambda row: row[1] != "dropped"),
    "batch": lambda stream: stream.partition(3).flatten(),
    "nested": lambda stream: stream.partition(2).partition(3).flatten().flatten(),
    "time": lambda stream: stream.partition_time(2).flatten(),
    "foreach": lambda stream: stream.partition(4).foreach_map(may_fail).flatten(),
    "async": lambda stream: stream.partition(4).foreach_async(may_fail, at_once=2).flatten(),
    "twice": lambda stream: stream.map(lambda row: [row, row]).flatten(),
    "branch": lambda stream: stream.union(stream.partition(2).flatten()),
    "scatter": lambda stream: stream.scatter().map(may_fail).buffer(3).gather(),
}
fates = st.lists(st.sampled_from(["done", "failed", "dropped"]), max_size=25)
names = st.lists(st.sampled_from(sorted(STEPS)), max_size=5)


@given(fates, names, st.booleans())
def test_every_record_is_settled_once_and_by_its_own_fate(fates: list[str], names: list[str], ticks: bool) -> None:
    """Records that wait in batches with it, the number of its children and the order of the steps change nothing."""
    source, clock = Stream(), iter(range(10_000))
    stream: Stream = source
    for step in (*names, "map", "filter"):
        stream = STEPS[step](stream)
    stream.sink(healing, stream=source)
    running = compile_program(source.node).tasks.start(clock=lambda: float(next(clock)))
    pushed = [running.push(element_of({"topic": "t", "partition": 0, "offset": at}, v)) for at, v in enumerate(fates)]
    swept = [running.tick(), running.await_io()] if ticks else []
    settled = list(chain(*pushed, *swept, running.finish()))
    assert sorted((each.record.offset, each.kind) for each in settled) == list(enumerate(fates))
    assert running.pending() == ()
