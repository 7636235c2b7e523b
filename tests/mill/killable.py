"""A mill over topics as a program that can be killed: `killable FOLDER`, in which mill.json says which topics."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import floodmark as fm
from floodmark.mill import (
    JoinWith,
    KafkaMessageBroker,
    WaterMill,
    function_call,
    get_field,
    inputs,
    join_streams,
    window,
)
from tests.mill.cases import BY_K, Joined, L, R, join_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.mill.join_tree import Stream

SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
}


def by_file(clock: Path) -> Callable[[Any], str]:
    """A window expression that depends on more than the element: on what a file says at this moment."""
    return lambda element: clock.read_text()


def sizes(lefts: list[L]) -> Joined:
    return Joined(len(lefts), [left.name for left in lefts])


def joined_sizes(lefts: list[L], rights: Mapping[L, list[R]]) -> Joined:
    return Joined(len(lefts), [left.name for left in lefts if rights[left]])


def mill_in(folder: Path, spark: SparkSession | Callable[[], SparkSession]) -> WaterMill:
    """The mill that a folder describes, with its marks in the folder."""
    inputs.WORTH_CACHING = 1  # what was cached by a process that is killed must not be missed by the next
    settings = json.loads((folder / "mill.json").read_text())
    names: dict[Stream, str] = {L: settings["left"], R: settings["right"], Joined: settings["out"]}
    broker = KafkaMessageBroker(names, settings["bootstrap"])
    store = fm.stores.open("sqlite:///marks.db", folder=folder)
    if settings["kind"] == "join":
        return WaterMill(broker, join_names, name="mill", spark=spark, store=store, turn_elements=40, **BY_K)
    stream = window(L, function_call(by_file(folder / "clock")))
    if settings["kind"] == "windows":
        return WaterMill(broker, sizes, stream_cls=stream, name="mill", spark=spark, store=store)
    tree = join_streams(stream, JoinWith(R, get_field("k"), get_field("k")))
    return WaterMill(broker, joined_sizes, join_tree=tree, name="mill", spark=spark, store=store)


if __name__ == "__main__":
    mill_in(Path(sys.argv[1]), fm.spark_session(SETTINGS)).run()
