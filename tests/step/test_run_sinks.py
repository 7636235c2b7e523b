"""Several sinks of one job: all of them get the rows as they were when the batch was read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
import pytest

import floodmark as fm
from floodmark.errors import SinkFailed
from floodmark.sinks.contract import Batch
from floodmark.testing import ListSink, RowsSource
from tests.tables import sorted_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


@dataclass
class Meddler(ListSink):
    """Takes its rows, then changes and deletes rows of the source, as an application may at any moment."""

    url: str = ""

    def write(self, rows: DataFrame, batch: Batch) -> int | None:
        written = super().write(rows, batch)
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("update orders set v = 'changed' where id = 1")
            connection.execute("delete from orders where id = 2")
        return written


@pytest.mark.spark
def test_a_row_updated_between_two_sinks_of_one_batch_is_the_same_in_all_of_them(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    """A plan that ran once per sink would read the source once per sink; the batch is frozen before the first."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table orders (id bigint primary key, v text)")
        connection.execute("insert into orders values (1, 'as read'), (2, 'as read')")
    meddler = Meddler("meddler", url=database)
    job = fm.Job(
        name="orders",
        source=fm.sources.Postgres(database, table="orders", cursor="id"),
        sinks=[
            fm.sinks.Delta(str(tmp_path / "lake")),
            meddler,
            fm.sinks.Postgres(database, "copies"),
        ],
    )
    job.run(spark, fm.stores.open("sqlite:///marks.db", folder=tmp_path))
    with psycopg.connect(database) as connection:
        copies = connection.execute("select * from copies order by id").fetchall()
    assert copies == [(1, "as read"), (2, "as read")]
    assert copies == sorted_rows(tmp_path / "lake")
    assert copies == [(row["id"], row["v"]) for row in meddler.rows]


@pytest.mark.spark
def test_joined_table_changed(spark: SparkSession, tmp_path: Path) -> None:
    """A table that no mark covers is another one when the batch is finished: its rows were kept, so all sinks agree."""
    rates = str(tmp_path / "rates")
    spark.sql(f"create table delta.`{rates}` using delta as select 1 as id, 'before' as rate")
    first, second = ListSink("first"), ListSink("second", fail_times=1)
    query = f"select s.id, d.rate from source s join delta.`{rates}` d on s.id = d.id"
    job = fm.Job("orders", RowsSource([{"id": 1}]), [first, second], query)
    store = fm.stores.open("sqlite:///marks.db", folder=tmp_path)
    with pytest.raises(SinkFailed):
        job.run(spark, store)
    spark.sql(f"update delta.`{rates}` set rate = 'after'")
    job.run(spark, store)
    assert first.rows == second.rows == [{"id": 1, "rate": "before"}]
