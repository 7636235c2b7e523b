"""Quarantined rows: shown, discarded, and replayed to every sink exactly once."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import floodmark as fm
from floodmark.errors import ConfigError, Overtaken, SinkFailed
from floodmark.jobs.dead_letters import act_batch
from floodmark.jobs.quarantine import Quarantine, QuarantineGroup, ReplayResult, Selection, replay
from floodmark.probes.set_aside import rows_set_aside
from floodmark.step import RunRequest
from floodmark.step.set_aside import Letters, discarded_rows
from floodmark.stores.lease import hold
from floodmark.testing import ListSink, RowsSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.stores.contract import MarkStore

SCHEMA = "id long, amount decimal(38,18), at timestamp, tags map<string,array<int>>, raw binary, ratio double"
MOMENT = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=timezone.utc)
RULES = (
    fm.rules.check("amount > 0", action="quarantine", name="positive"),
    fm.rules.range("id", max=2, action="drop", name="small id"),
    fm.rules.not_null("at", action="warn"),
)


def row(number: int, amount: str) -> dict[str, object]:
    exact = {"amount": Decimal(amount), "at": MOMENT, "tags": {"a'b": [1, 2]}, "raw": bytearray(b"\x00\xff")}
    return {"id": number, **exact, "ratio": 0.1 + 0.2}


@dataclass(frozen=True)
class Shop:
    """A job that has put three of its four rows aside."""

    job: fm.Job
    spark: SparkSession
    store: MarkStore
    sinks: tuple[ListSink, ...]

    def replay(self, selection: Selection, **changes: str) -> ReplayResult:
        return replay(self.job, selection, changes, lambda: self.spark, self.store)

    def statuses(self) -> list[tuple[str, int]]:
        groups = Quarantine.of(self.job, lambda: self.spark, self.store).groups()
        return sorted((group.status, group.rows) for group in groups)

    def ids(self) -> list[list[int]]:
        return [sorted(each["id"] for each in sink.rows) for sink in self.sinks]


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    rows = [row(1, "5"), row(2, "-0.000000000000000001"), row(2, "-0.000000000000000001"), row(9, "-7")]
    sinks = (ListSink("first"), ListSink("second"))
    store = fm.stores.open("sqlite:///marks.db", folder=tmp_path)
    job = fm.Job("shop", RowsSource(rows, SCHEMA), sinks, rules=RULES)
    job.run(spark, store)
    return Shop(job, spark, store, sinks)


def test_repaired_rows_reach_every_sink_once_and_the_rest_stays(shop: Shop) -> None:
    """Every digit survives; a row that breaks a rule even so, be it one that drops, waits. The mark does not move."""
    before = shop.store.read("shop").marks
    done = shop.replay(Selection(rule="positive"), amount="-amount")
    again = shop.replay(Selection(rule="positive"), amount="-amount")
    assert (done.rows_selected, done.rows_written, done.rows_still_broken) == (3, {"first": 2, "second": 2}, 1)
    assert (again.rows_selected, again.rows_written, again.rows_still_broken) == (1, {}, 1)
    repaired = {**row(2, "0.000000000000000001"), "at": MOMENT.astimezone().replace(tzinfo=None)}
    assert shop.sinks[0].rows[1:] == [repaired, repaired]
    assert (shop.sinks[0].rows, shop.statuses()) == (shop.sinks[1].rows, [("open", 1), ("replayed", 2)])
    assert (done.finished, shop.store.read("shop").marks) == ((), before)
    assert shop.job.run(shop.spark, shop.store).status == "nothing_new"


@pytest.mark.crash
def test_a_replay_that_failed_between_two_sinks_is_finished_by_the_next_one(shop: Shop) -> None:
    """The rows are frozen in an open batch: the sink that has them gets none, the other gets the same."""
    shop.sinks[1].fail_times = 1
    with pytest.raises(SinkFailed):
        shop.replay(Selection(), amount="1")
    assert (shop.ids(), shop.statuses()) == ([[1, 2, 2], [1]], [("open", 1), ("open", 2)])
    done = shop.replay(Selection(), amount="2")
    assert (shop.ids(), len(done.finished), done.rows_selected) == ([[1, 2, 2], [1, 2, 2]], 1, 1)
    assert {each["amount"] for each in shop.sinks[1].rows} == {5, 1}


@pytest.mark.crash
def test_a_run_of_the_job_finishes_a_replay_that_was_begun(shop: Shop) -> None:
    """It is a batch of the job: the rows are done with, and none comes twice."""
    shop.sinks[1].fail_times = 1
    with pytest.raises(SinkFailed):
        shop.replay(Selection(), amount="1")
    shop.job.run(shop.spark, shop.store)
    assert (shop.ids(), shop.statuses()) == ([[1, 2, 2], [1, 2, 2]], [("open", 1), ("replayed", 2)])


def test_rows_that_are_being_replayed_cannot_be_discarded(shop: Shop) -> None:
    """Some sink has them already."""
    shop.sinks[1].fail_times = 1
    with pytest.raises(SinkFailed):
        shop.replay(Selection(), amount="1")
    with pytest.raises(ConfigError, match="batch 2 of job 'shop' is not finished"):
        Quarantine.of(shop.job, lambda: shop.spark, shop.store).discard(Selection(), shop.store)


@pytest.mark.crash
def test_a_folder_of_files_takes_a_replay_as_it_takes_any_batch(spark: SparkSession, tmp_path: Path) -> None:
    """A row that still breaks a rule is found by the batch and the rule for which it was put aside."""
    store, out = fm.stores.open("sqlite:///marks.db", folder=tmp_path), tmp_path / "out"
    sinks = [fm.sinks.Files(str(out), format="jsonl")]
    job = fm.Job("shop", RowsSource([row(1, "5"), row(2, "-1"), row(9, "-7")], SCHEMA), sinks, rules=RULES)
    job.run(spark, store)
    kept = Shop(job, spark, store, ())
    done = kept.replay(Selection(), amount="-amount")
    again = kept.replay(Selection(rule="positive", number=1), id="2", amount="1")
    assert (done.rows_written, done.rows_still_broken, again.rows_written) == ({"files": 1}, 1, {"files": 1})
    files = sorted(each for each in out.rglob("*.json*") if each.parent != out)
    rows = [json.loads(line) for each in files for line in each.read_text().splitlines()]
    assert sorted(each["id"] for each in rows if "id" in each) == [1, 2, 2]


def test_discarded_rows_are_not_replayed(shop: Shop) -> None:
    """They stay in the table, and say so."""
    quarantine = Quarantine.of(shop.job, lambda: shop.spark, shop.store)
    [third] = [each for each in quarantine.rows(Selection(), limit=10) if '"id":9' in each.row]
    assert quarantine.discard(Selection(ids=[third.id[:8]]), shop.store) == 1
    recorded = shop.job.quarantine_sink(shop.store).recorded("floodmark.default.shop.quarantine", lambda: shop.spark)
    assert (recorded.number, shop.store.read("shop").number) == (2, 2)
    assert quarantine.groups() == [
        QuarantineGroup("shop", 1, ("positive",), "open", 2),
        QuarantineGroup("shop", 1, ("positive", "small id"), "discarded", 1),
    ]
    assert shop.replay(Selection(rule="small id")).rows_selected == 0


@pytest.mark.crash
def test_a_discard_that_was_paused_gives_up_nothing_that_a_replay_has_begun_to_write(shop: Shop) -> None:
    """It has a number of the job, and the replay fences the table with that before it reads what is open."""
    step, sink = shop.job.step(shop.spark, shop.store, RunRequest()), shop.job.quarantine_sink(shop.store)
    rows = Letters.of(step.work, 2, "quarantine").open_letters(shop.spark)
    with hold(shop.store, "shop") as lease:  # paused when it has its number
        batch = act_batch(step, lease.save(step.read(), after=step.read()).number, "discard")
    shop.sinks[1].fail_times = 1
    with pytest.raises(SinkFailed):
        shop.replay(Selection(), amount="-amount")
    with pytest.raises(Overtaken):
        sink.write(discarded_rows(rows, batch), batch)
    shop.job.run(shop.spark, shop.store)
    assert (batch.number, shop.ids()) == (2, [[1, 2, 2], [1, 2, 2]])
    assert shop.statuses() == [("open", 1), ("replayed", 2)]


def test_a_refresh_gives_up_what_the_job_had_put_aside_and_nothing_of_others(shop: Shop, tmp_path: Path) -> None:
    """Two jobs may name one table."""
    path = str(tmp_path / "aside")
    mine, other = (
        replace(shop.job, name=name, quarantine=path, sinks=[ListSink(name)], source=RowsSource([row(2, "-1")], SCHEMA))
        for name in ("mine", "other")
    )
    mine.run(shop.spark, shop.store)
    other.run(shop.spark, shop.store)
    mine.run(shop.spark, shop.store, full_refresh=True)
    statuses = [sorted(each.status for each in rows_set_aside(path, name)) for name in ("mine", "other")]
    assert statuses == [["discarded", "open"], ["open"]]
    replace(mine, rules=()).run(shop.spark, shop.store, full_refresh=True)
    assert {each.status for each in rows_set_aside(path, "mine")} == {"discarded"}  # the sink has the row now


def test_what_cannot_be_replayed_says_why(shop: Shop, tmp_path: Path) -> None:
    """Nothing is claimed."""
    with pytest.raises(ConfigError, match="no column 'amuont'"):
        shop.replay(Selection(), amuont="1")
    with pytest.raises(ConfigError, match="cannot be set so"):
        shop.replay(Selection(), amount="nonsense(")
    with pytest.raises(ConfigError, match="no id of a row"):
        Selection(ids=["' or true"])
    replacing = fm.Job("shop", shop.job.source, [fm.sinks.Delta(str(tmp_path / "t"), mode="replace")], rules=RULES)
    with pytest.raises(ConfigError, match="replaces rows"):
        replay(replacing, Selection(), {}, lambda: shop.spark, shop.store)
    assert shop.statuses() == [("open", 1), ("open", 2)]
