#!/usr/bin/env python3
"""The stories of water-healer's four notebooks, told by the original and through the door beside it, on one topic.

    scripts/waterhealer_stories.py            all four
    scripts/waterhealer_stories.py element    one of them

In an environment that has water-healer 0.0.11, streamz 0.5.2 (with a later one some of its steps fail) and distributed.

Both read the same messages, each in a group of its own. It ends with 0 if both healed the same data, compared as sets,
and committed the same offsets. The release cannot tell the last story (see ONLY_HERE): ours has to be whole in itself.
"""

from __future__ import annotations

import collections
import collections.abc
import importlib
import json
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ORIGINAL, DOOR = "waterhealer", "floodmark.compat.waterhealer"
TOPIC, PARTITIONS = "testing", 10
READY, LISTENING_SECONDS, IDLE_SECONDS = "ready", 8.0, 12.0


@dataclass(frozen=True)
class Story:
    """A notebook: how many messages it sends, how far apart, and what its function refuses."""

    messages: int
    pause_seconds: float
    most: int


STORIES = {
    "element": Story(14, 0.5, 12),
    "batch": Story(14, 0.5, 12),
    "nested": Story(60, 0.2, 50),
    "dask": Story(100, 0.1, 200),
}


ONLY_HERE = ("dask",)
"""In release 0.0.11 the source of lists has no memory, so that healing them fails: there is nothing to compare with."""


def main(names: Sequence[str]) -> int:
    """Tell the stories, and say which differ."""
    from floodmark.testing.servers import kafka_broker

    differing = 0
    for name in names or STORIES:
        with tempfile.TemporaryDirectory() as folder, kafka_broker(Path(folder) / "kafka") as kafka:
            kafka.create_topic(TOPIC, PARTITIONS)
            *of_original, of_door = results_of(name, kafka.bootstrap, Path(folder))
        is_same = of_original == [of_door] if name not in ONLY_HERE else is_whole(of_door)
        print(f"{'same   ' if is_same else 'differs'}  {name}: {describe([*of_original, of_door][0])}", flush=True)
        if not is_same:
            print(f"         {name} through the door: {describe(of_door)}", flush=True)
        differing += not is_same
    return 1 if differing else 0


def is_whole(result: dict[str, Any]) -> bool:
    """Whether each row was healed once, and the offsets are behind as many as were: for what has no original."""
    rows = {tuple(row) for row in result["healed"]}
    return 0 < len(rows) == len(result["healed"]) == sum(result["committed"])


def describe(result: dict[str, Any]) -> str:
    """What came out of a story, in a line."""
    rows, committed = result["healed"], result["committed"]
    return f"{len(rows)} rows healed, up to {max(rows or [[0]])[0]}, committed {committed}"


def results_of(name: str, servers: str, folder: Path) -> list[dict[str, Any]]:
    """Both programs listen, then the messages come; each says in the end what it has healed, ours last."""
    modules = (DOOR,) if name in ONLY_HERE else (ORIGINAL, DOOR)
    programs = [start_listening(name, module, servers, folder) for module in modules]
    try:
        for program in programs:
            wait_for_ready(program)
        time.sleep(LISTENING_SECONDS)  # until the original has its partitions
        send(STORIES[name], servers)
        return [json.loads(program.communicate(timeout=300)[0].splitlines()[-1]) for program in programs]
    finally:
        for program in programs:
            program.kill()


def start_listening(name: str, module: str, servers: str, folder: Path) -> subprocess.Popen[str]:
    """A program of its own for one of the two."""
    home = folder / module
    home.mkdir()
    command = [sys.executable, str(Path(__file__).resolve()), "--tell", name, module, servers]
    return subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE, text=True)


def wait_for_ready(program: subprocess.Popen[str]) -> None:
    """Until it has begun to poll."""
    for line in program.stdout or ():
        if line.strip() == READY:
            return
    raise SystemExit("Error: a program ended before it was ready.")


