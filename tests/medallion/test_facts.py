"""Facts by date: exactly the touched dates are built again, from inputs at pinned versions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import floodmark as fm
from floodmark.errors import ConfigError
from floodmark.medallion import FactRows, Lookup, fact
from floodmark.sinks.restatement import Restatement
from floodmark.stores.record import RestatedDates
from tests.tables import sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
USAGE = "id int, date_sk int, at int, sku string, quantity int"
PRICES = "sku string, price int, valid_from int, valid_to int, is_current boolean"
BUILD = """
SELECT u.date_sk, u.sku, CAST(sum(u.quantity * p.price) AS int) AS cost, CAST(count(*) AS int) AS lines
FROM usage u LEFT JOIN prices p ON p.sku = u.sku AND u.at >= p.valid_from AND (p.valid_to IS NULL OR u.at < p.valid_to)
GROUP BY u.date_sk, u.sku
"""
LINES = "SELECT source.date_sk, CAST(count(*) AS int) AS lines FROM source GROUP BY source.date_sk"


class Gold:
    """Two silver tables and the fact over them."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.spark, self.home, self.store = spark, home, fm.stores.open("memory")
        self.usage, self.prices, self.out = (str(home / name) for name in ("usage", "prices", "cost"))
        self.spool = str(home / "spool")

    def save(self, folder: str, schema: str, *rows: tuple[Any, ...]) -> None:
        frame = self.spark.createDataFrame(list(rows), schema)
        frame.write.format("delta").mode("append").option("delta.enableChangeDataFeed", "true").save(folder)

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.format(usage=f"delta.`{self.usage}`", prices=f"delta.`{self.prices}`"))

    def run(self, when_moved: Any = "restate") -> tuple[str, int]:  # noqa: ANN401 - also a wrong one
        prices = Lookup("prices", self.prices, on={"sku": "sku"}, at="at", when_moved=when_moved)
        job = fact("cost", rows=FactRows("usage", self.usage), lookups=[prices], build=BUILD, path=self.out)
        receipt = job.run(self.spark, self.store)
        return receipt.status, receipt.rows_read

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted_rows(Path(self.out))

    def files(self) -> dict[str, dict[str, int]]:
        """The files that the table is made of now, by partition, with their times."""
        names = self.spark.read.format("delta").load(self.out).inputFiles()
        files = [Path(name.removeprefix("file://").removeprefix("file:")) for name in names]
        dates = sorted({file.parent.name for file in files})
        return {date: {f.name: f.stat().st_mtime_ns for f in files if f.parent.name == date} for date in dates}


@pytest.fixture
def gold(spark: SparkSession, tmp_path: Path) -> Gold:
    built = Gold(spark, tmp_path)
    built.save(built.usage, USAGE, (1, 20240101, 1, "s", 10), (2, 20240102, 2, "s", 10), (3, 20240103, 3, "t", 5))
    built.save(built.prices, PRICES, ("s", 2, 1, None, True))
    return built


def test_only_the_dates_of_old_and_new_images_are_built_again(gold: Gold) -> None:
    """A row that moved touches two dates, an emptied date disappears, other dates keep their very files."""
    assert gold.run() == ("done", 3)
    assert gold.rows() == [(20240101, "s", 20, 1), (20240102, "s", 20, 1), (20240103, "t", None, 1)]
    before = gold.files()
    gold.sql("UPDATE {usage} SET date_sk = 20240103, at = 3 WHERE id = 2")
    assert gold.run() == ("done", 2)
    assert gold.rows() == [(20240101, "s", 20, 1), (20240103, "s", 20, 1), (20240103, "t", None, 1)]
    after = gold.files()
    assert after["date_sk=20240101"] == before["date_sk=20240101"]
    assert after["date_sk=20240103"] != before["date_sk=20240103"]
    assert after.keys() == {"date_sk=20240101", "date_sk=20240103"}
    assert gold.run() == ("nothing_new", 0)


def test_a_plan_names_the_dates_that_would_be_restated(gold: Gold) -> None:
    """Before anything is written: all of them the first time, then those that the changes touch."""
    job = fact("cost", rows=FactRows("usage", gold.usage), build=LINES, path=gold.out)
    assert job.plan(gold.spark, gold.store).restated == (Restatement("cost", "dates", whole=True),)
    job.run(gold.spark, gold.store)
    assert job.plan(gold.spark, gold.store).restated == ()
    gold.sql("UPDATE {usage} SET date_sk = 20240104 WHERE id = 2")
    before = gold.files()
    touched = Restatement("cost", "dates", 2, values=(20240102, 20240104))
    assert job.plan(gold.spark, gold.store).restated == (touched,)
    assert gold.files() == before


