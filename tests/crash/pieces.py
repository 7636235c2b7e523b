"""A job that fills a topic in many small transactions, as a program that can be killed among them.

python -m tests.crash.pieces FOLDER BOOTSTRAP TOPIC
"""

from __future__ import annotations

import sys
from pathlib import Path

import floodmark as fm
from tests.crash.shop import SCHEMA, SETTINGS, open_store


def job(home: Path, bootstrap: str, topic: str) -> fm.Job:
    return fm.Job(
        name="pieces",
        source=fm.sources.Files(str(home / "in"), format="jsonl", schema=SCHEMA, settle=0),
        sinks=[fm.sinks.Kafka(bootstrap, topic, key="id", value="text:id", chunk_rows=20)],
    )


if __name__ == "__main__":
    folder, brokers, name = sys.argv[1:]
    job(Path(folder), brokers, name).run(fm.spark_session(SETTINGS), open_store(Path(folder)))