def send(story: Story, servers: str) -> None:
    """One message after the other, from partition to partition."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    for number in range(story.messages):
        producer.produce(TOPIC, json.dumps({"no": number}).encode(), partition=number % PARTITIONS)
        producer.flush()
        time.sleep(story.pause_seconds)


def tell(name: str, module: str, servers: str) -> None:
    """The program of a notebook, until nothing has come for a while."""
    import confluent_kafka as ck

    wh = original() if module == ORIGINAL else importlib.import_module(module)
    params = {"bootstrap.servers": servers, "group.id": f"group-{module}", "auto.offset.reset": "earliest"}
    most, outputs = STORIES[name].most, []
    if name == "dask":
        source = batched_source(wh, params)
        lists = source.map(loads_of_lists).map(plus_of_lists(most)).buffer(5).gather().partition(5)
        healed = lists.foreach_async(wh.healing_batch, stream=source, asynchronous=True).flatten().flatten()
    else:
        source = wh.from_kafka([TOPIC], params)
        healed = steps(wh, name, source.map(loads).map(plus(most)), source)
    healed.sink(outputs.append)
    source.start()
    print(READY, flush=True)
    wait_for_silence(outputs)
    asked = [ck.TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    committed = [max(each.offset, 0) for each in consumer_of(source).committed(asked)]
    healed_rows = sorted([each["data"], each["topic"], each["partition"]] for each in outputs)
    print(json.dumps({"healed": healed_rows, "committed": committed}), flush=True)
    leave(source, module)


def original() -> Any:  # noqa: ANN401 (a module)
    """water-healer itself; its streamz looks for names where neither Python nor dask has them any longer."""
    for name in ("Iterable", "MutableSet"):
        setattr(collections, name, getattr(collections.abc, name))
    moved: Any = types.ModuleType("dask.compatibility")
    moved.apply = lambda function, args, kwargs=None: function(*args, **(kwargs or {}))
    sys.modules[moved.__name__] = moved
    importlib.import_module("streamz.dask")
    return importlib.import_module(ORIGINAL)


def steps(wh: Any, name: str, rows: Any, source: Any) -> Any:  # noqa: ANN401 (of either module)
    """What each notebook does with its rows."""
    if name == "element":
        return rows.map(wh.healing, stream=source)
    if name == "batch":
        return rows.partition(5).map(wh.healing_batch, stream=source).flatten()
    nested = rows.partition(5).partition(5)
    return nested.foreach_async(wh.healing_batch, stream=source, asynchronous=True).flatten().flatten()


def batched_source(wh: Any, params: dict[str, str]) -> Any:  # noqa: ANN401 (of either module)
    """The source of the last notebook: on dask for the original, on Spark through the door."""
    if wh.__name__ == DOOR:
        return wh.from_kafka_batched([TOPIC], params, dask=True, maxlen=10)
    from distributed import Client  # type: ignore[import-not-found]

    client = Client(processes=False, dashboard_address=None)
    return wh.from_kafka_batched([TOPIC], params, dask=True, loop=client.loop, maxlen=10)


def consumer_of(source: Any) -> Any:  # noqa: ANN401 (of either module)
    """The original's batched source is two steps behind the one that has the consumer."""
    while not hasattr(source, "consumer"):
        source = source.upstreams[0]
    return source.consumer


def wait_for_silence(outputs: list[object]) -> None:
    """Until results came, and none came for a while."""
    deadline, known = time.monotonic() + 180, 0
    quiet_since = time.monotonic()
    while time.monotonic() < deadline and (not outputs or time.monotonic() - quiet_since < IDLE_SECONDS):
        time.sleep(0.2)
        if len(outputs) != known:
            known, quiet_since = len(outputs), time.monotonic()


def leave(source: Any, module: str) -> None:  # noqa: ANN401 (of either module)
    """End without waiting for loops and threads; a stream that is stuck says so with its exit code."""
    import os

    sys.stdout.flush()
    if module == DOOR:
        from floodmark.errors import RecordsFailed

        with suppress(RecordsFailed):
            source.stop()
    os._exit(0)


def loads(row: Any) -> Any:  # noqa: ANN401 (a row)
    """The value of a row, parsed."""
    return row[0], json.loads(row[1])


def plus(most: int) -> Any:  # noqa: ANN401 (a function)
    """A function that adds one, and refuses what is bigger."""

    def plus_one(row: Any) -> Any:  # noqa: ANN401 (a row)
        if row[1]["no"] > most:
            raise ValueError(f"row is bigger than {most}")
        return row[0], row[1]["no"] + 1

    return plus_one


def loads_of_lists(rows: Any) -> Any:  # noqa: ANN401 (rows)
    """The same for a list of rows."""
    return [(row[0], json.loads(row[1])) for row in rows]


def plus_of_lists(most: int) -> Any:  # noqa: ANN401 (a function)
    """The same for a list of rows, which fails as a whole."""
    one = plus(most)
    return lambda rows: [one(row) for row in rows]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--tell"]:
        tell(*sys.argv[2:5])
    else:
        sys.exit(main(sys.argv[1:]))
