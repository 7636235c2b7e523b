"""A stream of Spark's own, in a process of its own: it reads a Delta table or a topic to its end, and stops.

Called as: streaming.py HOME delta PATH, or streaming.py HOME kafka BOOTSTRAP TOPIC. The checkpoint is HOME/checkpoint.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import floodmark as fm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stream_of(kind: str, *place: str) -> DataFrame:
    """Whatever is there, from the beginning on."""
    reader = fm.spark_session({"spark.master": "local[2]"}).readStream
    if kind == "delta":
        return reader.format("delta").load(*place)
    bootstrap, topic = place
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return reader.format("kafka").options(**options).load().selectExpr("CAST(value AS STRING) AS value")


def main(home: Path, kind: str, *place: str) -> None:
    """Until nothing is left to read."""
    writer = stream_of(kind, *place).writeStream.format("parquet").trigger(availableNow=True)
    writer.option("checkpointLocation", str(home / "checkpoint")).start(str(home / "target")).awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
