"""`floodmark marks import --from checkpoint:FOLDER`: a stream of Spark's is taken over without a gap or a repeat."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from floodmark.cli.marks.checkpoint import END_INDEX, Checkpoint
from floodmark.errors import ConfigError
from floodmark.hwm import VersionHWM
from floodmark.sources import Delta
from tests.cli.conftest import CommandResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.testing.servers import Broker

Floodmark = Callable[..., CommandResult]


class NamedDelta(Delta):
    """A table whose id is known without one."""

    def fingerprint(self, session: object) -> str:
        return "delta t (table id abc)"


def written(folder: Path, *batches: dict[str, Any], committed: int | None = None) -> Checkpoint:
    """A checkpoint with the offset of one source for each batch, of which so many are committed."""
    for log in ("offsets", "commits"):
        (folder / log).mkdir(parents=True)
    for number, offset in enumerate(batches):
        text = f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{{}}}}\n{json.dumps(offset)}'
        (folder / "offsets" / str(number)).write_text(text)
    for number in range(len(batches) if committed is None else committed):
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return Checkpoint(str(folder))


def delta_offset(version: int, index: int, *, is_snapshot: bool = False) -> dict[str, Any]:
    place = {"reservoirVersion": version, "index": index, "isStartingVersion": is_snapshot}
    return {"sourceVersion": 1, "reservoirId": "abc", **place}


def read_upto(checkpoint: Checkpoint) -> object:
    value = checkpoint.value_for(NamedDelta("t"), lambda: None)  # type: ignore[arg-type, return-value]
    assert isinstance(value, VersionHWM)
    return value.value


@pytest.mark.parametrize(
    ("version", "index", "read"), [(5, -1, 4), (5, -100, 4), (5, -20, 4), (5, END_INDEX, 5), (1, -1, 0)]
)
def test_a_version_counts_once_all_of_its_files_were_read(tmp_path: Path, version: int, index: int, read: int) -> None:
    """An index below zero is before the first file, in each of Delta's formats."""
    assert read_upto(written(tmp_path, delta_offset(version, index))) == read


def test_only_committed_batches_count(tmp_path: Path) -> None:
    """The last one was planned, and nobody knows what its sink has of it: that is said."""
    checkpoint = written(tmp_path, delta_offset(2, -1), delta_offset(4, -1), delta_offset(9, -1), committed=2)
    assert (read_upto(checkpoint), checkpoint.uncommitted()) == (3, 2)


@pytest.mark.parametrize(
    ("offset", "reason"),
    [
        (delta_offset(3, 7), "read a part of version 3"),
        (delta_offset(3, 1, is_snapshot=True), "read a part of its snapshot of version 3"),
        (delta_offset(0, -1), "read nothing yet"),
        ({**delta_offset(3, -1), "reservoirId": "other"}, "has no source of delta t"),
    ],
)
def test_what_no_mark_can_say_is_refused(tmp_path: Path, offset: dict[str, Any], reason: str) -> None:
    """A repeat or a gap would follow from any mark."""
    with pytest.raises(ConfigError, match=reason):
        read_upto(written(tmp_path, offset))


def test_a_folder_without_a_committed_batch_is_no_checkpoint(tmp_path: Path) -> None:
    """Nothing read and could not look are never the same."""
    with pytest.raises(ConfigError, match="has no committed batch"):
        read_upto(written(tmp_path, delta_offset(1, -1), committed=0))


def project(folder: Path, source: str, target: Path) -> None:
    sink = f"{{type: delta, path: '{target}'}}"
    text = f"jobs:\n  - {{name: taken_over, source: {source}, sinks: [{sink}]}}\n"
    (folder / "floodmark.yaml").write_text(text)


def activate(spark: SparkSession) -> None:
    """Delta's streams look for the session of their thread in Spark's interface, and PySpark sets it behind that."""
    interface = spark._jvm.org.apache.spark.sql.SparkSession  # type: ignore[union-attr]
    interface.setActiveSession(spark._jsparkSession)
    interface.setDefaultSession(spark._jsparkSession)


def stream(rows: DataFrame, checkpoint: Path, target: Path) -> None:
    """All that there is now, by Spark's own stream."""
    activate(rows.sparkSession)
    writer = rows.writeStream.format("delta").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start(str(target)).awaitTermination()


def changes_of(spark: SparkSession, table: Path) -> DataFrame:
    """The table as a stream."""
    activate(spark)
    return spark.readStream.format("delta").load(str(table))


def values(spark: SparkSession, target: Path) -> list[Any]:
    return sorted(row[0] for row in spark.read.format("delta").load(str(target)).select("v").collect())


def append(spark: SparkSession, table: Path, *values: int) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    spark.createDataFrame([(v,) for v in values], "v long").write.format("delta").options(**feed).mode("append").save(
        str(table)
    )


def test_a_delta_stream_is_taken_over_into_its_own_target(
    floodmark: Floodmark, folder: Path, spark: SparkSession
) -> None:
    """What the stream wrote stays, what came since follows, and no row is there twice; also for a batch undone."""
    table, target, checkpoint = folder / "bronze", folder / "silver", folder / "checkpoint"
    append(spark, table, 1, 2)
    append(spark, table, 3)
    stream(changes_of(spark, table), checkpoint, target)
    append(spark, table, 4)
    stream(changes_of(spark, table), checkpoint, target)
    append(spark, table, 5, 6)
    project(folder, f"{{type: delta, path: '{table}'}}", target)
    said = floodmark("marks", "import", "--from", f"checkpoint:{checkpoint}", "--select", "taken_over", "--yes")
    assert (said.code, said.out, said.err) == (0, "taken_over: mark none becomes 2\n", "")
    assert floodmark("run").code == 0
    assert values(spark, target) == [1, 2, 3, 4, 5, 6]
    (checkpoint / "commits" / "1").unlink()
    again = floodmark("marks", "import", "--from", f"checkpoint:{checkpoint}", "--select", "taken_over", "--dry-run")
    assert again.out == "taken_over: mark 3 becomes 1\n"
    assert again.err.startswith("batch 1 of the stream was begun and not committed")


@pytest.mark.server
def test_a_kafka_stream_is_taken_over_by_its_offsets(
    floodmark: Floodmark, folder: Path, spark: SparkSession, kafka: Broker, topic: Callable[..., str]
) -> None:
    """Spark keeps the next offset to read of each partition, as our marks do."""
    name, target, checkpoint = topic(partitions=2), folder / "silver", folder / "checkpoint"

    def send(*messages: str) -> None:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for place, message in enumerate(messages):
            producer.produce(name, message, partition=place % 2)
        producer.flush(30)

    send("a", "b", "c")
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": name, "startingOffsets": "earliest"}
    read = spark.readStream.format("kafka").options(**options).load()
    stream(read.selectExpr("cast(value as string) as v"), checkpoint, target)
    send("d", "e")
    source = f"{{type: kafka, bootstrap: '{kafka.bootstrap}', topic: {name}, value: text}}"
    (folder / "floodmark.yaml").write_text(
        f"jobs:\n  - name: taken_over\n    source: {source}\n    transform: {{sql: select value as v from source}}\n"
        f"    sinks: [{{type: delta, path: '{target}'}}]\n"
    )
    said = floodmark("marks", "import", "--from", f"checkpoint:{checkpoint}", "--select", "taken_over", "--yes")
    assert (said.code, floodmark("run").code) == (0, 0)
    assert values(spark, target) == ["a", "b", "c", "d", "e"]
