"""Steps that look at the whole stream, over turns, runs and deaths: what settles a record, and what a restart knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from floodmark.errors import ConfigError, RecordsFailed
from floodmark.failpoints import VARIABLE
from floodmark.streams import from_kafka, healing, healing_batch
from floodmark.streams.healer.unsettled import TurnLimit
from floodmark.streams.running import run_once
from tests.streams.healer.test_healer import noted
from tests.streams.local_cluster import DriverDied, LocalCluster, Log, WorkerDied

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from floodmark.streams.stream import Stream


@pytest.fixture
def cluster(tmp_path: Path) -> LocalCluster:
    """Two partitions with three records each: 0, 1, 2 and 0, 1, 2."""
    values = {offset: b"%d" % offset for offset in range(3)}
    return LocalCluster(tmp_path, Log({0: dict(values), 1: dict(values)}, {0: 3, 1: 3}))


def number(row: Any) -> Any:  # noqa: ANN401 (a row)
    return row[0], int(row[1])


def words(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def test_partition_gathers_over_all_partitions_of_the_topics(cluster: LocalCluster, tmp_path: Path) -> None:
    """Six records of two partitions are one tuple of four and one of two, when the run ends."""

    def build(source: Stream) -> None:
        batches = source.partition(4).map(lambda rows: noted(tmp_path / "sizes", len(rows), rows))
        batches.sink(healing_batch, stream=source)

    run_once(cluster.healer(build))
    assert (words(tmp_path / "sizes"), cluster.marks()) == (["4", "2"], {0: 3, 1: 3})


def test_what_one_partition_waits_with_goes_on_when_another_fills_the_tuple(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """A later turn that reads one partition settles what is held of the other."""

    def build(source: Stream) -> None:
        source.partition(4).sink(healing_batch, stream=source)

    cluster.log.ends = {0: 3, 1: 0}
    healer = cluster.healer(build)
    healer.begin()
    healer.turn(TurnLimit())
    assert cluster.marks() == {}
    cluster.log.ends = {0: 3, 1: 1}
    healer.turn(TurnLimit())
    assert cluster.marks() == {0: 3, 1: 1}


def test_the_steps_before_a_batch_run_once_though_the_driver_dies_before_the_commit(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they made of each record is on disk, and waits there for the rest."""

    def build(source: Stream) -> None:
        called = source.map(lambda row: noted(tmp_path / "calls", f"{row[0]['partition']}/{row[0]['offset']}", row))
        called.partition(2).sink(healing_batch, stream=source)

    die_at(cluster, build, "before_commit", monkeypatch)
    run_once(cluster.healer(build))
    assert sorted(words(tmp_path / "calls")) == ["0/0", "0/1", "0/2", "1/0", "1/1", "1/2"]
    assert cluster.marks() == {0: 3, 1: 3}


def test_what_waits_for_the_steps_of_an_earlier_program_runs_anew(cluster: LocalCluster, tmp_path: Path) -> None:
    """The function was fixed between the crash and the rerun: half of the old and half of the new fit nowhere."""

    def crashing(source: Stream) -> None:
        source.map(number).partition(2).map(lambda rows: die()).sink(healing_batch, stream=source)

    def fixed(source: Stream) -> None:
        plus = source.map(number).map(lambda row: (row[0], row[1] + 10)).partition(2)
        plus.map(lambda rows: noted(tmp_path / "sum", sum(value for _, value in rows), rows)).sink(
            healing_batch, stream=source
        )

    def die() -> object:
        raise DriverDied

    with pytest.raises(DriverDied):
        run_once(cluster.healer(crashing))
    run_once(cluster.healer(fixed))
    assert (sum(map(int, words(tmp_path / "sum"))), cluster.marks()) == (66, {0: 3, 1: 3})


def test_a_batch_that_kills_its_worker_costs_the_record_that_did_it(cluster: LocalCluster) -> None:
    """Whoever was in its hands runs by itself, through all steps."""

    def kill(rows: Any) -> object:  # noqa: ANN401 (rows)
        if any(uuid["partition"] == 1 and uuid["offset"] == 1 for uuid, _ in rows):
            raise WorkerDied
        return rows

    def build(source: Stream) -> None:
        source.partition(4).map(kill).sink(healing_batch, stream=source)

    with pytest.raises(RecordsFailed, match=r"t/1, offset 1.*killed"):
        run_once(cluster.healer(build))
    assert cluster.marks() == {0: 3, 1: 1}


