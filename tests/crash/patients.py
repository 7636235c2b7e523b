"""A stream to be killed: every record is noted in a file, some fail the first time, and each takes a moment.

python patients.py FOLDER BOOTSTRAP TOPIC GROUP
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import floodmark as fm
from floodmark.streams import from_kafka, healing, retry
from floodmark.streams.kafka_stream import KafkaStream

SETTINGS = {"spark.master": "local[2]", "spark.driver.memory": "1g"}


def stream(home: Path, bootstrap: str, topic: str, group: str, seconds: float = 0.004) -> KafkaStream:
    """The stream; every tenth record fails at its first attempt."""
    params = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    source = from_kafka([topic], params, on_error=retry(3, 0), store=f"sqlite:///{home}/marks.db")
    calls = home / "calls"

    def step(row: Any) -> object:  # noqa: ANN401 (a row)
        where = row[0]
        with calls.open("ab", buffering=0) as file:
            file.write(f"{where['partition']} {where['offset']} {where['attempt']}\n".encode())
        time.sleep(seconds)
        if where["attempt"] == 1 and where["offset"] % 10 == 3:
            raise ValueError("not yet")
        return row

    source.map(step).sink(healing, stream=source)
    return source


if __name__ == "__main__":
    fm.spark_session(SETTINGS)
    folder, bootstrap, topic, group = sys.argv[1:]
    stream(Path(folder), bootstrap, topic, group).run_once()
