"""A stream that is pushed by emit: its steps, in the calling thread, in order, without Spark."""

from __future__ import annotations

import asyncio
import doctest
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.errors import ConfigError
from floodmark.streams import Stream, healing, healing_batch
from floodmark.streams import stream as stream_module
from floodmark.streams.healing_step import UuidLost

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

UUID = {"topic": "orders", "partition": 0, "offset": 7}


def one_second_each() -> Stream:
    """A stream that takes an element a second."""
    ticks = count()
    return Stream(clock=lambda: float(next(ticks)))


EXAMPLES = {"Stream": one_second_each}


def test_the_examples_in_the_docstrings_print_what_they_say() -> None:
    """Those of seed 001 are among them, word for word; one element comes every second."""
    modules = [sys.modules[stream_module.__name__], sys.modules["floodmark.streams.gathering"]]
    found = [each for module in modules for each in doctest.DocTestFinder().find(module, globs=EXAMPLES)]
    runner = doctest.DocTestRunner()
    results = [runner.run(each) for each in found]
    assert sum(result.failed for result in results) == 0
    assert sum(result.attempted for result in results) > 40


def test_branches_get_each_element_in_the_order_they_were_added() -> None:
    """An element is through with the first branch before it enters the second."""
    source = Stream()
    seen: list[object] = []
    source.map(lambda x: ("a", x)).sink(seen.append)
    source.map(lambda x: ("b", x)).sink(seen.append)
    source.emit(1)
    source.emit(2)
    assert seen == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_a_step_may_be_added_while_another_holds_elements() -> None:
    """What is held stays held."""
    source = Stream()
    pairs = source.partition(2)
    source.emit(1)
    seen = pairs.sink_to_list()
    source.emit(2)
    assert seen == [(1, 2)]


def test_flush_goes_through_nested_batches_from_the_first_to_the_last() -> None:
    """The rest of the inner partition reaches the outer one before that is emptied."""
    source = Stream()
    seen = source.partition(2).partition(2).sink_to_list()
    source.emit(1)
    source.emit(2)
    source.emit(3)
    assert seen == []
    source.flush()
    assert seen == [((1, 2), (3,))]
    source.flush()
    assert seen == [((1, 2), (3,))]


def test_flush_reaches_every_source_that_a_union_joins() -> None:
    """A graph has no main source."""
    left, right = Stream(), Stream()
    seen = left.partition(2).union(right.partition(2)).sink_to_list()
    left.emit(1)
    right.emit(2)
    left.flush()
    assert {(1,), (2,)} == set(seen)


def test_partition_time_begins_anew_with_the_element_that_comes_late() -> None:
    """Whether a tuple is due is asked when an element comes; the element opens the next one."""
    now = iter([0.0, 1.0, 5.0, 6.0])
    source = Stream(clock=lambda: next(now))
    seen = source.partition_time("3s").sink_to_list()
    source.emit("a")
    source.emit("b")
    source.emit("c")
    source.emit("d")
    assert seen == [("a", "b")]
    source.flush()
    assert seen == [("a", "b"), ("c", "d")]


def test_sliding_window_gives_shorter_windows_at_the_start_unless_told_not_to() -> None:
    """As in streamz."""
    source = Stream()
    partial_too = source.sliding_window(2).sink_to_list()
    full_only = source.sliding_window(2, return_partial=False).sink_to_list()
    source.emit(1)
    source.emit(2)
    source.flush()
    assert (partial_too, full_only) == ([(1,), (1, 2)], [(1, 2)])


def test_buffer_scatter_and_gather_hand_elements_on() -> None:
    """Programs written for dask need no change."""
    source = Stream()
    seen = source.scatter().map(lambda x: x + 1).buffer(8).gather().sink_to_list()
    source.emit(1)
    assert seen == [2]


def test_delay_hands_on_with_a_later_element_and_flush_waits_for_the_rest() -> None:
    """Every element in its order, none before its time."""
    times = iter([0.0, 0.0, 2.0, 2.0, 2.0, 5.0, 5.0, 5.0])
    source, seen = Stream(clock=lambda: next(times, 10.0)), []
    source.delay(3).sink(seen.append)
    source.emit("a")
    source.emit("b")
    assert seen == []
    source.emit("c")
    source.flush()
    assert seen == ["a", "b", "c"]


