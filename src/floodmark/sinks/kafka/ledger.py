"""When the ledger's group is gone (expired, deleted), stamps in the topic itself say how far a batch got."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from confluent_kafka import Message

    from floodmark.probes.kafka_client import KafkaOptions

Headers: TypeAlias = "list[tuple[str, str | bytes | None]]"
LABEL, ROWS = "fm", "fm-rows"
PATIENCE_SECONDS = 120.0
"""How long to wait for transactions of others that are open above our rows."""


class CannotTell(Exception):
    """The topic no longer shows what was written since the batch was intended."""


def stamp(label: str, rows: int) -> Headers:
    """The headers of the last of every so many rows: whose they are, and how many rows of its writer are out with it.

    Not every row has them: they would double the driver's work, and take more room than many a row.
    """
    return [(LABEL, label.encode()), (ROWS, str(rows).encode())]


def records_since(options: KafkaOptions, topic: str, since: Mapping[int, int]) -> dict[int, int]:
    """The true ends of the partitions where anything stands above the given offsets, open transactions included.

    Raises CannotTell where records above those offsets were removed.
    """
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
    return {partition: high for partition, (_, high) in marks.items() if high > since[partition]}


def highest_stamps(
    options: KafkaOptions, topic: str, since: Mapping[int, int], ends: Mapping[int, int]
) -> dict[str, int]:
    """By label, how many rows are out: a transaction ends with a stamp, so the highest committed one tells.

    Reads from the given offsets to the given ends. Raises CannotTell.
    """
    from confluent_kafka import TopicPartition

    consumer = options.consumer(**{"enable.partition.eof": True, "auto.offset.reset": "error"})
    found: dict[str, int] = {}
    left, deadline = dict(ends), time.monotonic() + PATIENCE_SECONDS
    try:
        consumer.assign([TopicPartition(topic, partition, since[partition]) for partition in left])
        while left:
            for message in consumer.consume(10_000, timeout=1.0):
                _note_stamp(message, found)
                _forget_finished(message, left)
                deadline = time.monotonic() + PATIENCE_SECONDS if message.error() is None else deadline
            if time.monotonic() > deadline:
                raise CannotTell(f"its ledger is gone, and an open transaction hides the end of '{topic}'")
    finally:
        consumer.close()
    return found


def _note_stamp(message: Message, found: dict[str, int]) -> None:
    headers = dict(message.headers() or ()) if message.error() is None else {}
    label, rows = headers.get(LABEL), headers.get(ROWS)
    if isinstance(label, bytes) and isinstance(rows, bytes) and rows.isdigit():
        name = label.decode(errors="replace")
        found[name] = max(found.get(name, 0), int(rows))


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
