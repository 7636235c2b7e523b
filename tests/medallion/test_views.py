"""Views that outlive their session: as Delta tables where the catalog forgets, with the seconds that each took."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from floodmark.errors import ConfigError
from floodmark.medallion import ViewReport, name_table, name_tables, publish_views
from floodmark.spark.table_files import read_table
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import VIEWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
QUERIES = {
    "sums": "with s as (select k, sum(v) as v from numbers group by k) select * from s",
    "sums_too": "select k, sum(v) as v from numbers group by k",
    "wrong": "select nothing from numbers",
    "elsewhere": "select * from not_listed",
}


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    write_deltalake(tmp_path / "numbers", pa.table({"k": ["a", "a", "b"], "v": [1, 2, 3]}))
    yield tmp_path
    spark.sql("drop schema if exists views_test cascade")


def published(spark: SparkSession, lake: Path, store: MemoryMarkStore, *names: str) -> dict[str, ViewReport]:
    views = {name: QUERIES[name] for name in names}
    tables = {"numbers": str(lake / "numbers")}
    folder = str(lake / "views")
    found = publish_views(spark, views, tables, schema="views_test", folder=folder, store=store)
    return {each.name: each for each in found}


def rows(view: Path) -> list[tuple[str, int]]:
    return sorted((row["k"], row["v"]) for row in DeltaTable(view).to_pyarrow_table().to_pylist())


def test_a_view_is_a_table_that_follows_its_tables(spark: SparkSession, lake: Path) -> None:
    """Written anew when one of them has another version, and only then."""
    store = MemoryMarkStore()
    first = published(spark, lake, store, "sums")["sums"]
    assert (first.kept_as, first.error, rows(lake / "views" / "sums")) == ("table", None, [("a", 3), ("b", 3)])
    assert published(spark, lake, store, "sums")["sums"] == ViewReport("sums", "unchanged")
    write_deltalake(lake / "numbers", pa.table({"k": ["c"], "v": [9]}), mode="append")
    assert published(spark, lake, store, "sums")["sums"].kept_as == "table"
    assert rows(lake / "views" / "sums") == [("a", 3), ("b", 3), ("c", 9)]
    assert [set(run.durations) for run in store.runs(VIEWS)] == [{"sums"}, {"sums"}]


def test_a_view_that_fails_does_not_stop_the_others(spark: SparkSession, lake: Path) -> None:
    """All of them are one receipt, with the reason."""
    store = MemoryMarkStore()
    reports = published(spark, lake, store, "wrong", "elsewhere", "sums")
    assert (reports["sums"].kept_as, reports["wrong"].kept_as) == ("table", "nothing")
    assert "which is none of the tables" in str(reports["elsewhere"].error)
    [run] = store.runs(VIEWS)
    assert (run.status, "wrong: " in str(run.error), set(run.durations)) == ("failed", True, {"sums"})


def test_all_views_of_one_time_show_the_same_rows(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that grows while they are published is met by the next time: else two sums would not agree."""
    store = MemoryMarkStore()

    def read_and_grow(session: SparkSession, location: str, version: int | None = None) -> DataFrame:
        found = read_table(session, location, version)
        write_deltalake(location, pa.table({"k": ["c"], "v": [9]}), mode="append")
        return found

    monkeypatch.setattr("floodmark.medallion.views.read_table", read_and_grow)
    published(spark, lake, store, "sums", "sums_too")
    assert [rows(lake / "views" / name) for name in ("sums", "sums_too")] == [[("a", 3), ("b", 3)]] * 2
    published(spark, lake, store, "sums", "sums_too")
    assert [rows(lake / "views" / name) for name in ("sums", "sums_too")] == [[("a", 3), ("b", 3), ("c", 9)]] * 2


def test_several_tables_get_their_names_at_once(spark: SparkSession, lake: Path) -> None:
    """Also in schemas that are not there yet; those that are no table get none."""
    write_deltalake(lake / "other", pa.table({"k": ["z"], "v": [0]}))
    places = {"views_test.one": "numbers", "views_test.two": "other", "views_test.three": "nowhere"}
    named = name_tables(spark, {name: str(lake / place) for name, place in places.items()})
    assert named == {"views_test.one", "views_test.two"}
    assert [spark.table(name).count() for name in sorted(named)] == [3, 1]


def test_a_name_that_leads_to_another_place_is_given_anew(spark: SparkSession, lake: Path) -> None:
    """No file goes with the old name; a place without a table gets no name."""
    write_deltalake(lake / "other", pa.table({"k": ["z"], "v": [0]}))
    assert name_table(spark, "views_test.t", str(lake / "numbers"))
    assert name_table(spark, "views_test.t", str(lake / "other"))
    assert [tuple(row) for row in spark.table("views_test.t").collect()] == [("z", 0)]
    assert DeltaTable(lake / "numbers").to_pyarrow_table().num_rows == 3
    assert not name_table(spark, "views_test.none", str(lake / "nowhere"))


def test_a_name_that_is_taken_by_a_table_of_the_catalogs_own_or_a_view_is_left_alone(
    spark: SparkSession, lake: Path
) -> None:
    """The rows of such a table would go with its name."""
    spark.sql("create schema if not exists views_test")
    spark.sql("create table views_test.own using delta as select 'mine' as k, 1 as v")
    spark.sql("create view views_test.seen as select * from views_test.own")
    with pytest.raises(ConfigError, match=r"views_test.own is in the catalog already \(managed\)"):
        name_table(spark, "views_test.own", str(lake / "numbers"))
    with pytest.raises(ConfigError, match=r"views_test.seen is in the catalog already \(view\)"):
        name_table(spark, "views_test.seen", str(lake / "numbers"))
    assert [tuple(row) for row in spark.table("views_test.seen").collect()] == [("mine", 1)]
