"""A job with several sources of which some have nothing new: the transform gets all of them, those without rows."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import floodmark as fm
from floodmark.errors import ConfigError
from floodmark.sources.contract import Reading, Request, Session, Sight, Source
from floodmark.step.batch import empty_frame
from floodmark.testing import ListSink, RowsSource

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from floodmark.hwm import HWM, Span

pytestmark = pytest.mark.spark
JOINED = "select o.id, c.name from orders o left join customers c on o.customer = c.id"


def test_sql_that_names_all_sources_runs_when_one_of_them_is_idle(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    """A Delta table that never had a row and a PostgreSQL table: first the one is idle, then the other."""
    lake, feed = str(tmp_path / "customers"), "delta.enableChangeDataFeed"
    spark.sql(f"create table delta.`{lake}` (id long, name string) using delta tblproperties ({feed} = true)")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table orders (id bigint primary key, customer bigint)")
        connection.execute("insert into orders values (1, 7)")
    orders = fm.sources.Postgres(database, "orders", cursor="id", name="orders")
    job = fm.Job("both", [orders, fm.sources.Delta(lake, name="customers")], [sink := ListSink()], JOINED)
    store = fm.stores.open("memory")
    first = job.run(spark, store)
    spark.sql(f"insert into delta.`{lake}` values (7, 'Ada')")
    second = job.run(spark, store)
    assert [(row["id"], row["name"]) for row in sink.rows] == [(1, None)]
    assert (first.mark_after, second.mark_after, second.rows_read) == (1, {"orders": 1, "customers": 1}, 1)


def test_a_function_gets_every_source_by_its_name(spark: SparkSession) -> None:
    """Never one in the place of another."""
    seen: list[tuple[int, list[str]]] = []

    def both(left: DataFrame, right: DataFrame) -> DataFrame:
        seen.append((right.count(), right.columns))
        return left

    sources = [RowsSource([{"id": 1}], "id long", "left"), RowsSource([], "name string", "right")]
    fm.Job("both", sources, [sink := ListSink()], both).run(spark, fm.stores.open("memory"))
    assert ([row["id"] for row in sink.rows], seen) == ([1], [(0, ["name"])])


def test_every_source_tells_its_columns_without_a_row(spark: SparkSession, database: str, tmp_path: Path) -> None:
    """As `read` gives them to the transform: declared, by the database, or as the newest file has them."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table t (id bigint primary key, at timestamptz, total numeric(10,2))")
    with sqlite3.connect(tmp_path / "t.db") as file:
        file.execute("create table t (id integer primary key, name text)")
    file.close()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id,name\n1,x\n")
    value = {"format": "json", "schema": "id long"}
    sources: dict[str, Source] = {
        "postgres": fm.sources.Postgres(database, "t", cursor="id"),
        "query": fm.sources.Postgres(database, query="select id from t where id > :after and id <= :upto", cursor="id"),
        "sqlite": fm.sources.Sqlite(tmp_path / "t.db", "t", cursor="id"),
        "kafka": fm.sources.Kafka("nowhere:1", "t", value=value, columns=("key",)),
        "declared": fm.sources.Files(tmp_path / "none", schema="id long"),
        "csv": fm.sources.Files(tmp_path / "in", format="csv"),
    }
    frames = {name: empty_frame(source, "all", spark) for name, source in sources.items()}
    assert {name: frame.schema.simpleString() for name, frame in frames.items()} == {
        "postgres": "struct<id:bigint,at:timestamp,total:decimal(10,2)>",
        "query": "struct<id:bigint>",
        "sqlite": "struct<id:bigint,name:string>",
        "kafka": "struct<id:bigint,kafka_key:string>",
        "declared": "struct<id:bigint>",
        "csv": "struct<id:string,name:string>",
    }
    assert [frame.isEmpty() for frame in frames.values()] == [True] * 6


class Mute:
    """A source of somebody's own, which reads and no more."""

    name = "mute"

    def fingerprint(self, session: Session) -> str:
        return "mute"

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        return Sight(None)

    def read(self, spark: SparkSession, span: Span) -> Reading:
        return Reading(spark.range(0))


def test_a_source_that_cannot_tell_its_columns_is_an_error_that_says_what_to_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Files of which none is there yet, and a source that knows no other way than to read."""
    (tmp_path / "in").mkdir()
    with pytest.raises(ConfigError, match="has no file yet, so nothing tells its columns") as caught:
        empty_frame(fm.sources.Files(tmp_path / "in"), "both", spark)
    assert "schema" in (caught.value.hint or "")
    with pytest.raises(ConfigError, match="cannot tell its columns without rows"):
        empty_frame(Mute(), "both", spark)
