"""Seed 001, kafka-batch-dask-simple-plus-batch: lists of records, read side by side; on Spark instead of dask.

`python kafka_batched.py BROKERS [TOPIC]` runs until Ctrl-C.
"""

import json
import sys

import floodmark.compat.waterhealer as wh

source = wh.from_kafka_batched(
    [sys.argv[2] if len(sys.argv) > 2 else "testing"],
    {
        "bootstrap.servers": sys.argv[1] if len(sys.argv) > 1 else "localhost:9092",
        "group.id": "kafka-batched",
        "auto.offset.reset": "earliest",
    },
    dask=True,
    maxlen=10,
)


def json_loads(rows):
    results = []
    for row in rows:
        results.append((row[0], json.loads(row[1])))
    return results


def plus(rows):
    results = []
    for row in rows:
        no = row[1]["no"]
        if no > 200:
            raise Exception("row is bigger than 200")
        results.append((row[0], no + 1))
    return results


outputs = []
batches = source.map(json_loads).map(plus).buffer(5).gather().partition(5)
results = batches.foreach_async(wh.healing_batch, stream=source, asynchronous=True).flatten().flatten()
results.sink(outputs.append)
results.sink(print)

source.start()
