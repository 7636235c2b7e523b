"""Dimensions that follow the changes of a silver table, surrogate keys, joins to the version that was valid, layers."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import floodmark as fm
from floodmark.errors import ConfigError, KeysCollide
from floodmark.medallion import (
    UNKNOWN,
    FactRows,
    Layer,
    Lookup,
    asof,
    asof_key,
    current_members,
    dimension,
    fact,
    require_distinct,
    surrogate_key,
    with_key,
    with_superseded,
    with_unknown,
)
from floodmark.medallion.dimensions import Members
from floodmark.testing import RowsSource
from tests.tables import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLUSTER = "id string, size int, at int"
VERSIONS = "sku string, price double, valid_from int, valid_to int, is_current boolean"
P1, P2 = ("s", 1.0, 1, 5, False), ("s", 2.0, 5, None, True)


def silver(tmp_path: Path, source: RowsSource) -> fm.Job:
    return fm.Job("silver", source, [fm.sinks.Scd2(str(tmp_path / "silver"), key=("id",), sequence=("at",))])


def gold(tmp_path: Path, *, versions: bool = True, keep_superseded: bool = False) -> fm.Job:
    return dimension(
        "gold",
        source=str(tmp_path / "silver"),
        path=str(tmp_path / "gold"),
        key="cluster_sk",
        natural=["cluster_id"],
        columns={"cluster_id": "id", "cores": "size * 4"},
        versions=versions,
        keep_superseded=keep_superseded,
    )


def members(tmp_path: Path) -> list[tuple[Any, ...]]:
    """What the dimension says of each, without its key."""
    rows = [row.asDict() for row in rows_of(tmp_path / "gold")]
    return sorted((tuple(row[name] for name in row if name != "cluster_sk") for row in rows), key=str)


@pytest.mark.spark
def test_a_version_that_a_late_event_moves_leaves_the_dimension_and_comes_back_under_its_new_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The same value was known before: one version since 5 takes the place of the one since 10."""
    rows: list[Any] = [{"id": "c1", "size": 2, "at": 10}]
    store, layer = (
        fm.stores.open("memory"),
        Layer("build", (gold(tmp_path), silver(tmp_path, RowsSource(rows, CLUSTER)))),
    )
    layer.build(spark, store)
    before = members(tmp_path)
    rows.append({"id": "c1", "size": 2, "at": 5})
    layer.build(spark, store)
    assert before == [("c1", 8, 10, None, True), (None, None, None, None, None)]
    assert members(tmp_path) == [("c1", 8, 5, None, True), (None, None, None, None, None)]


def test_a_layer_knows_from_its_tables_who_waits_for_whom(tmp_path: Path) -> None:
    """Whatever the order in which the jobs are named."""
    rows, lookup = FactRows("rows", str(tmp_path / "rows")), Lookup("gold", str(tmp_path / "gold"), on={"a": "b"})
    cost = fact("cost", rows=rows, lookups=[lookup], build="select 1", path=str(tmp_path / "cost"))
    layer = Layer("build", (cost, gold(tmp_path), silver(tmp_path, RowsSource([], CLUSTER))))
    assert layer.needs() == {"cost": ("gold",), "gold": ("silver",), "silver": ()}


@pytest.mark.spark
def test_a_key_depends_on_values_and_places_alone(spark: SparkSession) -> None:
    """Not on the session's zone, nor on the width of a number; NULL, blank and changed places differ."""
    noon = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)
    rows = [(1, "a", "b", noon), (1, "b", "a", noon), (1, None, "a", noon), (1, "a", None, noon), (1, "", "a", noon)]
    frame = spark.createDataFrame(rows, "n int, x string, y string, t timestamp")
    elsewhere = spark.newSession()
    elsewhere.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    there = elsewhere.createDataFrame(rows, "n long, x string, y string, t timestamp")
    keys = [row[0] for row in frame.select(surrogate_key(frame, ["n", "x", "y", "t"])).collect()]
    assert [row[0] for row in there.select(surrogate_key(there, ["n", "x", "y", "t"])).collect()] == keys
    assert len(set(keys)) == 5
    assert min(keys) >= 0


@pytest.mark.spark
def test_the_key_of_a_version_is_pinned(spark: SparkSession) -> None:
    """Tables that were written with it are there: the way it is computed never changes."""
    found = with_key(spark.createDataFrame([P1], VERSIONS), "sku_sk", ["sku"]).collect()[0]
    assert (found.sku_sk, found.sku, found.valid_from) == (2697594312962290373, "s", 1)


@pytest.mark.spark
def test_the_unknown_member_and_collisions(spark: SparkSession) -> None:
    """-1 is there once; two rows of one key are named."""
    keyed = with_unknown(with_key(spark.createDataFrame([P1, P2], VERSIONS), "sku_sk", ["sku"]), "sku_sk")
    assert [tuple(row) for row in require_distinct(keyed, "sku_sk").where("sku_sk = -1").collect()] == [
        (-1, None, None, None, None, None)
    ]
    with pytest.raises(KeysCollide) as found:
        require_distinct(keyed.unionByName(keyed.where("sku_sk = -1")), "sku_sk")
    assert (found.value.column, found.value.key, found.value.rows) == ("sku_sk", -1, 2)


