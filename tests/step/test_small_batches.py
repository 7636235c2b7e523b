"""Small batches of a job: one Spark job each, counted as all others, and the receipt says how they were written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psycopg
import pytest

import floodmark as fm
from floodmark.errors import StoreUnreachable
from floodmark.sinks.small import SMALL_ROWS
from floodmark.stores.contract import MarkStore
from floodmark.testing import FailingStore, RowsSource
from floodmark.testing.servers import Broker
from tests.sinks.delta.test_ways import jobs_started
from tests.sinks.kafka.messages import values
from tests.tables import rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
SCHEMA = "id long, v string"
MODES: dict[str, dict[str, Any]] = {
    "append": {},
    "merge": {"mode": "merge", "key": "id"},
    "replace": {"mode": "replace", "by": "id"},
}


@pytest.fixture
def store(tmp_path: Path) -> MarkStore:
    return fm.stores.open("sqlite:///marks.db", folder=tmp_path)


def some(first: int, last: int) -> list[dict[str, object]]:
    return [{"id": number, "v": f"v{number}"} for number in range(first, last + 1)]


def table(folder: Path) -> list[int]:
    return sorted(row.id for row in rows_of(folder))


@pytest.mark.parametrize("mode", MODES)
def test_a_warm_batch_of_ten_rows_starts_one_spark_job(
    spark: SparkSession, store: MarkStore, tmp_path: Path, mode: str
) -> None:
    """The one that brings its rows; nothing is counted, looked up or checked by another."""
    rows, sink = some(1, 10), fm.sinks.Delta(str(tmp_path / "lake"), **MODES[mode])
    job = fm.Job("small", RowsSource(rows, SCHEMA), [sink])
    job.run(spark, store)
    rows += some(11, 20)
    assert jobs_started(spark, lambda: job.run(spark, store)) == 1
    receipt = store.runs("small")[0]
    assert (receipt.rows_read, receipt.rows_written, receipt.written_by) == (10, {"delta": 10}, {"delta": "arrow"})
    assert table(tmp_path / "lake") == list(range(1, 21))


def test_small_files_go_through_arrow_with_their_dead_letters_and_quarantine(
    spark: SparkSession, store: MarkStore, tmp_path: Path
) -> None:
    """Their rows are not known before they are read; their bytes are."""
    (tmp_path / "in").mkdir()
    lines = ['{"id": 1, "v": "a"}', '{"id": 2, "v', '{"id": -3, "v": "c"}']
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(lines))
    job = fm.Job(
        "small",
        fm.sources.Files(str(tmp_path / "in"), schema=SCHEMA, settle=0),
        [fm.sinks.Delta(str(tmp_path / "lake"))],
        rules=[fm.rules.check("id > 0", action="quarantine")],
        dead_letters=str(tmp_path / "dead"),
        quarantine=str(tmp_path / "quarantine"),
    )
    receipt = job.run(spark, store)
    assert (receipt.rows_read, receipt.rows_dead, receipt.rows_quarantined) == (3, 1, 1)
    assert set(receipt.written_by.values()) == {"arrow"}
    assert len(receipt.written_by) == 3
    assert (job.run(spark, store).status, table(tmp_path / "lake")) == ("nothing_new", [1])


def test_a_transform_that_makes_too_many_rows_is_counted_as_it_reads(
    spark: SparkSession, store: MarkStore, tmp_path: Path
) -> None:
    """Some of its rows were read to see whether they are few: what was observed then is not the count of the batch."""

    def many(rows: DataFrame) -> DataFrame:
        return rows.selectExpr("id", f"explode(sequence(1, CASE id WHEN 2 THEN {SMALL_ROWS + 1} ELSE 1 END)) AS n")

    rows = some(1, 1)
    job = fm.Job("small", RowsSource(rows, SCHEMA), [fm.sinks.Delta(str(tmp_path / "lake"))], transform=many)
    job.run(spark, store)
    rows += some(2, 4)
    receipt = job.run(spark, store)
    assert (receipt.rows_read, receipt.rows_written) == (3, {"delta": SMALL_ROWS + 3})
    assert receipt.written_by == {"delta": "parquet"}


@pytest.mark.parametrize("again", ["auto", "spark"])
def test_a_batch_that_was_written_by_arrow_and_not_committed_is_known_again_either_way(
    spark: SparkSession, store: MarkStore, tmp_path: Path, again: Literal["auto", "spark"]
) -> None:
    """The number is in the table's log, whoever wrote it there."""
    rows, sink = some(1, 3), fm.sinks.Delta(str(tmp_path / "lake"))
    fm.Job("small", RowsSource(rows, SCHEMA), [sink]).run(spark, store)
    rows += some(4, 5)
    with pytest.raises(StoreUnreachable):
        fm.Job("small", RowsSource(rows, SCHEMA), [sink]).run(spark, FailingStore(store, fail_on={"commit": 1}))
    receipt = fm.Job("small", RowsSource(rows, SCHEMA), [replace(sink, writer=again)]).run(spark, store)
    assert (receipt.recovered, receipt.rows_written, receipt.written_by) == (True, {"delta": 2}, {"delta": "arrow"})
    assert table(tmp_path / "lake") == [1, 2, 3, 4, 5]


@pytest.fixture
def relay(database: str, kafka: Broker, topic: Callable[..., str], tmp_path: Path) -> fm.Job:
    """From a table, whose rows may change, into a topic."""
    execute(database, "create table o (id int primary key, v text)", "insert into o values (1, 'a'), (2, 'b')")
    return fm.Job(
        "relay",
        fm.sources.Postgres(database, "o", cursor="id"),
        [fm.sinks.Kafka(kafka.bootstrap, topic(partitions=3), key="id", value="text:v")],
        spool=str(tmp_path / "spool"),
    )


def execute(database: str, *statements: str) -> None:
    with psycopg.connect(database) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def test_a_warm_batch_of_a_table_into_a_topic_starts_one_spark_job_and_is_not_frozen(
    spark: SparkSession, store: MarkStore, relay: fm.Job, kafka: Broker, database: str, tmp_path: Path
) -> None:
    """It is one transaction, so that nobody compares a second reading with the first."""
    relay.run(spark, store)
    execute(database, "insert into o values (3, 'c')")
    assert jobs_started(spark, lambda: relay.run(spark, store)) == 1
    receipt = store.runs("relay")[0]
    assert (receipt.rows_read, receipt.rows_written, receipt.written_by) == (1, {"kafka": 1}, {"kafka": "arrow"})
    assert values(kafka.bootstrap, relay.sinks[0].topic) == ["a", "b", "c"]  # type: ignore[attr-defined]
    assert not (tmp_path / "spool").exists()


def test_a_small_batch_that_is_in_the_topic_and_not_committed_stays_as_it_is(
    spark: SparkSession, store: MarkStore, relay: fm.Job, kafka: Broker, database: str
) -> None:
    """Its rows are others by now, and one is gone: what readers have seen is what counts."""
    with pytest.raises(StoreUnreachable):
        relay.run(spark, FailingStore(store, fail_on={"commit": 1}))
    execute(database, "update o set v = 'changed' where id = 2", "delete from o where id = 1")
    receipt = relay.run(spark, store)
    assert (receipt.recovered, receipt.rows_read, receipt.rows_written) == (True, 2, {"kafka": 2})
    assert values(kafka.bootstrap, relay.sinks[0].topic) == ["a", "b"]  # type: ignore[attr-defined]
    assert relay.run(spark, store).status == "nothing_new"
