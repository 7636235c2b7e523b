"""Small batches that reach PostgreSQL and Kafka from the driver: the same rows and messages as by tasks, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from floodmark.errors import Overtaken
from floodmark.sinks import Postgres
from floodmark.sinks.contract import POSITION, Batch, BatchSize, Recorded
from floodmark.sinks.kafka import Kafka
from floodmark.sinks.small import SMALL_BYTES, SMALL_ROWS, why_not_small
from tests.sinks.batches import SMALL, UNKNOWN, batch, frame, no_session
from tests.sinks.delta.test_ways import jobs_started
from tests.sinks.kafka.messages import committed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.testing.servers import Broker

LEDGER = "floodmark.prod.orders.postgres"
ID_V = "id long, v string"
KINDS: dict[str, dict[str, Any]] = {
    "append": {},
    "replace": {"mode": "replace", "by": "id"},
    "merge": {"mode": "merge", "key": "id", "sequence": "v", "delete_when": "v = 'd'"},
}
VALUES = (
    "SELECT 1L AS id, true AS b, 7S AS s, double('nan') AS x, 1.25BD AS d, 'h\u00e9' AS t, X'00FF' AS r,"
    " date'1500-03-01' AS day, timestamp'1500-01-01 00:00:00.123456' AS ts, array(1, NULL) AS a,"
    " named_struct('k', 1) AS st UNION ALL SELECT 2L, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"
)


def ask(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode()).fetchall()


@pytest.mark.parametrize(
    ("size", "before", "is_small"),
    [
        (BatchSize(), 1, False),
        (BatchSize(SMALL_ROWS, is_bound=True), None, True),
        (BatchSize(SMALL_ROWS + 1, is_bound=True), 1, False),
        (BatchSize(None, SMALL_BYTES, is_bound=True), None, True),
        (BatchSize(None, SMALL_BYTES + 1, is_bound=True), 1, False),
        (BatchSize(10), None, False),
        (BatchSize(10), SMALL_ROWS + 1, False),
        (BatchSize(10), SMALL_ROWS, True),
    ],
)
def test_a_batch_is_small_where_that_is_known(size: BatchSize, before: int | None, is_small: bool) -> None:
    """By its rows, or its files; where rows may become more, by the batch before it."""
    assert (why_not_small(size, lambda: before) is None) is is_small


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_is_the_same_by_tasks_and_from_the_driver(spark: SparkSession, database: str, kind: str) -> None:
    """Rows, counts and the ledger."""
    first, second = frame(spark, ID_V, (1, "a"), (2, "b")), frame(spark, ID_V, (2, "c"), (3, "c"), (1, "d"))
    found = []
    for name, size in (("tasks", UNKNOWN), ("driver", SMALL)):
        sink = Postgres(database, name, **KINDS[kind])
        batches = [batch(1, size=size), batch(2, size=size)]
        counts = [sink.write(first, batches[0]), sink.write(second, batches[1])]
        ways = {way for each in batches for way in each.notes.ways.values()}
        assert ways == {"spark" if size is UNKNOWN else "arrow"}
        found.append((counts, ask(database, f"select * from {name} order by id, v"), sink.recorded(LEDGER, no_session)))
    assert found[0] == found[1]
    assert found[0][2] == Recorded(2, "d2")


def test_every_value_arrives_from_the_driver_as_by_tasks(spark: SparkSession, database: str) -> None:
    """In the binary format and as text."""
    for name, size in (("tasks", UNKNOWN), ("driver", SMALL)):
        Postgres(database, name).write(spark.sql(VALUES), batch(1, size=size))
        Postgres(database, f"{name}_binary").write(spark.sql(VALUES).drop("a", "st"), batch(1, size=size))
    for kind in ("", "_binary"):
        only = f"select of_tasks::text from tasks{kind} of_tasks except select ours::text from driver{kind} ours"
        assert ask(database, only) == []
        assert ask(database, f"select count(*) from driver{kind}") == [(2,)]


def test_a_small_batch_into_postgres_starts_one_spark_job_and_a_repeat_none(spark: SparkSession, database: str) -> None:
    """A fence at its number stops it as any other."""
    sink, rows = Postgres(database, "orders"), frame(spark, ID_V, (1, "a"))
    assert jobs_started(spark, lambda: sink.write(rows, batch(1, size=SMALL))) == 1
    assert jobs_started(spark, lambda: sink.write(rows, batch(1, size=SMALL))) == 0
    sink.fence(LEDGER, 2, lambda: spark)
    with pytest.raises(Overtaken):
        sink.write(rows, batch(2, size=SMALL))
    assert ask(database, "select id, v from orders") == [(1, "a")]


def test_more_rows_than_was_known_go_through_tasks(spark: SparkSession, database: str) -> None:
    """They do not all come to the driver."""
    made = batch(1, size=SMALL)
    assert Postgres(database, "orders").write(spark.range(SMALL_ROWS + 5), made) == SMALL_ROWS + 5
    assert (made.notes.ways, made.notes.is_partly_observed) == ({"postgres": "spark"}, True)


def test_staging_that_is_asked_for_is_kept_to(spark: SparkSession, database: str) -> None:
    """Who chose it has a reason."""
    made = batch(1, size=SMALL)
    Postgres(database, "orders", staged=True).write(frame(spark, ID_V, (1, "a")), made)
    assert made.notes.ways == {"postgres": "spark"}


def intended(sink: Kafka, spark: SparkSession, number: int, size: BatchSize) -> Batch:
    """A batch as the step hands it over: frozen with its intent."""
    return replace(batch(number, size=size), frozen={sink.name: sink.freeze(lambda: spark)})


def test_messages_from_the_driver_are_those_of_tasks(
    spark: SparkSession, kafka: Broker, topic: Callable[..., str]
) -> None:
    """Key, value, partition and the order in a key; a repeat adds nothing, by whichever way.

    Two keys of one partition may go through two writers, whose messages come in any order.
    """
    rows = spark.range(60).selectExpr("id % 7 AS k", "id AS v", f"id AS {POSITION}").repartition(4)
    found = []
    for size in (UNKNOWN, BatchSize(60, is_bound=True)):
        sink = Kafka(kafka.bootstrap, topic(partitions=3), key="k", value="text:v")
        made = intended(sink, spark, 1, size)
        again = replace(made, size=UNKNOWN, attempt="a2")
        assert [sink.write(rows, made), sink.write(rows, again)] == [60, 60]
        assert made.notes.ways == {"kafka": "arrow" if size.rows else "spark"}
        messages = [(each.partition, each.key, each.value) for each in committed(kafka.bootstrap, sink.topic)]
        found.append(sorted(messages, key=lambda message: message[:2]))
    assert found[0] == found[1]
    assert [int(value) for _, key, value in found[0] if key == b"4"] == list(range(4, 60, 7))


def test_a_batch_of_several_chunks_is_sent_by_tasks(
    spark: SparkSession, kafka: Broker, topic: Callable[..., str]
) -> None:
    """What goes out in pieces is finished piece by piece, which takes long."""
    sink = Kafka(kafka.bootstrap, topic(), value="text:id", chunk_rows=5)
    made = intended(sink, spark, 1, BatchSize(10, is_bound=True))
    assert (sink.write(spark.range(10), made), made.notes.ways) == (10, {"kafka": "spark"})
