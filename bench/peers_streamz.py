"""Healing beside streamz's own `from_kafka`, which knows no mark: by the record, since the two get different numbers.

Our time goes from start to commit; theirs from the first record to the last, so that joining the group is not counted.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from pathlib import Path

from bench_healing import RECORDS, fill, healed
from environments import python_with
from run import Result
from timing import seconds

import floodmark as fm
from floodmark.testing.servers import kafka_broker

THEIRS = Path(__file__).with_name("streamz_reference.py")


def run(records: int = RECORDS, rounds: int = 3) -> list[Result]:
    """One process is so much slower that a tenth of the records is enough to tell its speed."""
    theirs, few = python_with("streamz", "streamz==0.6.6", "confluent-kafka"), records // 10
    fm.spark_session({"spark.master": "local[2]", "spark.driver.memory": "4g"})
    with tempfile.TemporaryDirectory() as name, kafka_broker(Path(name) / "kafka") as kafka:
        home = Path(name)
        fill(kafka, "many", records)
        fill(kafka, "some", few)
        command = [theirs, THEIRS, kafka.bootstrap, "some", str(few - 1)]  # its start may swallow the first record
        healed(kafka, home, "many", records)
        own, plain = [], []
        for _ in range(rounds):
            plain.append(float(subprocess.check_output(command, text=True)) * records / few)
            own.append(seconds(lambda: healed(kafka, home, "many", records)))
    ratio = statistics.median(mine / theirs for mine, theirs in zip(own, plain, strict=True))
    rates = [f"{records / statistics.median(times):,.0f} records/s" for times in (plain, own)]
    detail = f"streamz {rates[0]}, Floodmark {rates[1]}"
    case = "healing, against streamz's from_kafka"
    return [Result(case, ratio, 1.0, detail, ours=tuple(own), reference=tuple(plain))]
