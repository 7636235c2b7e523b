"""Rules that look at the batch as a whole, or into another table."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark import rules
from floodmark.errors import ConfigError
from floodmark.rules import RuleSet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)


def orders(spark: SparkSession) -> DataFrame:
    """In the source's order: 1 twice, 3 without a customer, one without an id."""
    given = [(1, "a", 10), (2, "b", 20), (1, "c", 30), (3, None, 40), (None, "a", 50)]
    return spark.createDataFrame(given, "id long, customer string, _fm_position long")


def broken(given: RuleSet, rows: DataFrame) -> dict[int, list[str]]:
    marked = given.mark(rows).select("_fm_position", given.legend().reasons().alias("broken"))
    return {row["_fm_position"]: row.broken for row in marked.collect()}


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with one order and one customer."""
    folder = tmp_path_factory.mktemp("lake")
    spark.createDataFrame([(2, "a"), (2, "a")], "id long, name string").write.format("delta").save(str(folder / "t"))
    return folder


def test_of_several_rows_with_one_key_the_first_is_good_and_a_key_without_a_value_never_is(
    spark: SparkSession, lake: Path
) -> None:
    """First in the source's order. Against a table, a key that it holds is a repeat too."""
    given = RuleSet(
        (
            rules.unique("id", action="quarantine", name="in batch"),
            rules.unique("id", path=str(lake / "t"), action="quarantine", name="and table"),
        )
    )
    both = ["in batch", "and table"]
    assert broken(given, orders(spark)) == {10: [], 20: ["and table"], 30: both, 40: [], 50: both}


def test_a_table_that_is_not_there_yet_holds_no_key(spark: SparkSession, tmp_path: Path) -> None:
    """The first batch makes it."""
    given = RuleSet((rules.unique("id", path=str(tmp_path / "nothing"), name="new"),))
    assert broken(given, orders(spark)) == {10: [], 20: [], 30: ["new"], 40: [], 50: ["new"]}


def test_a_reference_has_to_be_found(spark: SparkSession, lake: Path) -> None:
    """Each row stays one row, however often the table has its key; a NULL refers to nothing."""
    given = RuleSet((rules.references("customer", key="name", path=str(lake / "t"), name="who"),))
    assert broken(given, orders(spark)) == {10: [], 20: ["who"], 30: ["who"], 40: ["who"], 50: []}


def test_a_table_that_references_need_and_that_is_not_there_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """Quarantining everything would hide the mistake."""
    given = RuleSet((rules.references("customer", key="name", path=str(tmp_path / "gone"), name="who"),))
    with pytest.raises(ConfigError, match=r"'who' looks into .*gone"):
        given.mark(orders(spark))


def test_sums_of_the_batch_hold_or_do_not_and_tell_what_was_found(spark: SparkSession) -> None:
    """Every rule reports, also those that hold; an empty batch is not fresh."""
    given = RuleSet(
        (
            rules.row_count(min=2, max=3, name="two or three"),
            rules.row_count(min=4, name="four"),
            rules.fresh("at", within=timedelta(hours=1), name="hour"),
            rules.fresh("at", within=timedelta(hours=3), name="three hours"),
        )
    )
    rows = spark.sql("select timestamp'2026-01-02 10:00:00Z' at union all select timestamp'2026-01-01 10:00:00Z'")
    assert verdicts(given, rows) == {
        "two or three": (0, ()),
        "four": (1, ("2 rows",)),
        "hour": (1, ("newest 2026-01-02 10:00:00",)),
        "three hours": (0, ()),
    }
    assert verdicts(given, rows.limit(0))["three hours"] == (1, ("newest none",))


def verdicts(given: RuleSet, rows: DataFrame) -> dict[str, tuple[int, tuple[str, ...]]]:
    marked = given.mark(rows)
    tally = given.tally(marked.agg(*given.measures(NOON)).collect()[0].asDict())
    return {each.name: (each.failed, each.samples) for each in tally.verdicts}
