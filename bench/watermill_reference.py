"""The streams of the bench in watermill, run by a Python that has it: `kafka SERVERS IN OUT` or `files KIND FOLDER`."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import List, Mapping  # noqa: UP035  # watermill knows no other

from watermill.expressions import get_field  # type: ignore[import-not-found]
from watermill.message_brokers.json_file_message_broker import JsonFileMessageBroker  # type: ignore[import-not-found]
from watermill.mill import WaterMill  # type: ignore[import-not-found]
from watermill.stream_join import JoinWith, join_streams  # type: ignore[import-not-found]

logging.disable(logging.CRITICAL)


@dataclass(frozen=True)
class Left:
    """A master element."""

    time: int
    value: float


@dataclass(frozen=True)
class Right:
    """What is joined to it."""

    time: int
    value: float


@dataclass(frozen=True)
class Total:
    """The output."""

    time: int
    value: float


def mapped(left: Left) -> Total:
    return Total(left.time, left.value * 2)


def joined(left: Left, rights: Mapping[Left, List[Right]]) -> Total:  # noqa: UP006  # the same
    return Total(left.time, left.value + sum(right.value for right in rights[left]))


def on_kafka(bootstrap: str, source: str, target: str) -> None:
    from watermill.message_brokers.kafka_message_broker import KafkaMessageBroker  # type: ignore[import-not-found]

    broker = KafkaMessageBroker({Left: source, Total: target}, bootstrap)
    WaterMill(broker, mapped, stream_cls=Left).run()


def on_files(kind: str, folder: Path) -> None:
    paths = {Left: folder / "left.json", Right: folder / "right.json", Total: folder / f"theirs-{kind}.json"}
    broker = JsonFileMessageBroker(paths)
    if kind == "map":
        WaterMill(broker, mapped, stream_cls=Left).run()
        return
    tree = join_streams(Left, JoinWith(Right, get_field("time"), get_field("time")))
    WaterMill(broker, joined, join_tree=tree).run()


if __name__ == "__main__":
    if sys.argv[1] == "kafka":
        on_kafka(*sys.argv[2:5])
    else:
        on_files(sys.argv[2], Path(sys.argv[3]))
