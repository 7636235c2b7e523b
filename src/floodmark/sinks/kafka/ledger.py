"""A topic, and what says how far a batch got in it: the ledger, or the stamps on the messages if that is lost.

The ledger is a consumer group that nobody joins. Its offsets only grow with the batch number; their metadata holds the
pages that count, and both are committed in the transactions of the rows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from floodmark.errors import ConfigError
from floodmark.formats import with_format, without_format
from floodmark.patience import patiently
from floodmark.probes.kafka import KafkaProbe, PartitionBounds, Topic, similar_topics
from floodmark.sinks.contract import Recorded

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

    from floodmark.hwm import Json
    from floodmark.probes.kafka.client import KafkaOptions

STABLE_SECONDS = 60.0
"""How long to wait for offsets that an open transaction is about to change."""
PROMPT_SECONDS = 3.0
"""How long an answer takes at most where nothing is open."""
LOOK_SECONDS = 10.0
"""How long somebody waits who only looks: to connect takes a while, too."""
PAGE_FORMAT = 2
"""Since 2 a page says whether it is a fence, and has a hash of the rows."""
LEADER_SECONDS = 120.0
"""How long a partition may be between two leaders."""
HIDDEN_SECONDS = 120.0
"""How long to wait for transactions of others that are open above our rows."""
LABEL, ROWS = "fm", "fm-rows"
Headers: TypeAlias = "list[tuple[str, str | bytes | None]]"


@dataclass(frozen=True)
class TargetTopic:
    """A topic by name; `create` has its partitions and replication, for where it is missing."""

    options: KafkaOptions
    name: str
    create: Mapping[str, int] | None = None

    def check(self, sink: str) -> None:
        """Raises ConfigError if it could not be made as `create` says."""
        if self.create is not None and (
            set(self.create) - {"partitions", "replication"} or "partitions" not in self.create
        ):
            raise ConfigError(
                f"sink '{sink}' cannot create its topic so.", hint="create: {partitions: 6, replication: 3}"
            )

    def partitions(self) -> int | None:
        """How many there are, or None if there is no such topic. Asking never makes it."""
        return self._probe.partition_counts().get(self.name)

    def require(self) -> int:
        """The number of partitions; the topic is made if it may be. Raises ConfigError with names that are near."""
        counts = self._probe.partition_counts()
        if self.name in counts:
            return counts[self.name]
        if self.create is None:
            near = similar_topics(self.name, counts)
            raise ConfigError(
                f"there is no topic '{self.name}' at {self.options.servers}.",
                hint=f"{f'{near} Else' if near else 'make it, or'} give `create: {{partitions: 6, replication: 3}}` to"
                " have it made",
            )
        self._probe.create_topic(self.name, self.create["partitions"], self.create.get("replication", 1))
        return self.partitions() or self.create["partitions"]

    def ends(self) -> tuple[int, ...]:
        """The next offset of every partition, open transactions included."""
        return tuple(bounds.end for bounds in self._bounds(self.require()))

    def holds_records(self) -> bool:
        return any(bounds.end != bounds.earliest for bounds in self._bounds(self.partitions() or 0))

    def had_records(self) -> bool:
        """Whether anything was ever written to it, also if retention has removed it since."""
        return any(bounds.end for bounds in self._bounds(self.partitions() or 0))

    def _bounds(self, partitions: int) -> list[PartitionBounds]:
        bounds = self._probe.bounds([Topic(self.name, "", tuple(range(partitions)))]) if partitions else {}
        return [bounds[place] for place in sorted(bounds)]

    @cached_property
    def _probe(self) -> KafkaProbe:
        """Kept: to connect takes far longer than to ask."""
        seconds = self.options.call_seconds
        return KafkaProbe(self.options, request_seconds=seconds, leader_seconds=LEADER_SECONDS)


@dataclass(frozen=True)
class Layout:
    """How a batch is spread over partitions and writers: settled with its intent, the same at every attempt.

    Rows of one key go through one writer; partitions that are added later are not used by this batch. `ends` are the
    next offsets when the batch was intended: whatever is written of it lies at or above them, which is how a lost
    ledger is made good. `token` names this very intent, so that half a batch is only continued by its own. One that
    goes out `at_once` has one writer and one transaction: it is out or it is not, and nobody compares its rows.
    """

    partitions: int
    writers: int
    ends: tuple[int, ...]
    token: str
    at_once: bool = False

    def pages_of(self, writer: int) -> list[int]:
        """The partitions under whose numbers the ledger keeps this writer's page; its rows may go to any."""
        return list(range(writer, self.partitions, self.writers))

    def to_json(self) -> dict[str, Json]:
        return {
            "partitions": self.partitions,
            "writers": self.writers,
            "ends": list(self.ends),
            "token": self.token,
            **({"at_once": True} if self.at_once else {}),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Layout:
        ends, at_once = tuple(stored["ends"]), bool(stored.get("at_once"))
        return cls(stored["partitions"], stored["writers"], ends, stored["token"], at_once)


@dataclass(frozen=True)
class LedgerPage:
    """One partition's entry: how many rows of batch `number` its writer has committed, over all its partitions.

    `before` is the batch that this writer had finished earlier; `partitions`, `writers` and `token` are the layout's.
    `rows_hash` is that of the rows in their order. A fence keeps the rows of a part that is out under its number.
    """

    number: int
    rows: int
    done: bool
    partitions: int
    writers: int
    before: int = 0
    digest: str | None = None
    token: str | None = None
    is_fence: bool = False
    rows_hash: str | None = None

    @classmethod
    def fence(cls, number: int, partitions: int, *, over: LedgerPage | None) -> LedgerPage:
        """The number without rows of its own, in place of another page or of none."""
        rows = over.rows if over is not None and over.number == number else 0
        return cls(number, rows, True, partitions, partitions, over.highest_done if over else 0, is_fence=True)

    @property
    def recorded(self) -> Recorded:
        """What it says of its own number."""
        return Recorded(self.number, self.digest, self.is_fence)

    @property
    def highest_done(self) -> int:
        """The highest batch that is whole."""
        return self.number if self.done else self.before

    def offset(self, topic: str, partition: int) -> TopicPartition:
        """As the group keeps it."""
        from confluent_kafka import TopicPartition

        return TopicPartition(
            topic, partition, self.number, json.dumps(with_format(asdict(self), PAGE_FORMAT), separators=(",", ":"))
        )

    @classmethod
    def from_offset(cls, offset: TopicPartition) -> LedgerPage | None:
        """None for an entry that is not ours, which is as good as none: then the topic itself is asked."""
        if offset.offset < 0 or not offset.metadata:
            return None
        try:
            where = f"partition {offset.partition} of topic {offset.topic}"
            facts = without_format(json.loads(offset.metadata), "the ledger", where=where, known=PAGE_FORMAT)
            page = cls(**facts)
        except (AttributeError, TypeError, ValueError):
            return None
        is_old_fence = "is_fence" not in facts and page.done and page.digest is None and not page.rows
        return replace(page, is_fence=True) if is_old_fence else page


def read_pages(
    consumer: Consumer, topic: str, partitions: Iterable[int], seconds: float = STABLE_SECONDS
) -> dict[int, LedgerPage]:
    """The pages that are there; the consumer's group is the ledger, and it waits for offsets to be settled."""
    from confluent_kafka import KafkaException, TopicPartition

    wanted = [TopicPartition(topic, partition) for partition in partitions]
    offsets = consumer.committed(wanted, timeout=seconds)
    for offset in offsets:
        if offset.error:
            raise KafkaException(offset.error)
    pages = {offset.partition: LedgerPage.from_offset(offset) for offset in offsets}
    return {partition: page for partition, page in pages.items() if page is not None}


def newest_page(pages: Mapping[int, LedgerPage]) -> LedgerPage | None:
    """The page of the highest number; of those, a fence, which nobody writes beyond."""
    return max(pages.values(), key=lambda page: (page.number, page.is_fence, page.done), default=None)


def newest_batch(pages: Mapping[int, LedgerPage]) -> Recorded | None:
    """The highest batch that every partition of its layout has; a fence closes its number from the first page on."""
    newest = newest_page(pages)
    if newest is None:
        return None
    if newest.is_fence or is_whole(pages, newest.number):
        return newest.recorded
    earlier = max(page.before if page.number == newest.number else page.highest_done for page in pages.values())
    return Recorded(earlier) if earlier else None


def half_batch(pages: Mapping[int, LedgerPage]) -> int | None:
    """The highest batch of which a reader can see some rows and will not see the others, unless it is finished."""
    number = max((page.number for page in pages.values() if page.rows), default=0)
    of_batch = [page for page in pages.values() if page.number == number]
    is_cut_short = any(page.is_fence for page in of_batch) or not is_whole(pages, number)
    return number if number and is_cut_short else None


def is_whole(pages: Mapping[int, LedgerPage], number: int) -> bool:
    """Whether all rows of this batch are out, in every partition that it was spread over."""
    of_batch = [page for page in pages.values() if page.number >= number]
    if not of_batch:
        return False
    spread = max(page.partitions for page in of_batch)
    return all(partition in pages and pages[partition].highest_done >= number for partition in range(spread))


def rows_of(pages: Mapping[int, LedgerPage], number: int) -> int | None:
    """What a finished batch wrote: a page counts all rows of its writer, so each writer is asked once."""
    if pages[0].number != number:
        return None
    return sum(pages[partition].rows for partition in range(pages[0].writers))


class CannotTell(Exception):
    """Ledger and topic no longer show what was written since the batch was intended."""


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

    from floodmark.probes.kafka import is_between_leaders

    consumer = options.consumer(**{"isolation.level": "read_uncommitted"})

    def ask() -> dict[int, tuple[int, int]]:
        return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30) for p in since}

    try:
        bounds = patiently(ask, seconds=STABLE_SECONDS, passing=is_between_leaders, pause_seconds=0.1)
    finally:
        consumer.close()
    for partition, (low, high) in bounds.items():
        if not low <= since[partition] <= high:
            reason = f"partition {partition} of '{topic}' holds offsets {low} to {high}"
            raise CannotTell(f"its ledger is gone, and {reason}: what followed {since[partition]} was removed")
    return {partition: high for partition, (_, high) in bounds.items() if high > since[partition]}