@pytest.mark.spark
def test_a_fact_finds_the_version_that_was_valid_and_is_kept_without_one(spark: SparkSession) -> None:
    """From the start on, up to before the end; before the first and for another key there is none."""
    prices = with_key(spark.createDataFrame([P1, P2], VERSIONS), "sku_sk", ["sku"])
    facts = spark.createDataFrame([("s", 0), ("s", 1), ("s", 4), ("s", 5), ("s", 99), ("t", 3)], "item string, at int")
    found = asof(facts, prices, on={"item": "sku"}, at="at", take={"price": "unit_price"}).orderBy("item", "at")
    assert [tuple(row) for row in found.collect()] == [
        ("s", 0, None),
        ("s", 1, 1.0),
        ("s", 4, 1.0),
        ("s", 5, 2.0),
        ("s", 99, 2.0),
        ("t", 3, None),
    ]
    keyed = asof_key(facts, prices, on={"item": "sku"}, at="at", key="sku_sk")
    assert keyed.where("sku_sk = -1").count() == 2
    assert keyed.join(prices, "sku_sk").count() == 4


@pytest.mark.spark
def test_under_freeze_a_version_that_is_no_longer_so_points_to_its_successor(spark: SparkSession) -> None:
    """A late event moved the start of the second version: facts with its old key still find a row."""
    before = with_key(spark.createDataFrame([P1, P2], VERSIONS), "sku_sk", ["sku"])
    moved = [("s", 1.0, 1, 4, False), ("s", 2.0, 4, None, True)]
    now = with_key(spark.createDataFrame(moved, VERSIONS), "sku_sk", ["sku"])
    held = with_superseded(now, with_unknown(before, "sku_sk"), "sku_sk", ["sku"])
    old = before.where("valid_from = 5").collect()[0].sku_sk
    new = now.where("valid_from = 4").collect()[0].sku_sk
    assert {(row.sku_sk, row.successor, row.is_current) for row in held.where("price = 2.0").collect()} == {
        (new, None, True),
        (old, new, False),
    }
    again = with_superseded(now, held, "sku_sk", ["sku"])
    assert sorted(map(tuple, again.collect()), key=str) == sorted(map(tuple, held.collect()), key=str)


@pytest.mark.spark
def test_a_frozen_fact_keeps_keys_that_the_dimension_still_has(spark: SparkSession, tmp_path: Path) -> None:
    """The old version stays with a pointer to its successor; the next fact, which looks members up, never meets it."""
    rows: list[Any] = [{"id": "c1", "size": 2, "at": 10}]
    source, store = RowsSource(rows, CLUSTER), fm.stores.open("memory")
    usage, path = spark.createDataFrame([(20240101, "c1", 12)], "date_sk int, id string, at int"), str(tmp_path / "use")
    usage.write.format("delta").option("delta.enableChangeDataFeed", "true").save(path)
    frozen = fact(
        "frozen",
        rows=FactRows("usage", path),
        lookups=[
            Lookup("dim", str(tmp_path / "gold"), on={"id": "cluster_id"}, at="at", when_moved="freeze"),
        ],
        build="""
            SELECT u.date_sk, d.cluster_sk FROM usage u JOIN dim d ON d.cluster_id = u.id
            AND u.at >= d.valid_from AND (d.valid_to IS NULL OR u.at < d.valid_to)
        """,
        path=str(tmp_path / "fact"),
    )

    def build_all() -> list[int]:
        silver(tmp_path, source).run(spark, store)
        gold(tmp_path, keep_superseded=True).run(spark, store)
        frozen.run(spark, store)
        return sorted(row.cluster_sk for row in rows_of(tmp_path / "fact"))

    [old] = build_all()
    rows.append({"id": "c1", "size": 2, "at": 5})
    assert build_all() == [old]
    dim = spark.read.format("delta").load(str(tmp_path / "gold"))
    found = {row.cluster_sk: row for row in rows_of(tmp_path / "gold") if row.cluster_id is not None}
    new = found[old].successor
    assert (found[old].valid_from, found[old].is_current, found[new].valid_from, found[new].successor) == (
        10,
        False,
        5,
        None,
    )
    assert [row.cluster_sk for row in current_members(dim).where("cluster_id IS NOT NULL").collect()] == [new]
    later = spark.createDataFrame([(20240102, "c1", 13)], usage.schema)
    later.write.format("delta").mode("append").save(path)
    assert build_all() == sorted([old, new])


@pytest.mark.spark
def test_a_superseded_version_that_returns_is_current_again_and_one_without_a_successor_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its key is the same, since it depends on the version alone; a version that nothing follows points to -1."""
    feed = "id string, size int, valid_from int, valid_to int, is_current boolean, _change_type string, v long"
    members = Members("sk", ("id",), {"id": "id"}, versions=True, keep_superseded=True)

    def changes(*rows: tuple[Any, ...]) -> dict[int, int | None]:
        images = spark.createDataFrame(list(rows), feed).withColumnRenamed("v", "_commit_version")
        made = members.apply({"f": images}, job="j", attempt="a", batch_time=datetime.now(timezone.utc))
        return {row.valid_from: row.successor for row in made.where("sk >= 0").collect()}

    gone, back = ("c", 1, 10, None, True, "delete", 1), ("c", 1, 10, None, True, "insert", 2)
    assert changes(gone) == {10: UNKNOWN}
    assert changes(gone, back) == {10: None}


def test_a_dimension_without_versions_has_none_that_are_superseded(tmp_path: Path) -> None:
    """Its members stay anyway."""
    with pytest.raises(ConfigError, match="has none that are superseded"):
        gold(tmp_path, versions=False, keep_superseded=True)