def test_a_receipt_keeps_the_dates_that_were_written_anew(gold: Gold, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them the first time, then those that the changes touch; with what Spark used to do it."""
    monkeypatch.setattr("floodmark.spark.usage.SETTLING_MILLISECONDS", 30_000)  # a busy machine tells late
    job = fact("cost", rows=FactRows("usage", gold.usage), build=LINES, path=gold.out)
    first = job.run(gold.spark, gold.store)
    gold.sql("UPDATE {usage} SET date_sk = 20240104 WHERE id = 2")
    second = job.run(gold.spark, gold.store)
    assert first.restated == {"cost": RestatedDates(whole=True)}
    assert second.restated == {"cost": RestatedDates(2, (20240102, 20240104))}
    assert gold.store.runs("cost")[0].restated == second.restated
    assert second.resources["cpu_seconds"] > 0


def test_a_late_price_restates_the_dates_of_its_interval(gold: Gold) -> None:
    """The version that it cuts short says the same to dates inside of it: those are not built again."""
    gold.run()
    before = gold.files()
    gold.sql("UPDATE {prices} SET valid_to = 2, is_current = false WHERE sku = 's'")
    gold.save(gold.prices, PRICES, ("s", 3, 2, None, True))
    assert gold.run() == ("done", 1)
    assert gold.rows() == [(20240101, "s", 20, 1), (20240102, "s", 30, 1), (20240103, "t", None, 1)]
    after = gold.files()
    assert [after[date] == before[date] for date in sorted(after)] == [True, False, True]


def test_a_row_that_was_exchanged_for_its_equal_touches_nothing(gold: Gold) -> None:
    """An equal delete and insert of a feed cancel out; the mark moves all the same."""
    gold.run()
    gold.sql("DELETE FROM {usage} WHERE id = 1")
    gold.save(gold.usage, USAGE, (1, 20240101, 1, "s", 10))
    before = gold.files()
    assert gold.run() == ("done", 0)
    assert gold.files() == before
    record = gold.store.read("cost")
    assert record is not None
    assert record.marks["inputs"].show() == {"prices": 0, "usage": 2}


def test_under_freeze_a_moved_price_leaves_the_past_alone(gold: Gold) -> None:
    """Dates are built again only when their own rows change."""
    gold.run("freeze")
    gold.sql("UPDATE {prices} SET price = 7 WHERE sku = 's'")
    assert gold.run("freeze") == ("done", 0)
    gold.save(gold.usage, USAGE, (4, 20240102, 2, "s", 1))
    assert gold.run("freeze") == ("done", 1)
    assert gold.rows() == [(20240101, "s", 20, 1), (20240102, "s", 77, 2), (20240103, "t", None, 1)]


def test_rules_judge_the_rows_of_a_fact_and_nothing_else(gold: Gold) -> None:
    """A date whose rows are all put aside is exchanged like any other: what it had before is gone."""
    cheap = fm.rules.range("lines", max=1, action="quarantine")
    job = fact("n", rows=FactRows("usage", gold.usage), build=LINES, path=gold.out, rules=[cheap], spool=gold.spool)
    job.run(gold.spark, gold.store)
    gold.save(gold.usage, USAGE, (4, 20240102, 2, "s", 1))
    receipt = job.run(gold.spark, gold.store)
    assert (receipt.rows_read, receipt.rows_quarantined) == (1, 1)
    assert gold.rows() == [(20240101, 1), (20240103, 1)]


def test_inputs_are_declared_whole() -> None:
    """What is missing or not known is said when the fact is written down."""
    with pytest.raises(ConfigError, match="no columns to join on"):
        Lookup("prices", "prices")
    with pytest.raises(ConfigError, match="when_moved: 'maybe'"):
        Lookup("prices", "prices", on={"a": "b"}, when_moved="maybe")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="two inputs of one name"):
        fact("f", rows=FactRows("x", "x"), lookups=[Lookup("x", "y", on={"a": "a"})], build="select 1", path="p")
