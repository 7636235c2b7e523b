"""1,000,000 JSON messages of Kafka → Delta, from topics of 1 to 64 partitions, against plain PySpark."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench_json import plain_rows, produce, run_job
from run import Result
from timing import compare

import floodmark as fm
from floodmark.testing.servers import Broker, kafka_broker

PARTITIONS, ROWS, ROUNDS = (1, 4, 16, 64), 1_000_000, 3


def run(rows: int = ROWS, rounds: int = ROUNDS) -> list[Result]:
    fm.spark_session({"spark.master": "local[2]", "spark.driver.memory": "3g"})
    with tempfile.TemporaryDirectory() as name, kafka_broker(Path(name) / "kafka") as kafka:
        return [point(Path(name), kafka, rows, partitions, rounds) for partitions in PARTITIONS]


def point(home: Path, kafka: Broker, rows: int, partitions: int, rounds: int) -> Result:
    topic = f"parted-{partitions}"
    produce(kafka, topic, rows, partitions)
    found = compare(
        f"JSON from Kafka to Delta, {partitions} partitions",
        lambda turn: plain_rows(kafka, topic).write.format("delta").save(f"{home}/{topic}-{turn}"),
        lambda _: run_job(kafka, topic, home, rows),
        at_most=1.0,
        rounds=rounds,
        of=f"{rows:,} messages, our default columns; from_json with the connector's defaults",
    )
    return Result(**{**vars(found), "series": f"{rows:,} messages by partitions", "at": partitions})
