"""A healer over several turns, runs and deaths, with the double of Kafka and Spark."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.errors import ConfigError, HealingFailed, Overtaken, RecordsFailed
from floodmark.failpoints import VARIABLE
from floodmark.stores.lease import hold
from floodmark.streams import healing, healing_batch, retry
from floodmark.streams.healer.dead_letters import DeadLetters
from floodmark.streams.healer.turn import Turn
from floodmark.streams.healer.unsettled import TurnLimit, TurnPlan
from floodmark.streams.policy import dead_letter
from floodmark.streams.running import run_once
from floodmark.streams.task.folder import StateFolder
from floodmark.streams.task.journal import read_failures
from tests.streams.local_cluster import TOPIC, DriverDied, Frame, LocalCluster, Log, WorkerDied, healed_by

if TYPE_CHECKING:
    from floodmark.streams.stream import Stream


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    """One partition with eight records."""
    return LocalCluster(tmp_path, Log({0: {offset: b"%d" % offset for offset in range(8)}}, {0: 8}))


def noted(path: Path, what: object, value: object) -> object:
    """The value; what happened is written down, since a carried step is a copy of itself."""
    with path.open("a") as file:
        file.write(f"{what} ")
    return value


class RecordingStep:
    """A step that raises, kills its worker or works, by offset; it notes its calls as (offset, attempt)."""

    def __init__(self, raising: set[int] = frozenset(), killing: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        self.raising, self.killing = set(raising), set(killing)
        self.calls: list[tuple[int, int]] = []

    def __call__(self, row: Any) -> object:  # noqa: ANN401 (a row)
        offset = row[0]["offset"]
        self.calls.append((offset, row[0]["attempt"]))
        if offset in self.killing:
            raise WorkerDied
        if offset in self.raising:
            raise ValueError(f"offset {offset} is bad")
        return row


def test_only_the_failed_record_runs_again(cluster: LocalCluster) -> None:
    """The others were settled above the mark, and that is remembered."""
    first = RecordingStep(raising={3})
    with pytest.raises(RecordsFailed, match=r"t/0, offset 3, since \d+ s, 1 attempt: map"):
        run_once(cluster.healer(healed_by(first)))
    assert cluster.marks() == {0: 3}
    fixed = RecordingStep()
    run_once(cluster.healer(healed_by(fixed)))
    assert (fixed.calls, cluster.marks()) == ([(3, 2)], {0: 8})


def test_a_record_that_kills_its_worker_costs_that_record_alone(cluster: LocalCluster) -> None:
    """It is run once more by itself, convicted, and named; everything else is done once."""
    step = RecordingStep(killing={2, 5})
    with pytest.raises(RecordsFailed, match="killed its worker"):
        run_once(cluster.healer(healed_by(step)))
    assert sorted(step.calls) == [(0, 1), (1, 1), (2, 1), (2, 1), (3, 1), (4, 1), (5, 1), (5, 1), (6, 1), (7, 1)]
    assert cluster.marks() == {0: 2}


def test_tasks_that_do_not_see_the_folder_bring_their_outcomes_back(cluster: LocalCluster) -> None:
    """Each record once, a failed one with its bytes and its attempts; the next run knows them all."""
    cluster.log.shares_folder = False
    step = RecordingStep(raising={2, 5})
    with pytest.raises(RecordsFailed):
        run_once(cluster.healer(healed_by(step)))
    failed = read_failures(StateFolder(cluster.folder).failures((TOPIC, 0)))
    assert sorted(step.calls) == [(offset, 1) for offset in range(8)]
    assert {offset: (each.attempts, each.raw.value) for offset, each in failed.items()} == {2: (1, b"2"), 5: (1, b"5")}
    assert cluster.marks() == {0: 2}
    second = RecordingStep()
    run_once(cluster.healer(healed_by(second)))
    assert second.calls == [(2, 2), (5, 2)]
    assert cluster.marks() == {0: 8}


def test_a_record_that_kills_its_worker_stops_the_stream_where_no_folder_is_shared(cluster: LocalCluster) -> None:
    """Who it was, nobody knows; the message says where it would be known, and nothing was passed."""
    cluster.log.shares_folder = False
    with pytest.raises(HealingFailed) as stopped:
        run_once(cluster.healer(healed_by(RecordingStep(killing={3}))))
    assert "put it on a disk that all machines share" in stopped.value.hint
    assert cluster.marks() == {}


def test_a_killer_among_retries_is_named_and_the_rest_go_on(cluster: LocalCluster) -> None:
    """A retry is as deadly as a first attempt."""
    with pytest.raises(RecordsFailed):
        run_once(cluster.healer(healed_by(RecordingStep(raising={1, 4}))))
    step = RecordingStep(killing={1})
    with pytest.raises(RecordsFailed, match=r"offset 1.*killed its worker"):
        run_once(cluster.healer(healed_by(step)))
    assert (sorted(step.calls), cluster.marks()) == ([(1, 2), (1, 2), (4, 2)], {0: 1})


def test_retries_are_made_after_their_pauses_and_then_the_record_is_put_aside(cluster: LocalCluster) -> None:
    """The mark passes a dead letter, and the letter has all that is needed to try it by hand."""
    step = RecordingStep(raising={3})
    healer = cluster.healer(healed_by(step), retry(2, 0, then="dead_letter"))
    receipt = run_once(healer)
    assert [call for call in step.calls if call[0] == 3] == [(3, 1), (3, 2), (3, 3)]
    assert (cluster.marks(), receipt.rows_dead) == ({0: 8}, 1)
    (letter,) = DeadLetters(cluster.folder / "dead").all()
    assert (letter.record.offset, letter.value, letter.attempts) == (3, b"3", 3)
    assert "offset 3 is bad" in letter.error


def test_a_failed_record_outlives_kafkas_retention(cluster: LocalCluster) -> None:
    """Its bytes were saved when it failed."""
    with pytest.raises(RecordsFailed):
        run_once(cluster.healer(healed_by(RecordingStep(raising={0}))))
    cluster.log.records[0].clear()
    fixed = RecordingStep()
    run_once(cluster.healer(healed_by(fixed)))
    assert (fixed.calls, cluster.marks()) == ([(0, 2)], {0: 8})


def test_a_job_that_fails_without_a_record_to_blame_is_an_error(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken connection is not the fault of a record; nothing is counted against any."""
    monkeypatch.setattr("floodmark.streams.running.FIRST_PAUSE_SECONDS", 0.01)

    def build(source: Stream) -> None:
        source.map(lambda row: row).sink(healing, stream=source)

    healer = cluster.healer(build)
    cluster.log.records[0][3] = 3  # type: ignore[assignment]
    with pytest.raises(HealingFailed):
        run_once(healer)
    cluster.log.records[0][3] = b"3"
    run_once(cluster.healer(build))
    assert cluster.marks() == {0: 8}