def test_what_zip_holds_stays_unhealed_and_comes_again_after_a_restart(cluster: LocalCluster, tmp_path: Path) -> None:
    """Numbers of the first partition are paired with those of the second; the third has no partner yet."""

    def build(source: Stream) -> None:
        first = source.filter(lambda row: row[0]["partition"] == 0)
        second = source.filter(lambda row: row[0]["partition"] == 1)
        pairs = first.zip(second).map(lambda rows: noted(tmp_path / "pairs", f"{rows[0][1]}{rows[1][1]}", rows))
        pairs.map(list).sink(healing_batch, stream=source)

    cluster.log.ends = {0: 3, 1: 1}
    run_once(cluster.healer(build))
    assert (cluster.marks(), words(tmp_path / "pairs")) == ({0: 1, 1: 1}, ["b'0'b'0'"])
    cluster.log.ends = {0: 3, 1: 3}
    run_once(cluster.healer(build))
    assert (cluster.marks(), len(words(tmp_path / "pairs"))) == ({0: 3, 1: 3}, 3)


def test_a_pair_that_kills_its_worker_costs_its_own_records(cluster: LocalCluster) -> None:
    """No record of a zip can run by itself: those that were in hand at two deaths are failed, and the others go on."""

    def kill(rows: Any) -> object:  # noqa: ANN401 (rows)
        if rows[0][0]["offset"] == 1:
            raise WorkerDied
        return list(rows)

    def build(source: Stream) -> None:
        first = source.filter(lambda row: row[0]["partition"] == 0)
        second = source.filter(lambda row: row[0]["partition"] == 1)
        first.zip(second).map(kill).sink(healing_batch, stream=source)

    with pytest.raises(RecordsFailed, match=r"t/0, offset 1.*killed"):
        run_once(cluster.healer(build))
    assert cluster.marks() == {0: 1, 1: 1}


def test_combine_latest_holds_the_latest_of_each_input(cluster: LocalCluster) -> None:
    """An element is settled when another has come in its place; the last ones wait, whoever stops."""

    def build(source: Stream) -> None:
        first = source.filter(lambda row: row[0]["partition"] == 0)
        second = source.filter(lambda row: row[0]["partition"] == 1)
        first.combine_latest(second).map(list).sink(healing_batch, stream=source)

    run_once(cluster.healer(build))
    assert cluster.marks() == {0: 2, 1: 2}


def test_sliding_windows_go_on_after_a_restart_where_they_were(cluster: LocalCluster, tmp_path: Path) -> None:
    """The last element of each window waits for the next run, and makes a window with what comes then."""

    def build(source: Stream) -> None:
        windows = source.sliding_window(2, return_partial=False)
        windows.map(lambda rows: noted(tmp_path / "windows", f"{number(rows[0])[1]}{number(rows[1])[1]}", rows)).map(
            list
        ).sink(healing_batch, stream=source)

    cluster.log.ends = {0: 2, 1: 0}
    run_once(cluster.healer(build))
    assert cluster.marks() == {0: 1}
    cluster.log.ends = {0: 3, 1: 0}
    run_once(cluster.healer(build))
    assert (words(tmp_path / "windows"), cluster.marks()) == (["01", "12"], {0: 2})


def test_unique_drops_what_came_before_in_any_partition_and_any_run(cluster: LocalCluster, tmp_path: Path) -> None:
    """What it has seen is kept with the turn that it was seen in."""

    def build(source: Stream) -> None:
        fresh = source.map(number).unique(key=lambda row: row[1])
        fresh.map(lambda row: noted(tmp_path / "fresh", row[1], row)).sink(healing, stream=source)

    cluster.log.ends = {0: 2, 1: 2}
    receipt = run_once(cluster.healer(build))
    assert (words(tmp_path / "fresh"), receipt.rows_refused) == (["0", "1"], 2)
    cluster.log.ends = {0: 3, 1: 3}
    run_once(cluster.healer(build))
    assert (words(tmp_path / "fresh"), cluster.marks()) == (["0", "1", "2"], {0: 3, 1: 3})


