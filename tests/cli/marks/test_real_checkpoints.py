"""`floodmark marks import --from checkpoint:FOLDER` on checkpoints that Spark itself has made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from confluent_kafka import Producer

from tests.cli.conftest import CommandResult
from tests.tables import rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.testing.servers import Broker

pytestmark = pytest.mark.spark
Floodmark = Callable[..., CommandResult]


def stream(home: Path, rows: DataFrame) -> None:
    """Let a stream read all that is there now; it goes on where its checkpoint says."""
    writer = rows.writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(home / "checkpoint"))
    writer.start(str(home / "streamed")).awaitTermination()


def project(folder: Path, source: dict[str, object]) -> None:
    job = {"name": "moved", "source": source, "sinks": [{"type": "delta", "path": "lake/target"}]}
    (folder / "floodmark.yaml").write_text(yaml.safe_dump({"jobs": [job]}))


def append(spark: SparkSession, table: str, first: int) -> None:
    """Ten rows more in a table with a change feed, which is what a job reads."""
    writer = spark.range(first, first + 10).write.format("delta").mode("append")
    writer.option("delta.enableChangeDataFeed", "true").save(table)


def target_rows(folder: Path, column: str) -> list[object]:
    return sorted(row[0] for row in rows_of(folder / "lake" / "target", column))


def test_a_stream_over_a_delta_table_is_taken_over(floodmark: Floodmark, folder: Path, spark: SparkSession) -> None:
    """After two rounds of the stream, the first run of the job brings what came since: no row is missed or repeated."""
    table = f"{folder}/lake/source"
    for first in (0, 10):
        append(spark, table, first)
        stream(folder, spark.readStream.format("delta").load(table))
    append(spark, table, 20)
    project(folder, {"type": "delta", "path": "lake/source", "changes": "append"})
    imported = floodmark("marks", "import", "--from", f"checkpoint:{folder}/checkpoint", "--select", "moved", "--yes")
    ran = floodmark("run")
    assert (imported.code, ran.code) == (0, 0), imported.err + ran.err
    assert target_rows(folder, "id") == list(range(20, 30))


def test_a_stream_over_a_topic_is_taken_over(
    floodmark: Floodmark, folder: Path, spark: SparkSession, kafka: Broker, topic: Callable[..., str]
) -> None:
    """Offset by offset, in each of its partitions."""
    name = topic(partitions=2)
    for low, high in ((0, 10), (10, 20)):
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for number in range(low, high):
            producer.produce(name, str(number), partition=number % 2)
        producer.flush()
        if low == 0:
            reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap)
            reader = reader.option("subscribe", name).option("startingOffsets", "earliest")
            stream(folder, reader.load().selectExpr("CAST(value AS STRING) AS value"))
    project(folder, {"type": "kafka", "bootstrap": kafka.bootstrap, "topic": name, "value": "text"})
    imported = floodmark("marks", "import", "--from", f"checkpoint:{folder}/checkpoint", "--select", "moved", "--yes")
    ran = floodmark("run")
    assert (imported.code, ran.code) == (0, 0), imported.err + ran.err
    assert target_rows(folder, "value") == [str(number) for number in range(10, 20)]
