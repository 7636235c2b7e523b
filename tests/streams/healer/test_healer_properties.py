"""Whatever fails or dies, and whenever: a healer over the double of Kafka and Spark, under drawn fates."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.errors import RecordsFailed
from floodmark.streams import healing, healing_batch
from floodmark.streams.running import run_once
from tests.streams.local_cluster import DriverDied, LocalCluster, Log, WorkerDied, healed_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from floodmark.streams.stream import Stream

pytestmark = pytest.mark.slow


class Fate:
    """A step whose behaviour is drawn beforehand; it notes which records it has finished."""

    def __init__(self, raising: set[tuple[int, int]], killing: set[tuple[int, int]], dies_at: int | None) -> None:
        self.raising, self.killing, self.dies_at = raising, killing, dies_at
        self.finished: list[tuple[int, int]] = []

    def __call__(self, row: Any) -> object:  # noqa: ANN401 (a row)
        place = (row[0]["partition"], row[0]["offset"])
        self._die_in_time()
        if place in self.killing:
            raise WorkerDied
        if place in self.raising:
            raise ValueError(place)
        self.finished.append(place)
        return row

    def _die_in_time(self) -> None:
        if self.dies_at is None:
            return
        self.dies_at -= 1
        if self.dies_at < 0:
            self.dies_at = None
            raise DriverDied


LENGTH = 12
PLACES = st.tuples(st.integers(0, 1), st.integers(0, LENGTH - 1))
FATES = st.builds(Fate, st.sets(PLACES, max_size=4), st.sets(PLACES, max_size=2), st.none() | st.integers(0, 15))
RUNS = st.lists(st.tuples(FATES, st.integers(0, LENGTH), st.integers(0, LENGTH)), min_size=1, max_size=4)


@settings(max_examples=25)
@given(runs=RUNS, holes=st.sets(PLACES, max_size=6))
def test_whatever_fails_or_dies_every_record_is_done_once_and_the_mark_is_the_rules(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[Fate, int, int]], holes: set[tuple[int, int]]
) -> None:
    """Random outcomes, kills of workers and of the driver, restarts, records that come in between."""
    every = {(part, offset) for part in (0, 1) for offset in range(LENGTH)} - holes
    log = Log({part: {o: b"x" for p, o in every if p == part} for part in (0, 1)}, {0: 0, 1: 0})
    cluster = LocalCluster(tmp_path_factory.mktemp("cluster"), log)
    calm = (Fate(set(), set(), None), LENGTH, LENGTH)
    finished = live_through(cluster, [*runs, calm], every, require=require_the_rule)
    assert sorted(finished) == sorted(every)
    assert cluster.marks() == {0: LENGTH, 1: LENGTH}


@settings(max_examples=15)
@given(runs=RUNS, holes=st.sets(PLACES, max_size=6), size=st.integers(1, 4), rows_at_once=st.none() | st.integers(1, 3))
def test_whatever_happens_to_batches_no_record_is_passed_before_it_was_healed(
    tmp_path_factory: pytest.TempPathFactory,
    runs: list[tuple[Fate, int, int]],
    holes: set[tuple[int, int]],
    size: int,
    rows_at_once: int | None,
) -> None:
    """Steps that hold records, and lists of them: a batch that dies runs again, and nothing of it is lost."""
    every = {(part, offset) for part in (0, 1) for offset in range(LENGTH)} - holes
    log = Log({part: {o: b"x" for p, o in every if p == part} for part in (0, 1)}, {0: 0, 1: 0})
    cluster = LocalCluster(tmp_path_factory.mktemp("cluster"), log)
    calm = (Fate(set(), set(), None), LENGTH, LENGTH)
    batches = batched_by(size, flattens=rows_at_once is not None)
    finished = live_through(cluster, [*runs, calm], every, batches, rows_at_once)
    assert set(finished) == every
    assert cluster.marks() == {0: LENGTH, 1: LENGTH}


@settings(max_examples=15)
@given(runs=RUNS, holes=st.sets(PLACES, max_size=6), at_once=st.integers(1, 5), orders=st.booleans())
def test_whatever_happens_side_by_side_no_record_is_passed_before_it_was_healed(
    tmp_path_factory: pytest.TempPathFactory,
    runs: list[tuple[Fate, int, int]],
    holes: set[tuple[int, int]],
    at_once: int,
    orders: bool,
) -> None:
    """Records that share a worker with others, and its death; with steps behind gather, or none but healing."""
    every = {(part, offset) for part in (0, 1) for offset in range(LENGTH)} - holes
    log = Log({part: {o: b"x" for p, o in every if p == part} for part in (0, 1)}, {0: 0, 1: 0})
    cluster = LocalCluster(tmp_path_factory.mktemp("cluster"), log)
    calm = (Fate(set(), set(), None), LENGTH, LENGTH)
    finished = live_through(cluster, [*runs, calm], every, scattered_by(at_once, orders=orders))
    assert set(finished) == every
    assert cluster.marks() == {0: LENGTH, 1: LENGTH}


PEACEFUL = st.builds(Fate, st.sets(PLACES, max_size=4), st.just(set()), st.none() | st.integers(0, 15))


@settings(max_examples=25)
@given(
    runs=st.lists(st.tuples(PEACEFUL, st.integers(0, LENGTH), st.integers(0, LENGTH)), min_size=1, max_size=4),
    holes=st.sets(PLACES, max_size=6),
    way=st.sampled_from(["plain", "batches", "scatter"]),
)
def test_whatever_fails_where_tasks_have_folders_of_their_own_no_record_is_passed_before_it_was_healed(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[Fate, int, int]], holes: set[tuple[int, int]], way: str
) -> None:
    """On a cluster that shares no disk: outcomes come back with the results, also of tasks that share a partition."""
    every = {(part, offset) for part in (0, 1) for offset in range(LENGTH)} - holes
    records = {part: {o: b"x" for p, o in every if p == part} for part in (0, 1)}
    cluster = LocalCluster(tmp_path_factory.mktemp("cluster"), Log(records, {0: 0, 1: 0}, shares_folder=False))
    calm = (Fate(set(), set(), None), LENGTH, LENGTH)
    ways = {"batches": batched_by(3, flattens=False), "scatter": scattered_by(3, orders=True)}
    more = (ways[way],) if way in ways else ()
    finished = live_through(cluster, [*runs, calm], every, *more)
    assert set(finished) == every
    assert cluster.marks() == {0: LENGTH, 1: LENGTH}


def scattered_by(at_once: int, *, orders: bool) -> Callable[[Callable[[Any], object]], Callable[[Stream], None]]:
    """Several calls at once, and in order again behind them."""

    def steps(step: Callable[[Any], object]) -> Callable[[Stream], None]:
        def build(source: Stream) -> None:
            gathered = source.scatter().map(step).buffer(at_once).gather()
            (gathered.map(lambda row: row) if orders else gathered).sink(healing, stream=source)

        return build

    return steps


def batched_by(size: int, *, flattens: bool) -> Callable[[Callable[[Any], object]], Callable[[Stream], None]]:
    """Batches of a size, with the function on every record in them."""

    def steps(step: Callable[[Any], object]) -> Callable[[Stream], None]:
        def build(source: Stream) -> None:
            rows = source.flatten() if flattens else source
            rows.partition(size).foreach_map(step).sink(healing_batch, stream=source)

        return build

    return steps


def live_through(
    cluster: LocalCluster,
    runs: list[tuple[Fate, int, int]],
    every: set[tuple[int, int]],
    steps: Callable[[Callable[[Any], object]], Callable[[Stream], None]] = healed_by,
    rows_at_once: int | None = None,
    require: Callable[[LocalCluster, set[tuple[int, int]]], None] | None = None,
) -> list[tuple[int, int]]:
    """One run after the other, with the rule checked after each; the records that were finished, in order."""
    finished: list[tuple[int, int]] = []
    for fate, *ends in runs:
        cluster.log.ends = {part: max(cluster.log.ends[part], ends[part]) for part in (0, 1)}
        with suppress(DriverDied, RecordsFailed):
            run_once(cluster.healer(steps(fate), rows_at_once=rows_at_once))
        finished += fate.finished
        require_nothing_passed(cluster, every - set(finished))
        (require or require_nothing_passed)(cluster, every - set(finished))
    return finished


def require_the_rule(cluster: LocalCluster, unfinished: set[tuple[int, int]]) -> None:
    """Where no batch is open, every mark lies at the first record that is not done."""
    record = cluster.store.read("g")
    if record is not None and record.intent is None:
        marks = {part: cluster.marks().get(part, 0) for part in cluster.log.ends}
        assert marks == first_unfinished(cluster, unfinished)


def require_nothing_passed(cluster: LocalCluster, unfinished: set[tuple[int, int]]) -> None:
    """No mark lies above a record that is not done."""
    firsts = first_unfinished(cluster, unfinished)
    assert [part for part, mark in cluster.marks().items() if mark > firsts[part]] == []


def first_unfinished(cluster: LocalCluster, unfinished: set[tuple[int, int]]) -> dict[int, int]:
    ends = cluster.log.ends
    return {
        part: min([offset for place, offset in unfinished if place == part and offset < end], default=end)
        for part, end in ends.items()
    }
