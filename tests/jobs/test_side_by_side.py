"""Jobs side by side: how many at once, who waits for whom, and how a run ends early."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from floodmark import stores as fm_stores
from floodmark.errors import SinkFailed
from floodmark.jobs import Job
from floodmark.jobs.running import Runner
from floodmark.jobs.side_by_side import SideBySide
from floodmark.lineage import earlier_jobs
from floodmark.sinks import Console
from floodmark.sinks import Delta as DeltaSink
from floodmark.sources import Delta, Files
from floodmark.stores.memory import MemoryMarkStore
from tests.jobs.fakes import ScriptedJob, done
from tests.tables import sorted_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SECONDS = 20.0
"""How long a test waits for a thread before it fails."""


@dataclass
class Together:
    """Jobs that note when they begin and end; each may wait for another to have begun."""

    calls: list[str] = field(default_factory=list)
    events: dict[str, threading.Event] = field(default_factory=dict)

    def job(self, name: str, *, waits_for: str | None = None, error: Exception | None = None) -> ScriptedJob:
        self.events[name] = threading.Event()

        def during() -> None:
            self.calls.append(f"+{name}")
            self.events[name].set()
            if waits_for is not None:
                assert self.events[waits_for].wait(SECONDS), f"{waits_for} did not run beside {name}"
            self.calls.append(f"-{name}")

        return ScriptedJob(name, [error or done(name)], during=during)


def run(
    jobs: list[ScriptedJob],
    at_once: int,
    earlier: Mapping[str, Collection[str]] | None = None,
    wait: Callable[[float], bool] = lambda _: False,
) -> list[tuple[str, str]]:
    runner = Runner(MemoryMarkStore(), lambda: pytest.fail("no session is needed"))
    outcomes = SideBySide(runner, wait, at_once, earlier or {}).run(jobs)
    return [(outcome.receipt.job, outcome.receipt.status) for outcome in outcomes]


def test_two_jobs_run_at_the_same_time() -> None:
    """Each of them waits for the other to have begun: one after the other they would never end."""
    together = Together()
    jobs = [together.job("a", waits_for="b"), together.job("b", waits_for="a")]
    assert sorted(run(jobs, 2)) == [("a", "done"), ("b", "done")]


def test_no_more_than_asked_for_run_at_once() -> None:
    """One at once is one after the other, in the order that they were given."""
    together = Together()
    run([together.job(name) for name in ("c", "a", "b")], 1)
    assert together.calls == ["+c", "-c", "+a", "-a", "+b", "-b"]


def test_a_job_begins_after_those_that_it_waits_for() -> None:
    """However many threads are idle."""
    together = Together()
    run([together.job("silver"), together.job("gold")], 4, {"gold": ["silver"]})
    assert together.calls == ["+silver", "-silver", "+gold", "-gold"]


def test_a_job_that_failed_does_not_hold_back_those_that_wait_for_it() -> None:
    """As in a run of one after the other."""
    together = Together()
    broken = SinkFailed("silver", sink="lake", reason="disk full")
    jobs = [together.job("silver", error=broken), together.job("gold")]
    assert run(jobs, 2, {"gold": ["silver"]}) == [("silver", "failed"), ("gold", "done")]


def test_a_job_that_was_not_chosen_is_not_waited_for() -> None:
    """`--select gold` runs gold."""
    assert run([Together().job("gold")], 2, {"gold": ["silver"]}) == [("gold", "done")]


def test_once_somebody_asked_to_stop_the_rest_is_skipped() -> None:
    """What runs is finished."""
    together = Together()
    jobs = [together.job("a"), together.job("b"), together.job("c")]
    ended = run(jobs, 2, {"b": ["a"], "c": ["b"]}, wait=lambda _: together.events["a"].is_set())
    assert ended == [("a", "done"), ("b", "skipped"), ("c", "skipped")]


def test_a_function_that_exits_ends_its_job_and_no_other() -> None:
    """`sys.exit` in a user's function would otherwise leave everybody waiting for its thread."""

    def leave() -> None:
        raise SystemExit(3)

    jobs = [ScriptedJob("a", [done("a")], during=leave), ScriptedJob("b", [done("b")])]
    assert run(jobs, 2, {"b": ["a"]}) == [("a", "failed"), ("b", "done")]


