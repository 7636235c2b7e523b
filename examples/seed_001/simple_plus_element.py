"""Seed 001, simple-plus-element: each record plus one, and the mark follows what succeeded. What is above 12 fails.

`python simple_plus_element.py BROKERS [TOPIC]` runs until Ctrl-C, or until it is stuck at a record that failed.
"""

import json
import sys

import floodmark.compat.waterhealer as wh

source = wh.from_kafka(
    [sys.argv[2] if len(sys.argv) > 2 else "testing"],
    {
        "bootstrap.servers": sys.argv[1] if len(sys.argv) > 1 else "localhost:9092",
        "group.id": "simple-plus-element",
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
results = source.map(json_loads).map(plus).map(wh.healing, stream=source)
results.sink(outputs.append)
results.sink(print)

source.start()
