"""`scatter` … `gather` on a real broker and Spark: records of one partition side by side, marks in order."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.errors import RecordsFailed
from floodmark.streams import healing, retry
from tests.sources.kafka.topics import put
from tests.streams.intervals import most_at_once, read_intervals, recording

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.streams.harness import StreamHarness


def wait_a_while(row: Any) -> object:  # noqa: ANN401 (a row)
    time.sleep(1.5)
    return row


def test_records_of_one_partition_run_side_by_side_on_sparks_workers(
    harness: StreamHarness, topic: Callable[..., str]
) -> None:
    """Six calls on one partition overlap, in more than one process; each record runs once, and the mark passes all."""
    name = topic(1)
    put(harness.broker, name, *"abcdef")
    source = harness.source([name])
    slow = recording(harness.folder / "slow", wait_a_while)
    source.scatter().map(harness.counting(slow)).buffer(6).gather().sink(healing, stream=source)
    receipt = source.run_once()
    intervals = read_intervals(harness.folder / "slow")
    assert most_at_once(intervals) == 6
    assert len({interval.process for interval in intervals}) > 1
    assert harness.calls() == [(0, offset, 1) for offset in range(6)]
    assert (harness.marks(source, name), receipt.rows_written) == ({0: 6}, {"healed": 6})


def test_no_more_are_under_way_than_buffer_says(harness: StreamHarness, topic: Callable[..., str]) -> None:
    """Over all partitions and all workers."""
    name = topic(2)
    put(harness.broker, name, *"abc")
    put(harness.broker, name, *"def", partition=1)
    source = harness.source([name])
    slow = recording(harness.folder / "slow", lambda row: (time.sleep(0.3), row)[1])
    source.scatter().map(slow).buffer(2).gather().sink(healing, stream=source)
    source.run_once()
    intervals = read_intervals(harness.folder / "slow")
    assert (len(intervals), most_at_once(intervals), harness.marks(source, name)) == (6, 2, {0: 3, 1: 3})


def test_the_mark_waits_for_the_first_record_and_what_is_behind_it_does_not_run_again(
    harness: StreamHarness, topic: Callable[..., str]
) -> None:
    """The second story of the seed: the first of three fails last, while the others are done long before."""
    name = topic(1)
    put(harness.broker, name, "0.9", "0.3", "0.1")
    event = harness.folder / "event"

    def wait_for_event(row: Any) -> object:  # noqa: ANN401 (a row)
        time.sleep(float(row[1]))
        if row[1] == b"0.9" and not event.exists():
            raise TimeoutError("the event did not come")
        return row

    source = harness.source([name])
    source.scatter().map(harness.counting(wait_for_event)).buffer(3).gather().sink(healing, stream=source)
    with pytest.raises(RecordsFailed, match="the event did not come"):
        source.run_once()
    assert (harness.marks(source, name), len(harness.calls())) == ({}, 3)
    event.touch()
    source.run_once()
    assert (harness.marks(source, name), harness.calls()) == ({0: 3}, [(0, 0, 2)])


def test_a_record_that_kills_its_worker_beside_others_costs_itself(
    harness: StreamHarness, topic: Callable[..., str]
) -> None:
    """Whoever was under way runs once more by itself; who kills its worker then too is failed by name."""
    name = topic(1)
    put(harness.broker, name, "a", "b", "kill", "d", "e", "f")

    def step(row: Any) -> object:  # noqa: ANN401 (a row)
        if row[1] == b"kill":
            os._exit(9)
        time.sleep(0.2)
        return row

    source = harness.source([name], on_error=retry(1, 0, then="dead_letter"))
    source.scatter().map(harness.counting(step)).buffer(4).gather().sink(healing, stream=source)
    receipt = source.run_once()
    assert (harness.marks(source, name), receipt.rows_dead, receipt.rows_written) == ({0: 6}, 1, {"healed": 5})
    assert {offset for _, offset, _ in harness.calls()} == {0, 1, 2, 3, 4, 5}


def test_what_follows_gather_gets_the_records_of_a_partition_in_order(
    harness: StreamHarness, topic: Callable[..., str]
) -> None:
    """The last one is ready first, on another worker; the step behind gather sees none of that."""
    name = topic(1)
    put(harness.broker, name, "0.8", "0.6", "0.4", "0.2", "0.0")
    order = harness.folder / "order"

    def wait(row: Any) -> object:  # noqa: ANN401 (a row)
        time.sleep(float(row[1]))
        return row

    def write_down(row: Any) -> object:  # noqa: ANN401 (a row)
        with order.open("a") as file:
            file.write(f"{row[0]['offset']} ")
        return row

    source = harness.source([name])
    gathered = source.scatter().map(harness.counting(wait)).buffer(5).gather()
    gathered.map(write_down).sink(healing, stream=source)
    source.run_once()
    assert (order.read_text().split(), harness.marks(source, name)) == (["0", "1", "2", "3", "4"], {0: 5})
    assert harness.calls() == [(0, offset, 1) for offset in range(5)]
