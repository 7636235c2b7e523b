"""A query calls its sources by their names, also in front of a column."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import floodmark as fm
from floodmark.errors import ColumnReserved
from floodmark.sinks.contract import POSITION
from floodmark.step import Function, Sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
NOON = datetime(2026, 11, 15, 12, 0, tzinfo=timezone.utc)


@pytest.fixture
def orders(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, "a"), (2, "b")], "id long, v string")


def rows_of(sql: str, frames: dict[str, DataFrame]) -> list[tuple[Any, ...]]:
    transform = Sql(sql).over(list(frames))
    made = transform.apply(frames, job="orders", attempt="a1", batch_time=NOON)
    return sorted(tuple(row) for row in made.collect())


@pytest.mark.parametrize(
    "sql",
    [
        "select source.id, source.v from source",
        "select source.* from source",
        "select Source.id, `source`.v from SOURCE",
        "select s.id, s.v from source s",
        "select source.id, v from source where source.id in (select source.id from source where source.v < 'z')",
        "with x as (select source.id, source.v from source) select x.* from x",
        "with source as (select source.* from source where source.id > 0) select source.id, source.v from source",
        "select t.id, t.v from (select source.id, source.v from source) t",
        "select source.id, b.v from source join source b on source.id = b.id",
        "select source.id, source.v from source where exists (select 1 from source b where b.id = source.id)",
        "select id, v from source union select source.id, source.v from source",
        "select source.id, source.v from source tablesample (100 percent)",
        "select /*+ broadcast(source) */ source.id, max(source.v) from source group by source.id",
    ],
)
def test_columns_may_be_called_by_the_name_of_the_source(orders: DataFrame, sql: str) -> None:
    """The view is another one in every batch; the name that a person writes stays."""
    assert rows_of(sql, {"orders_table": orders}) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    "sql",
    [
        "select orders.id, shops.v from orders join shops on orders.id = shops.id",
        "select orders.id, shops.v from orders, shops where orders.id = shops.id",
        "select Orders.*  from ORDERS left semi join shops on orders.id = shops.id",
        "select o.id, shops.v from orders o join shops using (id)",
        "with big as (select orders.id from orders) select big.id, shops.v from big join shops on big.id = shops.id",
    ],
)
def test_so_may_those_of_several_sources(orders: DataFrame, sql: str) -> None:
    """Each source by its own name."""
    assert rows_of(sql, {"orders": orders, "shops": orders.where("id = 1")}) == [(1, "a")]


def test_a_source_may_be_called_what_no_identifier_is(orders: DataFrame) -> None:
    """Its name is in backticks then, and with capitals if it has them."""
    sql = "select `Orders-EU`.id, shops.v from `Orders-EU` join shops on `orders-eu`.id = shops.id"
    assert rows_of(sql, {"Orders-EU": orders, "shops": orders.where("id = 1")}) == [(1, "a")]


def test_the_position_comes_along_with_a_star_of_the_source(orders: DataFrame) -> None:
    """A keyed sink needs it."""
    positioned = orders.selectExpr("*", f"id * 10 as {POSITION}")
    made = Sql("select source.* from source").apply({"o": positioned}, job="j", attempt="a", batch_time=NOON)
    assert made.columns == ["id", "v", POSITION]


def test_a_column_of_the_users_with_a_name_of_ours_is_refused(orders: DataFrame) -> None:
    """Sinks leave such columns out, so it would be lost without a word."""
    with pytest.raises(ColumnReserved) as caught:
        rows_of("select id, v as _FM_note from source", {"o": orders})
    assert (caught.value.column, caught.value.place) == ("_FM_note", "the transform of job 'orders'")
    with pytest.raises(ColumnReserved):
        Function(lambda df: df.withColumnRenamed("v", "_fm_v")).apply(
            {"o": orders}, job="orders", attempt="a", batch_time=NOON
        )


def test_so_is_a_column_of_a_source(spark: SparkSession, tmp_path: Path) -> None:
    """Before anything is written."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"id": 1, "_fm_note": "x"}\n')
    job = fm.Job(
        name="orders",
        source=fm.sources.Files(tmp_path / "in", schema="id long, _fm_note string", name="inbox"),
        sinks=[fm.sinks.Files(str(tmp_path / "out"))],
    )
    with pytest.raises(ColumnReserved) as caught:
        job.run(spark, fm.stores.open("memory"))
    assert (caught.value.column, caught.value.place) == ("_fm_note", "source 'inbox'")
    assert not list(tmp_path.glob("out/batch=*"))
