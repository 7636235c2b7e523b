"""Seed 001, simple-plus-batch: the same in batches of five, which are healed together.

`python simple_plus_batch.py BROKERS [TOPIC]` runs until Ctrl-C, or until it is stuck at a record that failed. What
fills no batch then is not healed, and comes again: "we don't get data for 11 and 12", as the notebook says.
"""

import json
import sys

import floodmark.compat.waterhealer as wh

source = wh.from_kafka(
    [sys.argv[2] if len(sys.argv) > 2 else "testing"],
    {
        "bootstrap.servers": sys.argv[1] if len(sys.argv) > 1 else "localhost:9092",
        "group.id": "simple-plus-batch",
        "auto.offset.reset": "earliest",
    },
    debug=True,
)


def json_loads(row):
    return (row[0], json.loads(row[1]))


def plus(row):
    no = row[1]["no"]
    if no > 12:
        raise Exception("row is bigger than 12")
    return (row[0], no + 1)


outputs = []
results = source.map(json_loads).map(plus).partition(5).map(wh.healing_batch, stream=source).flatten()
results.sink(outputs.append)
results.sink(print)

source.start()
