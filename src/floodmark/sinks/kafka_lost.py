"""When the ledger's group is gone (expired, deleted), stamps in the topic itself say how far a batch got."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from confluent_kafka import Message

    from floodmark.probes.kafka_client import KafkaOptions

Headers: TypeAlias = "list[tuple[str, bytes | None]]"
LABEL, ROWS = "fm", "fm-rows"
PATIENCE_SECONDS = 120.0
"""How long to wait for transactions of others that are open above our rows."""


class CannotTell(Exception):
    """The topic no longer shows what was written since the batch was intended."""


def stamp(label: str, rows: int) -> Headers:
    """The headers of every so many rows: which batch this is, and how many rows of its writer are out with this one.

    Not every row has them: they would double the work of the driver, and take more room than many a row.
    """
    return [(LABEL, label.encode()), (ROWS, str(rows).encode())]


def rows_out(options: KafkaOptions, topic: str, since: Mapping[int, int], label: str) -> int:
    """How many rows of this batch are committed in a writer's partitions, from the given offsets to their ends.

    A transaction ends with a stamped row, so the highest stamp that a reader can see tells. Raises CannotTell.
    """
    ends = _ends(options, topic, since)
    left = {partition: end for partition, end in ends.items() if end > since[partition]}
    return _highest(options, topic, since, left, label.encode()) if left else 0


def _ends(options: KafkaOptions, topic: str, since: Mapping[int, int]) -> dict[int, int]:
    """The true ends, also where a transaction of somebody else is open."""
    from confluent_kafka import TopicPartition

    consumer = options.consumer(**{"isolation.level": "read_uncommitted"})
    try:
        marks = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30) for p in since}
    finally:
        consumer.close()
    for partition, (low, high) in marks.items():
        if not low <= since[partition] <= high:
            reason = f"partition {partition} of '{topic}' holds offsets {low} to {high}"
            raise CannotTell(f"its ledger is gone, and {reason}: what followed {since[partition]} was removed")
    return {partition: high for partition, (_, high) in marks.items()}


def _highest(options: KafkaOptions, topic: str, since: Mapping[int, int], left: dict[int, int], label: bytes) -> int:
    from confluent_kafka import TopicPartition

    consumer = options.consumer(**{"enable.partition.eof": True, "auto.offset.reset": "error"})
    found, deadline = 0, time.monotonic() + PATIENCE_SECONDS
    try:
        consumer.assign([TopicPartition(topic, partition, since[partition]) for partition in left])
        while left:
            for message in consumer.consume(10_000, timeout=1.0):
                found = max(found, _stamped(message, label))
                _forget_finished(message, left)
                deadline = time.monotonic() + PATIENCE_SECONDS if message.error() is None else deadline
            if time.monotonic() > deadline:
                raise CannotTell(f"its ledger is gone, and an open transaction hides the end of '{topic}'")
    finally:
        consumer.close()
    return found


def _stamped(message: Message, label: bytes) -> int:
    headers = message.headers() or () if message.error() is None else ()
    return next((int(rows or 0) for name, rows in headers if name == ROWS), 0) if (LABEL, label) in headers else 0


def _forget_finished(message: Message, left: dict[int, int]) -> None:
    """The last offsets of a partition may be transaction markers, which only the end-of-partition event passes."""
    from confluent_kafka import KafkaError, KafkaException

    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    partition, offset = message.partition() or 0, message.offset() or 0
    following = offset + 1 if error is None else offset
    if partition in left and following >= left[partition]:
        del left[partition]
