"""Rollback: tables and marks go back together, or not at all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import floodmark as fm
from floodmark.errors import ConfigError, Overtaken, SinkAhead
from floodmark.jobs.quarantine import Selection, replay
from floodmark.jobs.rollback import restore_points
from floodmark.probes.set_aside import rows_set_aside
from floodmark.step import RunRequest
from floodmark.testing import ListSink, RowsSource
from tests.tables import sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.sinks.contract import Sink

pytestmark = pytest.mark.spark
ROWS = [{"k": 1, "at": 1, "v": 1}, {"k": 1, "at": 2, "v": 2}, {"k": 2, "at": 3, "v": 3}]


class Shop:
    """A job that appends, over rows that come one by one; and one that keeps history as well."""

    def __init__(self, home: Path, *more: Sink) -> None:
        self.home, self.store, self.come = home, fm.stores.open("memory"), RowsSource([], "k int, at int, v int")
        self.job = fm.Job("shop", self.come, [fm.sinks.Delta(str(home / "lake"), name="lake"), *more])

    @classmethod
    def with_history(cls, home: Path) -> Shop:
        return cls(home, fm.sinks.Scd1(str(home / "latest"), key=("k",), sequence=("at",)))

    def arrive(self, spark: SparkSession, *places: int) -> None:
        self.come.rows.extend(ROWS[place] for place in places)
        self.job.run(spark, self.store)

    def lake(self) -> list[int]:
        return [row[1] for row in sorted_rows(self.home / "lake")]

    def latest(self) -> list[tuple[int, int]]:
        return [(row[0], row[2]) for row in sorted_rows(self.home / "latest")]


@pytest.mark.crash
def test_tables_and_marks_go_back_together_and_forward_again(spark: SparkSession, tmp_path: Path) -> None:
    """What came since is delivered again, once; a number never sinks, so the old ones cannot write any more."""
    shop = Shop.with_history(tmp_path)
    shop.arrive(spark, 0)
    shop.arrive(spark, 1, 2)
    record = shop.job.rollback("1", spark, shop.store)
    assert (shop.lake(), shop.latest()) == ([1], [(1, 1)])
    assert (record.number, record.origin, [mark.value for mark in record.marks.values()]) == (3, "rollback", [1])
    shop.job.run(spark, shop.store)
    assert (shop.lake(), shop.latest()) == ([1, 2, 3], [(1, 2), (2, 3)])
    with pytest.raises(ConfigError, match="no batch or run '9'"):
        shop.job.rollback("9", spark, shop.store)


def test_deleted_keys_go_back_with_their_table(spark: SparkSession, tmp_path: Path) -> None:
    """A delete that was undone must not keep a row out; that of an earlier batch still does."""
    rows: list = [{"k": 1, "at": 1, "v": "a"}, {"k": 2, "at": 5, "v": "D"}]
    sink = fm.sinks.Delta(
        str(tmp_path / "t"), mode="merge", key=("k",), sequence=("at",), delete_when="v = 'D'", name="t"
    )
    store = fm.stores.open("sqlite:///marks.db", folder=tmp_path)

    def job() -> fm.Job:
        return fm.Job("j", RowsSource(list(rows), "k int, at int, v string"), [sink])

    job().run(spark, store)
    rows.append({"k": 1, "at": 9, "v": "D"})
    job().run(spark, store)
    job().rollback("1", spark, store)
    rows[2:] = [{"k": 1, "at": 8, "v": "b"}, {"k": 2, "at": 4, "v": "late"}]
    job().run(spark, store)
    assert sorted_rows(tmp_path / "t") == [(1, 8, "b")]


@pytest.mark.crash
def test_a_rollback_that_was_broken_off_stops_runs_until_it_is_done(spark: SparkSession, tmp_path: Path) -> None:
    """The sinks know a number that the store does not: nothing is delivered into half-restored tables."""
    shop = Shop(tmp_path)
    shop.arrive(spark, 0)
    shop.arrive(spark, 1)
    lake = shop.job.sinks[0]
    lake.fence("floodmark.default.shop.lake", 3, lambda: spark)
    step = shop.job.step(spark, shop.store, RunRequest())
    restore_points(step, 1)[0].restore(spark, 3, "shop")
    with pytest.raises(SinkAhead):
        shop.arrive(spark, 2)
    shop.job.rollback("1", spark, shop.store)
    shop.job.run(spark, shop.store)
    assert shop.lake() == [1, 2, 3]


@pytest.mark.crash
def test_a_rollback_that_was_overtaken_takes_no_row_of_its_successor(spark: SparkSession, tmp_path: Path) -> None:
    """It was paused before it restored; the number that it would take is that of a batch by now."""
    shop = Shop(tmp_path)
    shop.arrive(spark, 0)
    shop.arrive(spark, 1)
    [point] = restore_points(shop.job.step(spark, shop.store, RunRequest()), 1)
    shop.arrive(spark, 2)
    with pytest.raises(Overtaken):
        point.restore(spark, 3, "shop")
    assert shop.lake() == [1, 2, 3]


@pytest.mark.crash
def test_what_was_put_aside_goes_back_with_the_tables(spark: SparkSession, tmp_path: Path) -> None:
    """A row that was replayed since is open again, or it would be nowhere; one put aside since comes by itself."""
    shop = Shop(tmp_path)
    positive = fm.rules.check("v > 0", action="quarantine", name="positive")
    job = replace(shop.job, rules=[positive], quarantine=str(tmp_path / "aside"))
    shop.come.rows.extend([ROWS[0], {**ROWS[1], "v": -2}])
    job.run(spark, shop.store)
    replay(job, Selection(), {"v": "-v"}, lambda: spark, shop.store)
    shop.come.rows.append({**ROWS[2], "v": -3})
    job.run(spark, shop.store)
    job.rollback("1", spark, shop.store)
    aside = [
        (json.loads(each.record)["at"], each.status)
        for each in rows_set_aside(f"{tmp_path}/aside", "shop")
        if each.record
    ]
    assert (shop.lake(), aside) == ([1], [(2, "open")])
    job.run(spark, shop.store)
    replay(job, Selection(), {"v": "-v"}, lambda: spark, shop.store)
    assert shop.lake() == [1, 2, 3]


def test_what_others_wrote_is_not_undone(spark: SparkSession, tmp_path: Path) -> None:
    """Nor is a sink put back whose rows are out."""
    shop = Shop(tmp_path)
    shop.arrive(spark, 0)
    shop.arrive(spark, 1)
    spark.sql(f"DELETE FROM delta.`{tmp_path}/lake` WHERE at = 1")
    with pytest.raises(ConfigError, match="is not of this job"):
        shop.job.rollback("1", spark, shop.store)
    assert shop.lake() == [2]
    out = fm.Job("out", RowsSource([ROWS[0], ROWS[1]], "k int, at int, v int"), [ListSink()])
    out.run(spark, shop.store, max_rows=1)
    out.run(spark, shop.store)
    with pytest.raises(ConfigError, match="cannot be put back"):
        out.rollback("1", spark, shop.store)
