"""Jobs that read each other go back together, to a run or to their last good state, and forward again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

import floodmark as fm
from floodmark.errors import ConfigError, RuleBroken
from floodmark.jobs.rollback import Rollback, Target
from floodmark.step import RunRequest
from floodmark.stores.lease import hold
from floodmark.testing import RowsSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Chain:
    """Orders from a list into a table, and from that table, by added rows only, into another one."""

    def __init__(self, home: Path) -> None:
        self.home, self.store, self.come = home, fm.stores.open("memory"), RowsSource([], "id int, cents int")
        lake = fm.sinks.Delta(str(home / "lake"), change_feed=True)
        self.orders = fm.Job(
            "orders",
            self.come,
            [lake],
            rules=[
                fm.rules.check("cents > 0", action="warn", name="cents_positive"),
                fm.rules.check("id > 0", action="fail", name="id_positive"),
            ],
            quarantine=str(home / "quarantine"),
        )
        self.gold = fm.Job("gold", fm.sources.Delta(str(home / "lake")), [fm.sinks.Delta(str(home / "gold"))])

    def arrive(self, spark: SparkSession, *rows: tuple[int, int]) -> str:
        """The rows come, both jobs run; gives the id of the last run."""
        self.come.rows.extend({"id": number, "cents": cents} for number, cents in rows)
        self.orders.run(spark, self.store)
        return self.gold.run(spark, self.store).run

    def back(self, spark: SparkSession, to: str) -> Rollback:
        steps = (job.step(spark, self.store, RunRequest()) for job in (self.gold, self.orders))
        return Rollback(tuple(steps), Target.parse(to, self.store))

    def ids(self) -> tuple[list[int], list[int]]:
        return ids_in(self.home / "lake"), ids_in(self.home / "gold")


def ids_in(table: Path) -> list[int]:
    return sorted(DeltaTable(table).to_pyarrow_table(columns=["id"])["id"].to_pylist())


@pytest.mark.crash
def test_a_chain_goes_back_to_a_run_and_on_from_there(spark: SparkSession, tmp_path: Path) -> None:
    """The table goes back before its reader, whose mark comes to stand behind the restore: it reads added rows only.

    Killed in between, the same rollback again leaves alone what is back already and does the rest.
    """
    chain = Chain(tmp_path)
    run = chain.arrive(spark, (1, 5))
    chain.arrive(spark, (2, 5), (3, 5))
    orders, gold = chain.back(spark, run).plan()
    assert (orders.job, orders.goal.number, gold.job, gold.goal.number) == ("orders", 1, "gold", 1)
    assert gold.follows == (str(tmp_path / "lake"),)
    chain.orders.rollback("1", spark, chain.store)
    rest = chain.back(spark, run).plan()
    assert [(way.job, way.moves) for way in rest] == [("orders", False), ("gold", True)]
    [record] = chain.back(spark, run).carry_out(rest)
    assert (record.job, record.origin, chain.ids()) == ("gold", "rollback", ([1], [1]))
    chain.come.rows[1:] = []
    chain.arrive(spark, (4, 5))
    assert chain.ids() == ([1, 4], [1, 4])


@pytest.mark.crash
def test_the_last_good_state_is_gone_back_to_over_a_batch_that_is_open(spark: SparkSession, tmp_path: Path) -> None:
    """Orders was let down by its rules, once with rows in the table and once before any; gold has none of them."""
    chain = Chain(tmp_path)
    chain.arrive(spark, (1, 5))
    chain.come.rows.append({"id": 2, "cents": -1})
    chain.orders.run(spark, chain.store)
    chain.come.rows.append({"id": -3, "cents": 1})
    with pytest.raises(RuleBroken):
        chain.orders.run(spark, chain.store)
    orders, gold = chain.back(spark, "last-good").plan()
    assert (orders.goal.number, orders.record.intent is not None, gold.goal == gold.record) == (1, True, True)
    with hold(chain.store, "gold"), pytest.raises(fm.errors.LeaseHeld):
        list(chain.back(spark, "last-good").carry_out([orders, gold]))
    assert chain.ids() == ([1, 2], [1])
    records = list(chain.back(spark, "last-good").carry_out([orders, gold]))
    assert ([each.intent for each in records], chain.ids()) == ([None, None], ([1], [1]))
    assert [way.moves for way in chain.back(spark, "last-good").plan()] == [False, False]
    chain.come.rows[1:] = [{"id": 4, "cents": 5}]
    chain.arrive(spark)
    assert chain.ids() == ([1, 4], [1, 4])
    with pytest.raises(ConfigError, match="changed since the plan was made"):
        list(chain.back(spark, "last-good").carry_out([orders]))
