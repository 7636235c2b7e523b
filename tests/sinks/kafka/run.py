"""A run of the Kafka sink in a process of its own, to be killed: writes a spool to a topic and prints the count."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone

from floodmark.sinks.contract import Batch
from floodmark.sinks.kafka import Kafka
from floodmark.spark.session import spark_session


def main(master: str, bootstrap: str, topic: str, spool: str, frozen: str) -> None:
    """One attempt at batch 1."""
    spark = spark_session({"spark.master": master, "spark.driver.memory": "1g"})
    sink = Kafka(bootstrap, topic, key="id", value="text:id", chunk_rows=500)
    now = datetime.now(timezone.utc)
    batch = Batch("prod", topic, 1, "a", "d1", "batch", now, frozen={"kafka": json.loads(frozen)})
    sink.end_transactions(batch.ledger(sink.name), lambda: spark)  # as the step does where a batch is open
    print(f"written {sink.write(spark.read.parquet(spool), batch)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
