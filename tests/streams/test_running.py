"""A stream that runs for ever: what it waits for, what it survives, and how it stops."""

from __future__ import annotations

import threading
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.errors import FloodmarkError, HealingFailed, RecordsFailed, SourceUnreadable
from floodmark.patience import StopRequest
from floodmark.stores.lease import hold
from floodmark.streams import healing, healing_batch, retry
from floodmark.streams.running import run_for_ever
from tests.sources.kafka.topics import until
from tests.streams.local_cluster import LocalCluster, Log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from floodmark.streams.healer import Healer
    from floodmark.streams.stream import Stream


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    """One partition with four records."""
    return LocalCluster(tmp_path, Log({0: {offset: b"%d" % offset for offset in range(8)}}, {0: 4}))


def plainly(source: Stream) -> None:
    source.map(lambda row: row).sink(healing, stream=source)


def in_threes(source: Stream) -> None:
    source.partition(3).sink(healing_batch, stream=source)


@contextmanager
def running(healer: Healer) -> Iterator[Run]:
    """The stream in a thread of its own; the block ends when it has stopped."""
    with closing(StopRequest()) as stopping:
        run = Run(healer, stopping)
        run.thread.start()
        yield run
        if not stopping.is_requested:
            stopping.request()
        run.thread.join(30)


class Run:
    """A stream that runs, and the error that ended it."""

    def __init__(self, healer: Healer, stopping: StopRequest) -> None:
        self.healer, self.stopping = healer, stopping
        self.error: FloodmarkError | None = None
        self.thread = threading.Thread(target=self._go)

    def _go(self) -> None:
        try:
            run_for_ever(self.healer, self.stopping, 0.02)
        except FloodmarkError as error:
            self.error = error


def test_what_comes_is_healed_until_somebody_asks_to_stop(cluster: LocalCluster) -> None:
    """Full batches while it runs; the rest is let go when it stops, before the run ends."""
    with running(cluster.healer(in_threes)) as run:
        until(lambda: cluster.marks() == {0: 3})
        cluster.log.ends[0] = 8
        until(lambda: cluster.marks() == {0: 6})
        until(lambda: cluster.store.last_looked("g") is not None)
    assert (run.error, cluster.marks()) == (None, {0: 8})


def test_a_stop_at_a_failed_record_lets_go_what_others_wait_with(cluster: LocalCluster) -> None:
    """The batch that was not full is healed before the run ends; the mark stops at the record that failed."""

    def build(source: Stream) -> None:
        source.filter(lambda row: 1 // int(row[1]) or True).partition(3).sink(healing_batch, stream=source)

    cluster.log.records[0][0] = b"1"
    cluster.log.records[0][3] = b"0"
    cluster.log.ends[0] = 6
    with running(cluster.healer(build)) as run:
        run.thread.join(30)
    record = cluster.store.read("g")
    assert isinstance(run.error, RecordsFailed)
    assert record is not None
    assert record.extras.healing == {"t": {"0": {"mark": 3, "reached": 6, "settled": [[4, 6]]}}}


def test_what_follows_healing_goes_on_by_the_clock_though_nothing_comes(cluster: LocalCluster) -> None:
    """A poll is enough, as before healing."""
    windows: list[object] = []

    def build(source: Stream) -> None:
        source.map(healing, stream=source).pluck("offset").partition_time(0.05).sink(windows.append)

    with running(cluster.healer(build)) as run:
        until(lambda: [offset for window in windows for offset in window] == [0, 1, 2, 3])  # type: ignore[attr-defined]
    assert run.error is None


def test_a_second_process_waits_and_takes_over(cluster: LocalCluster) -> None:
    """The lease lets one of a group work; each record goes to one of them."""
    with hold(cluster.store, "g"), running(cluster.healer(plainly)) as run:
        run.thread.join(0.2)
        assert (run.thread.is_alive(), cluster.marks()) == (True, {})
    with running(cluster.healer(plainly)):
        until(lambda: cluster.marks() == {0: 4})


def test_a_broker_that_goes_away_is_waited_for(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage costs time and nothing else."""
    answers = cluster.log.bounds
    outage = iter([True])

    def bounds(topics: Any) -> Any:  # noqa: ANN401 (passed on)
        if next(outage, False):
            raise SourceUnreadable("kafka topic t", reason="no answer")
        return answers(topics)

    monkeypatch.setattr("floodmark.streams.running.FIRST_PAUSE_SECONDS", 0.01)
    cluster.log.bounds = bounds  # type: ignore[method-assign]
    with running(cluster.healer(plainly)) as run:
        until(lambda: cluster.marks() == {0: 4})
    assert run.error is None


def test_steps_that_spark_cannot_run_end_the_stream(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that cannot be sent to the executors will not be better in an hour."""
    monkeypatch.setattr("floodmark.streams.running.FIRST_PAUSE_SECONDS", 0.01)
    cluster.log.records[0][1] = 1  # type: ignore[assignment]  # no bytes: Arrow refuses it
    with running(cluster.healer(plainly)) as run:
        run.thread.join(30)
    assert isinstance(run.error, HealingFailed)
    assert cluster.store.runs("g")[0].status == "failed"


def test_a_record_that_fails_for_good_ends_the_stream_and_the_others_are_done(cluster: LocalCluster) -> None:
    """The mark stops at it; what came after it is remembered."""

    def build(source: Stream) -> None:
        source.filter(lambda row: 1 // int(row[1])).sink(healing, stream=source)

    with running(cluster.healer(build, retry(1, 0.01))) as run:
        run.thread.join(30)
    assert isinstance(run.error, RecordsFailed)
    assert "t/0, offset 0, since 0 s, 2 attempts: filter(<lambda>) (step 1): ZeroDivisionError" in str(run.error)
    record = cluster.store.read("g")
    assert record is not None
    assert record.extras.healing == {"t": {"0": {"mark": 0, "reached": 4, "settled": [[1, 4]]}}}
