"""Healing on a real broker and real Spark workers: workers that die, topics with holes, batches, groups."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer

from floodmark.errors import PublicationFailed, RecordsFailed
from floodmark.streams import healing, healing_batch, retry
from floodmark.streams.healer.dead_letters import DeadLetters
from tests.sources.kafka.topics import add_partitions, offsets_of, put, put_slowly, until
from tests.streams.harness import StreamHarness

if TYPE_CHECKING:
    from collections.abc import Callable

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "100",
    "delete.retention.ms": "100000",
}
HEADERS = [("trace", b"1"), ("trace", None), ("raw", b"\xff\x00"), ("größe", b"")]


def test_a_record_that_kills_its_worker_costs_itself_and_the_others_go_on(
    harness: StreamHarness, topic: Callable[..., str]
) -> None:
    """The process is really gone, by `os._exit` or a segmentation fault; partitions beside it are done once."""
    name = topic(2)
    put(harness.broker, name, "a", "kill", "c", "d", key=b"k", headers=HEADERS)
    put(harness.broker, name, "e", "f", partition=1)

    def step(row: Any) -> object:  # noqa: ANN401 (a row)
        if row[1] == b"kill":
            os._exit(9) if row[0]["attempt"] == 1 else ctypes.string_at(0)
        return row

    source = harness.healed(name, step, on_error=retry(1, 0, then="dead_letter"))
    receipt = source.run_once()
    calls = harness.calls()
    assert harness.marks(source, name) == {0: 4, 1: 2}
    assert (receipt.rows_dead, receipt.rows_written) == (1, {"healed": 5})
    assert [call for call in calls if call[:2] == (0, 1)] == [(0, 1, 1), (0, 1, 1), (0, 1, 2), (0, 1, 2)]
    assert {call[:2] for call in calls} == {(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)}
    (letter,) = DeadLetters(source.state.dead_letters).all()
    assert (letter.value, letter.key, letter.headers, letter.attempts) == (b"kill", b"k", tuple(HEADERS), 2)
    assert "killed its worker" in letter.error


@pytest.mark.crash
def test_a_compacted_topic_is_passed_over_its_holes(harness: StreamHarness, topic: Callable[..., str]) -> None:
    """Offsets that compaction took away are no records, and hold no mark."""
    name = topic(1, **COMPACTED)
    put_slowly(harness.broker, name, "1", "2", "3", key="same")
    put_slowly(harness.broker, name, "last", key="other")
    until(lambda: 0 not in offsets_of(harness.broker, name))
    there = offsets_of(harness.broker, name)
    source = harness.healed(name, lambda row: row)
    source.run_once()
    assert [offset for _, offset, _ in harness.calls()] == there
    assert harness.marks(source, name) == {0: there[-1] + 1}


def test_lists_nested_batches_and_new_partitions_heal(harness: StreamHarness, topic: Callable[..., str]) -> None:
    """The seed's nested example over lists: what follows healing gets results in the shape of the batches."""
    name = topic(1)
    put(harness.broker, name, *(str(number) for number in range(5)))
    outputs: list[object] = []
    source = harness.batched([name], maxlen=2)
    source.flatten().map(lambda row: (row[0], int(row[1]) + 1)).partition(2).partition(2).foreach_async(
        healing_batch, stream=source, asynchronous=True
    ).sink(outputs.append)
    source.run_once()
    assert harness.published(name, 1) == {0: 5}
    assert [[[each["data"] for each in inner] for inner in outer] for outer in outputs] == [  # type: ignore[attr-defined]
        [[1, 2], [3, 4]],
        [[5]],
    ]
    add_partitions(harness.broker, name, 3)
    put(harness.broker, name, "6", partition=2)
    source.run_once()
    assert harness.marks(source, name) == {0: 5, 2: 1}


def test_a_group_that_another_consumer_is_a_member_of_cannot_be_published(
    harness: StreamHarness, topic: Callable[..., str]
) -> None:
    """Our own mark has moved: the next run repeats nothing. With ignore=True it is a warning and success is False."""
    name = topic(1)
    put(harness.broker, name, "a")
    source = harness.healed(name, lambda row: row)
    member = Consumer({"bootstrap.servers": harness.broker.bootstrap, "group.id": harness.group})
    member.subscribe([name])
    until(lambda: bool(member.poll(0.2) or member.assignment()))
    with pytest.raises(PublicationFailed, match=harness.group):
        source.run_once()
    assert (harness.calls(), harness.marks(source, name)) == ([(0, 0, 1)], {0: 1})
    put(harness.broker, name, "b")
    results: list[dict[str, object]] = []
    ignoring = harness.source([name])
    ignoring.map(healing, stream=ignoring, ignore=True).sink(results.append)
    ignoring.run_once()
    member.close()
    (result,) = results
    assert (result["success"], str(result["reason"])[:13]) == (False, "commit failed")


def test_a_stuck_stream_names_its_record_in_the_error_the_receipt_and_the_runs(
    harness: StreamHarness, topic: Callable[..., str]
) -> None:
    """Partition, offset, age, attempts and error, wherever an operator looks."""
    name = topic(1)
    put(harness.broker, name, "a", "bad", "c")

    def step(row: Any) -> object:  # noqa: ANN401 (a row)
        if row[1] == b"bad":
            raise ValueError("no such customer")
        return row

    source = harness.healed(name, step, on_error=retry(2, "100ms"))
    with pytest.raises(RecordsFailed) as stuck:
        source.run_once()
    (line,) = stuck.value.records
    assert line.startswith(f"{name}/0, offset 1, since ")
    assert line.endswith("3 attempts: map(counted) (step 1): ValueError: no such customer")
    failed, done = source.store.runs(harness.group)[0], source.store.runs(harness.group)[1]
    assert (failed.status, line.split("since")[0] in str(failed.error)) == ("failed", True)
    assert "offset 1" in done.notes[0]
    assert harness.calls() == [(0, 0, 1), (0, 1, 1), (0, 1, 2), (0, 1, 3), (0, 2, 1)]
