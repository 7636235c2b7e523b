"""Seed 001, simple-plus-nested-batch: batches of five batches of five, healed at the same time.

`python simple_plus_nested_batch.py BROKERS [TOPIC]` runs until Ctrl-C, or until it is stuck at a record that failed.
"""

import json
import sys

import floodmark.compat.waterhealer as wh

source = wh.from_kafka(
    [sys.argv[2] if len(sys.argv) > 2 else "testing"],
    {
        "bootstrap.servers": sys.argv[1] if len(sys.argv) > 1 else "localhost:9092",
        "group.id": "simple-plus-nested-batch",
        "auto.offset.reset": "earliest",
    },
    debug=True,
)


def json_loads(row):
    return (row[0], json.loads(row[1]))


def plus(row):
    no = row[1]["no"]
    if no > 50:
        raise Exception("row is bigger than 50")
    return (row[0], no + 1)


outputs = []
batches = source.map(json_loads).map(plus).partition(5).partition(5)
results = batches.foreach_async(wh.healing_batch, stream=source, asynchronous=True).flatten().flatten()
results.sink(outputs.append)
results.sink(print)

source.start()