def test_an_interrupt_stops_what_runs_in_spark_and_begins_nothing_more() -> None:
    """Ctrl-C is for all jobs of the run."""
    together = Together()
    begun, interrupted = threading.Event(), threading.Event()

    def until_interrupted() -> None:
        begun.set()
        assert interrupted.wait(SECONDS)

    jobs = [together.job("quick"), ScriptedJob("long", [done("long")], during=until_interrupted), together.job("late")]
    runner = Runner(MemoryMarkStore(), lambda: pytest.fail("no session is needed"))
    beside = SideBySide(runner, lambda _: False, 2, {"late": ["long"]}, interrupted.set)
    outcomes = beside.run(jobs)
    assert next(outcomes).receipt.job == "quick"
    assert begun.wait(SECONDS)
    with pytest.raises(KeyboardInterrupt):
        outcomes.throw(KeyboardInterrupt())  # type: ignore[attr-defined]
    assert (interrupted.is_set(), "+late" in together.calls) == (True, False)


def job(name: str, read: str, fill: str) -> Job:
    source = Delta(read) if read.startswith("t") else Files(read)
    return Job(name, source, [DeltaSink(fill)])


def test_jobs_that_share_a_table_keep_the_order_of_the_file() -> None:
    """Who reads what an earlier job fills, who fills what an earlier one reads, and two that fill one table."""
    jobs = [job("raw", "in", "t1"), job("next", "t1", "t2"), job("again", "other", "t1"), job("alone", "in", "t9")]
    assert earlier_jobs(jobs) == {"raw": (), "next": ("raw",), "again": ("raw", "next"), "alone": ()}


def test_two_jobs_that_print_run_side_by_side() -> None:
    """A console is no table."""
    jobs = [Job(name, Files(f"in-{name}"), [Console()]) for name in ("a", "b")]
    assert earlier_jobs(jobs) == {"a": (), "b": ()}


def test_a_table_that_sql_joins_is_waited_for() -> None:
    """It is read as the source is."""
    joined = Job("joined", Files("in"), [DeltaSink("t5")], transform="select s.* from source s join t4 using (id)")
    prices = Job("prices", Files("prices"), [DeltaSink(table="t4")])
    assert earlier_jobs([prices, joined]) == {"prices": (), "joined": ("prices",)}


def shop_job(folder: Path, name: str, sink: DeltaSink) -> Job:
    """Two rows of this job alone, under the name that every transform has for its source."""
    (folder / name).mkdir()
    (folder / name / "a.jsonl").write_text(f'{{"id": 1, "v": "{name}"}}\n{{"id": 2, "v": "{name}"}}\n')
    source = Files(str(folder / name), schema="id long, v string", settle=0)
    return Job(name, source, [sink], transform="select id, upper(v) as v from source where id < 3")


@pytest.mark.spark
def test_jobs_of_one_session_do_not_see_each_others_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Appends and merges with a batch number each, over views of one name, all at once."""
    appends = [shop_job(tmp_path, name, DeltaSink(f"{tmp_path}/lake/{name}")) for name in ("a", "b")]
    merges = [
        shop_job(tmp_path, name, DeltaSink(f"{tmp_path}/lake/{name}", mode="merge", key=["id"])) for name in ("c", "d")
    ]
    jobs = [*appends, *merges]
    runner = Runner(fm_stores.open("sqlite:///marks.db", folder=tmp_path), lambda: spark)
    outcomes = list(SideBySide(runner, lambda _: False, 4, earlier_jobs(jobs)).run(jobs))
    assert [outcome.error for outcome in outcomes] == [None] * 4
    found = {name: sorted_rows(tmp_path / "lake" / name) for name in "abcd"}
    assert found == {name: [(1, name.upper()), (2, name.upper())] for name in "abcd"}