def test_rate_limit_waits_before_it_hands_on() -> None:
    """The first goes at once, each of the others an interval after the last."""
    source, times = Stream(), []
    source.rate_limit(0.05).sink(lambda _: times.append(time.monotonic()))
    source.emit(1)
    source.emit(2)
    source.emit(3)
    assert times[2] - times[0] >= 0.09


def test_a_picture_shows_the_steps_and_not_the_inputs_of_a_zip() -> None:
    """What a user wrote, and nothing else."""
    left, right = Stream(), Stream()
    left.map(str).zip(right).sink(print)
    arrows = [line.strip() for line in right.visualize().splitlines() if "->" in line]
    labels = [line.partition('"')[2].partition('"')[0] for line in right.visualize().splitlines() if "label" in line]
    assert (sorted(labels), len(arrows)) == (["map(str)", "sink(print)", "source", "source", "zip"], 4)


def test_a_picture_is_drawn_and_written_where_its_name_says(tmp_path: Path) -> None:
    """A box for each step, each behind those that lead to it, an arrow for each way; a notebook shows the same."""
    source = Stream()
    source.map(str).union(source.filter(lambda x: x < 3)).sink(print)
    drawing = source.visualize(tmp_path / "stream.svg")._repr_svg_()
    root = ElementTree.fromstring(drawing)  # noqa: S314 (our own text)
    lefts = {text.text: int(text.get("x", "")) for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert sorted(lefts, key=lefts.__getitem__) == ["source", "map(str)", "filter(<lambda>)", "union", "sink(print)"]
    assert drawing.count('marker-end="url(#arrow)"') == 5
    assert (tmp_path / "stream.svg").read_text() == drawing + "\n"


def test_a_picture_of_another_kind_is_refused(tmp_path: Path) -> None:
    """Nobody draws bitmaps here; Graphviz does, of the text."""
    with pytest.raises(ConfigError, match=r"not written as '\.png'"):
        Stream().visualize(tmp_path / "stream.png")
    Stream().visualize(tmp_path / "stream.dot")
    assert (tmp_path / "stream.dot").read_text().startswith("digraph stream {")


def test_a_window_of_no_length_is_refused() -> None:
    """Elements could not be told apart by it."""
    with pytest.raises(ConfigError, match="timed_window needs an interval"):
        Stream().timed_window(0)


def test_what_a_step_raises_comes_out_of_emit_as_it_is() -> None:
    """A stream that is pushed by hand has nobody else to tell."""
    source = Stream()
    source.map(lambda x: 1 // x).sink(print)
    with pytest.raises(ZeroDivisionError):
        source.emit(0)


def test_foreach_async_runs_functions_at_the_same_time_and_keeps_their_order() -> None:
    """Ten calls that all wait for each other can only end if all ten are under way."""
    together = threading.Barrier(10, timeout=20)
    source = Stream()
    seen = source.foreach_async(lambda x: (together.wait() >= 0, x)[1], at_once=10).sink_to_list()
    source.emit(tuple(range(10)))
    assert seen == [tuple(range(10))]


def test_foreach_async_runs_coroutines_at_the_same_time_and_keeps_their_order() -> None:
    """The first waits for the last, which is begun only if they overlap."""

    async def first_waits(x: int, begun: asyncio.Event) -> int:
        begun.set() if x == 9 else await asyncio.wait_for(begun.wait(), 20)
        return 2 * x

    source = Stream()
    seen = source.foreach_async(first_waits, asyncio.Event()).sink_to_list()
    source.emit(list(range(10)))
    assert seen == [tuple(range(0, 20, 2))]


def test_foreach_async_has_no_more_calls_under_way_than_it_may() -> None:
    """What the calls talk to is not overrun."""
    free = threading.Semaphore(3)

    def work(x: int) -> bool:
        within = free.acquire(blocking=False)
        threading.Event().wait(0.01)
        free.release() if within else None
        return within

    source = Stream()
    seen = source.foreach_async(work, at_once=3).sink_to_list()
    source.emit(range(12))
    assert seen == [(True,) * 12]


async def cell(source: Stream) -> None:
    """A cell of a notebook, which runs inside a loop of its own."""
    source.emit((1, 2))


def test_foreach_async_works_inside_a_running_loop() -> None:
    """Every notebook has one."""
    source = Stream()
    seen = source.foreach_async(lambda x: x + 1).sink_to_list()
    asyncio.run(cell(source))
    assert seen == [(2, 3)]


def test_healing_of_a_pushed_stream_gives_results_that_say_there_is_no_mark() -> None:
    """A pipeline can be tried by hand before it meets Kafka."""
    source = Stream()
    seen = source.map(lambda row: (row[0], row[1] + 1)).map(healing, stream=source).sink_to_list()
    source.emit((UUID, 1))
    assert seen == [
        {
            "data": 2,
            "success": False,
            "reason": "pushed by emit: there is no mark to move",
            "partition": 0,
            "offset": 7,
            "topic": "orders",
        }
    ]


def test_healing_given_to_a_foreach_step_gives_a_tuple_and_healing_batch_a_list() -> None:
    """The results nest as the rows do."""
    source = Stream()
    rows = source.partition(1)
    singles = rows.foreach_map(healing, stream=source).sink_to_list()
    nested = rows.partition(1).foreach_async(healing_batch, stream=source, asynchronous=True).sink_to_list()
    source.emit((UUID, 1))
    assert singles == [({"data": 1, **_rest()},)]
    assert nested == [([{"data": 1, **_rest()}],)]


def _rest() -> dict[str, object]:
    place = {"partition": 0, "offset": 7, "topic": "orders"}
    return {"success": False, "reason": "pushed by emit: there is no mark to move", **place}


def test_a_row_that_lost_its_uuid_names_the_step_that_lost_it() -> None:
    """Not the step where it was missed."""

    def value_only(row: tuple[object, int]) -> int:
        return row[1]

    source = Stream()
    source.map(lambda row: row).map(value_only).map(str).sink(healing, stream=source)
    with pytest.raises(UuidLost, match=r"map\(value_only\) lost it"):
        source.emit((UUID, 1))


def test_healing_without_a_stream_says_what_to_pass() -> None:
    """As in the seed, stream has the default None; it is no use."""
    with pytest.raises(ConfigError, match=r"stream is None. Try: pass the source: .sink\(healing, stream=source\)"):
        Stream().sink(healing)


def test_healing_with_the_stream_of_another_source_is_refused() -> None:
    """It would move marks that have nothing to do with these rows."""
    with pytest.raises(ConfigError, match="a stream that its rows do not come from"):
        Stream().sink(healing, stream=Stream())


def test_healing_with_a_parameter_that_it_does_not_have_is_refused() -> None:
    """A typing error would else be silent."""
    source = Stream()
    with pytest.raises(ConfigError, match="no parameter 'ignored'"):
        source.sink(healing, stream=source, ignored=True)


def test_healing_may_be_given_as_a_partial_function() -> None:
    """It is the same step."""
    source = Stream()
    seen = source.map(partial(healing, stream=source)).pluck("offset").sink_to_list()
    source.emit((UUID, 1))
    assert seen == [7]


def test_healing_called_as_a_function_says_that_it_is_a_step() -> None:
    """Inside a user's own function it would run on an executor, where no mark can be moved."""
    with pytest.raises(ConfigError, match="healing_batch was called as a function"):
        healing_batch(((UUID, 1),), stream=Stream())


def test_the_sources_can_be_called_on_the_class_as_in_the_seed() -> None:
    """Nothing is asked of the broker before the stream runs."""
    params = {"bootstrap.servers": "localhost:1", "group.id": "billing"}
    plain = Stream.from_kafka(["orders"], params, debug=True)
    batched = Stream.from_kafka_batched(["orders"], params, dask=True, maxlen=50)
    assert (plain.group, plain.settings.rows_at_once) == ("billing", None)
    assert (batched.group, batched.settings.rows_at_once) == ("billing", 50)


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda s: s.partition(0), "partition needs a whole number from 1 on, not 0"),
        (lambda s: s.sliding_window(1.5), "sliding_window needs a whole number"),
        (lambda s: s.foreach_async(print, at_once=0), "at_once needs a whole number"),
        (lambda s: s.partition_time("soon"), "partition_time: 'soon' is not a duration"),
        (lambda s: s.map(asyncio.sleep), "map was given the coroutine sleep"),
        (lambda s: s.map("upper"), "map needs a function, not str"),
        (lambda s: s.starmap(healing, stream=s), "healing cannot be given to starmap"),
    ],
)
def test_a_step_that_cannot_work_is_refused_when_it_is_added(add: Callable[[Any], object], message: str) -> None:
    """Not when the first element comes."""
    with pytest.raises(ConfigError, match=message):
        add(Stream())