def test_a_record_that_failed_behind_unique_is_not_taken_for_its_own_repetition(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """The record that brought a value passes when it is tried again; else the value would be lost."""
    event = tmp_path / "event"

    def wait_for_event(row: Any) -> object:  # noqa: ANN401 (a row)
        if row[1] == 1 and not event.exists():
            raise TimeoutError("the event did not come")
        return row

    def build(source: Stream) -> None:
        source.map(number).unique(key=lambda row: row[1]).map(wait_for_event).sink(healing, stream=source)

    with pytest.raises(RecordsFailed, match="the event did not come"):
        run_once(cluster.healer(build))
    event.touch()
    receipt = run_once(cluster.healer(build))
    assert (receipt.rows_written, cluster.marks()) == ({"healed": 1}, {0: 3, 1: 3})


def test_accumulate_goes_on_from_its_state_after_a_restart(cluster: LocalCluster, tmp_path: Path) -> None:
    """Every record is added once, though the run that added the first ones is gone."""
    build = totals(tmp_path)
    cluster.log.ends = {0: 3, 1: 0}
    run_once(cluster.healer(build))
    cluster.log.ends = {0: 3, 1: 3}
    run_once(cluster.healer(build))
    assert (words(tmp_path / "totals"), cluster.marks()) == (["0", "1", "3", "3", "4", "6"], {0: 3, 1: 3})


def test_accumulate_adds_a_record_once_though_the_driver_dies_before_the_commit(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was added by a turn that nobody committed is added again to the state before it."""
    die_at(cluster, totals(tmp_path), "before_commit", monkeypatch)
    run_once(cluster.healer(totals(tmp_path)))
    cluster.log.records[0][3] = b"10"
    cluster.log.ends = {0: 4, 1: 3}
    run_once(cluster.healer(totals(tmp_path)))
    assert words(tmp_path / "totals")[-1] == "16"


def test_a_record_that_failed_behind_accumulate_is_not_added_twice(cluster: LocalCluster, tmp_path: Path) -> None:
    """It is part of the state already, and gets what it got when it is tried again."""
    event = tmp_path / "event"

    def wait_for_event(row: Any) -> object:  # noqa: ANN401 (a row)
        if row[0]["offset"] == 1 and not event.exists():
            raise TimeoutError("the event did not come")
        return row

    with pytest.raises(RecordsFailed, match="the event did not come"):
        run_once(cluster.healer(totals(tmp_path, wait_for_event)))
    event.touch()
    cluster.log.records[0][3] = b"10"
    cluster.log.ends = {0: 4, 1: 3}
    run_once(cluster.healer(totals(tmp_path, wait_for_event)))
    assert (max(map(int, words(tmp_path / "totals"))), cluster.marks()) == (16, {0: 4, 1: 3})


@pytest.mark.parametrize("name", ["unique", "accumulate"])
def test_a_step_that_remembers_is_refused_behind_one_that_holds(name: str) -> None:
    """After a restart it could not be told which elements it had seen; the error comes when the step is added."""
    source = from_kafka(["orders"], {"bootstrap.servers": "nowhere:1", "group.id": "billing"})
    batches = source.partition(5)
    with pytest.raises(ConfigError, match=rf"{name}.* stands behind partition\(5\)"):
        getattr(batches, name)(*([max] if name == "accumulate" else []))


def test_behind_healing_every_step_is_allowed() -> None:
    """Results are news: nothing there has to be exact."""
    source = from_kafka(["orders"], {"bootstrap.servers": "nowhere:1", "group.id": "billing"})
    results = source.partition(5).map(healing_batch, stream=source)
    assert results.flatten().accumulate(max).unique() is not None


def test_two_kafka_sources_cannot_be_joined() -> None:
    """Each has marks of its own; one source may read both topics."""
    first, second = (
        from_kafka([name], {"bootstrap.servers": "nowhere:1", "group.id": "billing"}) for name in ("orders", "prices")
    )
    with pytest.raises(ConfigError, match="union joins two sources"):
        first.union(second)
    with pytest.raises(ConfigError, match="zip joins two sources"):
        first.zip(second)


def totals(folder: Path, behind: Callable[[Any], object] = lambda row: row) -> Callable[[Stream], None]:
    """A running total of all numbers, written down."""

    def build(source: Stream) -> None:
        added = source.map(number).accumulate(lambda total, row: (row[0], total[1] + row[1]))
        added.map(behind).map(lambda row: noted(folder / "totals", row[1], row)).sink(healing, stream=source)

    return build


def die_at(cluster: LocalCluster, build: Callable[[Stream], None], point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run until a point of the step, and no further."""

    def die(process: int, signal: int) -> None:
        raise DriverDied

    with monkeypatch.context() as armed:
        armed.setenv(VARIABLE, point)
        armed.setattr("os.kill", die)
        with pytest.raises(DriverDied):
            run_once(cluster.healer(build))
