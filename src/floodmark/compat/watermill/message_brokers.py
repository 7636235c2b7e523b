"""Message brokers by watermill's contract, which gives one element after the other, and the two that it ships.

A mill asks those two for what they are in `floodmark.mill` and reads them on Spark. They keep the contract too, for
mills that go element by element (`loop.py`) because of another broker, or of a `DataKey`.
"""

from __future__ import annotations

import enum
import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from uuid import UUID, uuid4

from floodmark.errors import ConfigError
from floodmark.mill import join_tree
from floodmark.mill.brokers import Arrivals, Message
from floodmark.mill.brokers import MessageBroker as CoreBroker
from floodmark.mill.brokers.files import JsonFileMessageBroker as CoreFiles
from floodmark.mill.brokers.kafka import KafkaMessageBroker as CoreKafka
from floodmark.mill.brokers.kafka import KafkaStream
from floodmark.mill.join_tree import MARKER, Stream
from floodmark.probes.kafka.group import GroupOffsets
from floodmark.sources.contract import Request
from floodmark.spark.session import spark_session

EndOfStream = join_tree.EndOfStream
StreamType = TypeVar("StreamType")
JoinedStreamType = TypeVar("JoinedStreamType")
Item: TypeAlias = "dict[str, Any]"
HOUR_MS = 60 * 60 * 1000
ONLY_PARTITION = 0


class StreamsShift(enum.Enum):
    """How the key of a left element stands to that of a right one."""

    Less = "Less"
    Equal = "Equal"
    Greater = "Greater"


Comparator: TypeAlias = Callable[[Item], StreamsShift]


class _StreamError(Exception):
    """Something about one stream."""

    def __init__(self, stream_type: object) -> None:
        super().__init__(getattr(stream_type, "__name__", str(stream_type)))
        self.stream_type = stream_type


class EndOfStreamError(_StreamError):
    """A broker has no more elements of this stream."""


class StreamTimeoutError(_StreamError):
    """A broker has none for the moment."""


class RightJoinedStreamRanAhead(_StreamError):
    """The next element is beyond what was asked for."""


@dataclass
class DataKey:
    """Which call of a process function a result belongs to, for `WaterMill.save_results`."""

    key: UUID = field(default_factory=uuid4)


class MessageBroker:
    """What a broker of one's own has to do; it is asked by one thread, element by element."""

    def send(self, item_type: Stream, item: Item) -> None:
        """Put an element into an output stream."""
        raise NotImplementedError(f"{type(self).__name__} sends no elements")

    def send_eos(self, item_type: Stream) -> None:
        """Say that an output stream has ended."""
        raise NotImplementedError(f"{type(self).__name__} sends no ends")

    def get_elements(self, element_type: Stream, comparator: Comparator | None = None) -> Iterator[Item]:
        """The elements that the comparator finds equal, from where the stream stands; those before are skipped.

        Raises RightJoinedStreamRanAhead, and keeps the element, if the next one is beyond; EndOfStreamError at the
        end; StreamTimeoutError if none comes in time.
        """
        raise NotImplementedError(f"{type(self).__name__} gives no elements")

    def commit(self, data_key: DataKey | None = None) -> None:
        """Remember how far the streams were read: up to a key, or up to now."""

    def get_data_key(self) -> DataKey | None:
        """Where the streams stand now."""
        return None


class ShippedBroker(MessageBroker, ABC):
    """What the two shipped brokers share: an element that is put back, and what they are in `floodmark.mill`."""

    def __init__(self) -> None:
        self._back: dict[Stream, Item] = {}

    @abstractmethod
    def core(self) -> CoreBroker:
        """The same for a mill on Spark."""

    def get_elements(self, element_type: Stream, comparator: Comparator | None = None) -> Iterator[Item]:
        compare = comparator or (lambda _: StreamsShift.Equal)
        element = self._next(element_type)
        while (shift := compare(element)) is StreamsShift.Greater:
            element = self._next(element_type)
        if shift is StreamsShift.Less:
            self._back[element_type] = element
            raise RightJoinedStreamRanAhead(element_type)
        while compare(element) is StreamsShift.Equal:
            yield element
            element = self._next(element_type)
        self._back[element_type] = element

    def _next(self, stream: Stream) -> Item:
        return self._back.pop(stream) if stream in self._back else self._read(stream)

    @abstractmethod
    def _read(self, stream: Stream) -> Item:
        """The next element, from where the stream stands."""


class JsonFileMessageBroker(ShippedBroker):
    """Files with one JSON array each. Every run reads them from the beginning and writes the output anew."""

    def __init__(self, stream_paths: Mapping[Stream, str | PathLike[str]]) -> None:
        super().__init__()
        self._paths = {stream: Path(path) for stream, path in stream_paths.items()}
        self._items: dict[Stream, deque[Item]] = {}
        self._output: dict[Stream, list[Item]] = {}

    def core(self) -> CoreFiles:
        return CoreFiles(self._paths)

    def send(self, item_type: Stream, item: Item) -> None:
        self._output.setdefault(item_type, []).append(item)

    def send_eos(self, item_type: Stream) -> None:
        self._paths[item_type].write_text(json.dumps(self._output.pop(item_type, [])), encoding="utf-8")

    def _read(self, stream: Stream) -> Item:
        if stream not in self._items:
            self._items[stream] = deque(json.loads(self._paths[stream].read_text(encoding="utf-8")))
        if not self._items[stream]:
            raise EndOfStreamError(stream)
        return self._items[stream].popleft()