def test_a_job_that_fails_once_without_a_record_to_blame_is_run_again(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine a worker may not start in time; one run sees to it, and no record runs twice."""
    step, troubles, collect = RecordingStep(), iter([RuntimeError("accept timed out")]), Frame.collect

    def troubled(frame: Frame) -> list[SimpleNamespace]:
        if trouble := next(troubles, None):
            raise trouble
        return collect(frame)

    monkeypatch.setattr("floodmark.streams.running.FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(Frame, "collect", troubled)
    run_once(cluster.healer(healed_by(step)))
    assert (step.calls, cluster.marks()) == ([(offset, 1) for offset in range(8)], {0: 8})


def test_a_partition_that_somebody_still_holds_fails_the_job_and_is_told(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of a run that was killed may live on for a while; an error of the system alone would say nothing."""
    monkeypatch.setattr("floodmark.streams.running.FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("floodmark.streams.task.folder.LOCK_PATIENCE_SECONDS", 0.02)
    state = StateFolder(cluster.folder)
    state.prepare(1)
    with state.lock((TOPIC, 0)), pytest.raises(HealingFailed, match="was locked for"):
        run_once(cluster.healer(healed_by(RecordingStep())))


def test_lists_that_kill_their_worker_are_taken_apart(cluster: LocalCluster) -> None:
    """Which record of a list it was shows when each runs by itself."""
    sizes: list[int] = []

    def sums(rows: Any) -> object:  # noqa: ANN401 (rows)
        sizes.append(len(rows))
        if any(row[0]["offset"] == 4 for row in rows):
            raise WorkerDied
        return rows

    def build(source: Stream) -> None:
        source.map(sums).sink(healing_batch, stream=source)

    with pytest.raises(RecordsFailed, match=r"offset 4.*killed"):
        run_once(cluster.healer(build, rows_at_once=2))
    assert cluster.marks() == {0: 4}
    assert 1 in sizes


def test_what_partition_holds_is_carried_from_turn_to_turn(cluster: LocalCluster) -> None:
    """Full tuples only while the stream runs; the rest is let go when it stops, and no step runs twice."""
    calls, sizes = cluster.folder / "calls", cluster.folder / "sizes"

    def build(source: Stream) -> None:
        called = source.map(lambda row: noted(calls, row[0]["offset"], row))
        called.partition(3).map(lambda rows: noted(sizes, len(rows), rows)).sink(healing_batch, stream=source)

    healer = cluster.healer(build)
    healer.begin()
    cluster.log.ends[0] = 4
    healer.turn(TurnLimit())
    assert (sizes.read_text(), cluster.marks()) == ("3 ", {0: 3})
    cluster.log.ends[0] = 8
    healer.turn(TurnLimit())
    assert cluster.marks() == {0: 6}
    healer.turn(TurnLimit({("t", 0): 8}, flushes=True))
    assert cluster.marks() == {0: 8}
    assert (calls.read_text(), sizes.read_text()) == ("0 1 2 3 4 5 6 7 ", "3 3 2 ")


def test_partition_time_lets_go_at_the_next_poll_though_nothing_comes(cluster: LocalCluster) -> None:
    """The tail does not wait for a record that may never come."""

    def build(source: Stream) -> None:
        source.partition_time("500ms").sink(healing_batch, stream=source)

    healer = cluster.healer(build)
    healer.begin()
    healer.turn(TurnLimit())
    assert (cluster.marks(), healer.turn(TurnLimit()).status) == ({}, "nothing_new")
    time.sleep(healer.seconds_until_due() or 0)
    assert (healer.turn(TurnLimit()).status, cluster.marks()) == ("done", {0: 8})


def test_a_partition_with_too_many_failures_takes_no_more(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is settled above the mark has a bound; beyond it the stream waits and says so."""
    monkeypatch.setattr("floodmark.streams.healer.progress.MOST_RANGES", 2)
    step = RecordingStep(raising={0, 2, 4, 6})
    with pytest.raises(RecordsFailed):
        run_once(cluster.healer(healed_by(step)))
    assert sorted(step.calls) == [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)]
    run_once(cluster.healer(healed_by(fixed := RecordingStep())))
    assert (sorted(fixed.calls), cluster.marks()) == (
        [(0, 2), (2, 2), (4, 2), (5, 1), (6, 1), (7, 1)],
        {0: 8},
    )


@pytest.mark.parametrize("point", ["after_intent", "after_read", "before_commit", "after_commit"])
def test_a_driver_that_dies_between_two_acts_costs_no_record_a_second_run(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The journal is written before anything is computed from it, and the commit is one act."""

    def die(process: int, signal: int) -> None:
        raise DriverDied

    before = RecordingStep(raising={3})
    with monkeypatch.context() as armed:
        armed.setenv(VARIABLE, point)
        armed.setattr("os.kill", die)
        with pytest.raises(DriverDied):
            run_once(cluster.healer(healed_by(before)))
    after = RecordingStep()
    run_once(cluster.healer(healed_by(after)))
    calls = [*before.calls, *after.calls]
    assert len(calls) == len(set(calls))
    assert ({offset for offset, _ in calls}, cluster.marks()) == (set(range(8)), {0: 8})


def test_a_run_that_was_paused_before_it_put_a_record_aside_cannot_do_so_after_another_healed_it(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay of such a letter would deliver the record a second time."""
    paused: list[tuple[Any, ...]] = []

    def pause(letters: DeadLetters, *arguments: Any) -> None:  # noqa: ANN401 (what add takes)
        paused.append((letters, *arguments))
        raise DriverDied

    with monkeypatch.context() as stopped:
        stopped.setattr(DeadLetters, "add", pause)
        with pytest.raises(DriverDied):
            run_once(cluster.healer(healed_by(RecordingStep(raising={3})), dead_letter))
    run_once(cluster.healer(healed_by(RecordingStep()), dead_letter))
    [(letters, *arguments)] = paused
    with pytest.raises(Overtaken):
        letters.add(*arguments)
    assert (cluster.marks(), letters.all()) == ({0: 8}, ())


def test_a_stream_without_healing_never_moves_its_mark(cluster: LocalCluster) -> None:
    """Its records run once in this process, and again in the next: nobody said that they are done."""

    def build(source: Stream) -> None:
        source.map(step).sink(print)

    step = RecordingStep(raising={2})
    healer = cluster.healer(build)
    run_once(healer)
    assert (sorted(step.calls), cluster.marks()) == ([(offset, 1) for offset in range(8)], {})
    assert healer.turn(TurnLimit()).status == "nothing_new"
    run_once(cluster.healer(build))
    assert len(step.calls) == 16


def test_a_mark_that_a_person_moved_is_where_the_stream_goes_on(cluster: LocalCluster) -> None:
    """What was settled above the old mark is forgotten: whoever moves a mark back wants to see the records again."""
    with pytest.raises(RecordsFailed):
        run_once(cluster.healer(healed_by(RecordingStep(raising={3}))))
    record = cluster.store.read("g")
    assert record is not None
    with hold(cluster.store, "g") as lease:
        moved = replace(record, number=9, marks={"t": record.marks["t"].set_value({0: 6})}, origin="set")
        cluster.store.commit(moved, expected=record.number, lease=lease.lease)
    again = RecordingStep()
    run_once(cluster.healer(healed_by(again)))
    assert (again.calls, cluster.marks()) == ([(6, 1), (7, 1)], {0: 8})


def test_a_partition_that_is_added_later_is_read_from_its_beginning(cluster: LocalCluster) -> None:
    """Also where the stream itself began at the end of its topic."""
    run_once(cluster.healer(healed_by(RecordingStep())))
    cluster.log.records[1], cluster.log.ends[1] = {0: b"new"}, 1
    step = RecordingStep()
    run_once(cluster.healer(healed_by(step)))
    assert (step.calls, cluster.marks()) == ([(0, 1)], {0: 8, 1: 1})


def test_speculation_is_refused(cluster: LocalCluster) -> None:
    """Two copies of a task would run the user's code twice."""
    healer = cluster.healer(healed_by(RecordingStep()))
    plan = TurnPlan(1, {})
    spark: Any = SimpleNamespace(conf={"spark.speculation": "true"})
    turn = Turn("g", plan, healer.task_plan(plan), healer.topic_look.options, spark)
    with pytest.raises(ConfigError, match="speculation"):
        turn.run()


def test_debug_tells_where_every_record_is_and_never_what_it_holds(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line per record."""
    cluster.log.ends[0] = 2
    healer = cluster.healer(healed_by(RecordingStep()))
    healer.commit.prints_records = True
    run_once(healer)
    assert capsys.readouterr().out == "t 0 0\nt 0 1\n"