def highest_stamps(
    options: KafkaOptions, topic: str, since: Mapping[int, int], ends: Mapping[int, int]
) -> dict[str, int]:
    """By label, how many rows are out: a transaction ends with a stamp, so the highest committed one tells.

    Reads from the given offsets to the given ends. Raises CannotTell.
    """
    from confluent_kafka import TopicPartition

    consumer = options.consumer(**{"enable.partition.eof": True, "auto.offset.reset": "error"})
    stamps: dict[str, int] = {}
    unread, deadline = dict(ends), time.monotonic() + HIDDEN_SECONDS
    try:
        consumer.assign([TopicPartition(topic, partition, since[partition]) for partition in unread])
        while unread:
            for message in consumer.consume(10_000, timeout=1.0):
                _note_stamp(message, stamps)
                _forget_finished(message, unread)
                deadline = time.monotonic() + HIDDEN_SECONDS if message.error() is None else deadline
            if time.monotonic() > deadline:
                raise CannotTell(f"its ledger is gone, and an open transaction hides the end of '{topic}'")
    finally:
        consumer.close()
    return stamps


def _note_stamp(message: Message, stamps: dict[str, int]) -> None:
    headers = dict(message.headers() or ()) if message.error() is None else {}
    label, rows = headers.get(LABEL), headers.get(ROWS)
    if isinstance(label, bytes) and isinstance(rows, bytes) and rows.isdigit():
        name = label.decode(errors="replace")
        stamps[name] = max(stamps.get(name, 0), int(rows))


def _forget_finished(message: Message, unread: dict[int, int]) -> None:
    """The last offsets of a partition may be transaction markers, which only the end-of-partition event passes."""
    from confluent_kafka import KafkaError, KafkaException

    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    partition, offset = message.partition() or 0, message.offset() or 0
    following = offset + 1 if error is None else offset
    if partition in unread and following >= unread[partition]:
        del unread[partition]