@dataclass
class KafkaDataKey(DataKey):
    """The offsets, by stream, behind what a call was given."""

    offsets: Mapping[Stream, int] = field(default_factory=dict)


class KafkaMessageBroker(ShippedBroker):
    """Topics with one JSON object per record.

    `kafka_extra_args` are kafka-python's, or under the names that `floodmark.mill.KafkaMessageBroker` takes. A stream
    begins where the group `<consumer_group_name>-<class>` stands, else at its beginning.
    """

    def __init__(
        self,
        topic_names: Mapping[Stream, str],
        kafka_url: str,
        data_timeout: int | None = None,
        poll_timeout: int | None = None,
        consumer_group_name: str | None = None,
        kafka_extra_args: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__()
        self.group_name, self._timeouts = consumer_group_name, (data_timeout or HOUR_MS, poll_timeout)
        group, options = consumer_group_name or "watermill", kafka_extra_args or {}
        self._core = CoreKafka(topic_names, kafka_url, *self._timeouts, group, options, start="group")
        self._topics: dict[Stream, OneByOne] = {}
        self._keys: dict[UUID, KafkaDataKey] = {}
        self._saved: set[UUID] = set()

    def core(self) -> CoreKafka:
        return self._core

    def send(self, item_type: Stream, item: Item) -> None:
        options, topic = self._core.options, self._core.topic_names[item_type]
        if not hasattr(self, "_producer"):
            from confluent_kafka import Producer

            self._producer = Producer(options.librdkafka(**{"linger.ms": 0}))
        self._producer.produce(topic, json.dumps(item, ensure_ascii=False).encode())
        if self._producer.flush(options.call_seconds):
            raise TimeoutError(f"Kafka did not take a message for {topic} in time")

    def send_eos(self, item_type: Stream) -> None:
        self.send(item_type, asdict(EndOfStream()))

    def get_data_key(self) -> KafkaDataKey:
        key = KafkaDataKey(offsets=self._positions())
        self._keys[key.key] = key
        return key

    def commit(self, data_key: DataKey | None = None) -> None:
        """Up to now; with a key, up to the oldest one that is not saved yet: what lies behind it may be needed."""
        if data_key is None:
            self._commit(self._positions())
            return
        self._saved.add(data_key.key)
        while self._keys and (oldest := next(iter(self._keys))) in self._saved:
            self._saved.discard(oldest)
            self._commit(self._keys.pop(oldest).offsets)

    def _positions(self) -> dict[Stream, int]:
        return {stream: topic.offset - (stream in self._back) for stream, topic in self._topics.items()}

    def _commit(self, offsets: Mapping[Stream, int]) -> None:
        for stream, offset in offsets.items():
            self._topics[stream].group.publish({(self._core.topic_names[stream], ONLY_PARTITION): offset})

    def _read(self, stream: Stream) -> Item:
        if stream not in self._topics:
            self._topics[stream] = OneByOne.of(self._core, stream)
        topic, (data_ms, poll_ms) = self._topics[stream], self._timeouts
        waiting_ms = poll_ms or data_ms
        text = topic.next_text(waiting_ms / 1000)
        topic.idle_ms = topic.idle_ms + waiting_ms if text is None else 0
        if text is None:
            raise EndOfStreamError(stream) if topic.idle_ms >= data_ms else StreamTimeoutError(stream)
        item: Item = json.loads(text)
        if item.get(MARKER):
            raise EndOfStreamError(stream)
        return item


@dataclass
class OneByOne:
    """A topic of one partition while it is read message by message, and the group that is told how far."""

    topic: KafkaStream
    arrivals: Arrivals
    group: GroupOffsets
    offset: int
    waiting: deque[Message] = field(default_factory=deque)
    idle_ms: float = 0

    @classmethod
    def of(cls, broker: CoreKafka, stream: Stream) -> OneByOne:
        """From where its group stands. Raises ConfigError for a topic whose elements have no order."""
        topic, group = broker.topic_of(stream), GroupOffsets(broker.group_of(stream), broker.options)
        span = topic.look(None, Request(), spark_session).span  # Kafka's own client is asked, not Spark
        offsets = topic.offsets(span) if span is not None else {}
        if len(offsets) != 1:
            raise ConfigError(
                f"topic '{topic.topic}' has {len(offsets)} partitions, and this mill reads element by element.",
                hint="without a DataKey, and with the shipped brokers, a mill reads all partitions, on Spark",
            )
        return cls(topic, topic.follow(), group, offsets[ONLY_PARTITION][0])

    def next_text(self, seconds: float) -> str | None:
        """The next message, or None if none comes in time. Raises FloodmarkError if nobody is there to send any."""
        if not self.waiting:
            self.waiting.extend(self.arrivals.next_after({ONLY_PARTITION: self.offset}, seconds))
        if not self.waiting:
            self.topic.fingerprint(spark_session)  # a topic that is gone has not ended
            return None
        _, offset, text = self.waiting.popleft()
        self.offset = offset + 1
        return text or "{}"
