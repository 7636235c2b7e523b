"""Message brokers by watermill's contract, which gives one element after the other, and the two that it ships.

A mill asks those two for what they are in `floodmark.mill` and reads them on Spark. They keep the contract too, for
mills that go element by element (`loop.py`) because of another broker, or of a `DataKey`.
"""

from __future__ import annotations

import enum
import json
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from uuid import UUID, uuid4

from floodmark.errors import ConfigError
from floodmark.mill import join_tree
from floodmark.mill.brokers import Inlet
from floodmark.mill.brokers import MessageBroker as CoreBroker
from floodmark.mill.brokers.files import JsonFileMessageBroker as CoreFiles
from floodmark.mill.brokers.kafka import KafkaMessageBroker as CoreKafka
from floodmark.mill.join_tree import MARKER, Stream, name_of
from floodmark.probes.kafka import KafkaProbe
from floodmark.probes.kafka.client import KafkaOptions
from floodmark.probes.kafka.group import may_pass

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

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
        self.group_name, self.is_named = consumer_group_name or "watermill", consumer_group_name is not None
        self._topics, self._options = topic_names, KafkaOptions(kafka_url, client_options(kafka_extra_args or {}))
        self._data_timeout_ms, self._poll_timeout_ms = data_timeout or HOUR_MS, poll_timeout
        self._consumers: dict[Stream, Consumer] = {}
        self._offsets: dict[Stream, int] = {}
        self._idle_ms: dict[Stream, float] = {}
        self._keys: dict[UUID, KafkaDataKey] = {}
        self._saved: set[UUID] = set()

    def core(self) -> CoreKafka:
        kafka, timeouts = self._options, (self._data_timeout_ms, self._poll_timeout_ms)
        return GroupedKafka(self._topics, kafka.bootstrap, *timeouts, self.group_name, kafka.options)

    def send(self, item_type: Stream, item: Item) -> None:
        if not hasattr(self, "_producer"):
            from confluent_kafka import Producer

            self._producer = Producer(self._options.librdkafka(**{"linger.ms": 0}))
        self._producer.produce(self._topics[item_type], json.dumps(item, ensure_ascii=False).encode())
        if self._producer.flush(self._options.call_seconds):
            raise TimeoutError(f"Kafka did not take a message for {self._topics[item_type]} in time")

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
        return {stream: offset - (stream in self._back) for stream, offset in self._offsets.items()}

    def _commit(self, offsets: Mapping[Stream, int]) -> None:
        from confluent_kafka import TopicPartition

        for stream, offset in offsets.items():
            place = TopicPartition(self._topics[stream], ONLY_PARTITION, offset)
            self._consumers[stream].commit(offsets=[place], asynchronous=False)

    def _read(self, stream: Stream) -> Item:
        waiting_ms = self._poll_timeout_ms or self._data_timeout_ms
        message = next_message(self._consumer(stream), waiting_ms / 1000)
        if message is None:
            self._idle_ms[stream] = self._idle_ms.get(stream, 0) + waiting_ms
            has_ended = self._idle_ms[stream] >= self._data_timeout_ms
            raise EndOfStreamError(stream) if has_ended else StreamTimeoutError(stream)
        self._idle_ms[stream], self._offsets[stream] = 0, int(message.offset() or 0) + 1
        item: Item = json.loads(message.value() or b"{}")
        if item.get(MARKER):
            raise EndOfStreamError(stream)
        return item

    def _consumer(self, stream: Stream) -> Consumer:
        """One for each stream; raises ConfigError for a topic whose elements have no order."""
        if stream in self._consumers:
            return self._consumers[stream]
        from confluent_kafka import OFFSET_STORED, TopicPartition

        topic, group = self._topics[stream], f"{self.group_name}-{name_of(stream)}"
        count = KafkaProbe(self._options).partition_counts().get(topic, 0)
        if count != 1:
            raise ConfigError(
                f"topic '{topic}' has {count} partitions, and this mill reads one element after the other.",
                hint="without a DataKey, and with the shipped brokers, a mill reads all partitions, on Spark",
            )
        own = {"group.id": group, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 500}
        consumer = self._consumers[stream] = self._options.consumer(**own)
        consumer.assign([TopicPartition(topic, ONLY_PARTITION, OFFSET_STORED)])
        return consumer


def next_message(consumer: Consumer, seconds: float) -> Message | None:
    """The next message, or None if none comes in time; an error that passes (a coordinator is made) is waited for."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + seconds
    while (message := consumer.poll(max(deadline - time.monotonic(), 0))) is not None:
        if (error := message.error()) is None:
            return message
        if not may_pass(error):
            raise KafkaException(error)
    return None


class GroupedKafka(CoreKafka):
    """Begins where the stream's consumer group stands, if it has committed anything, as the original would."""

    def inlet(self, stream: Stream) -> Inlet:
        group, topic = f"{self.consumer_group_name}-{name_of(stream)}", self.topic_names.get(stream)
        probe = KafkaProbe(KafkaOptions(self.kafka_url, self.kafka_extra_args))
        is_there = topic in probe.partition_counts()
        has_begun = is_there and probe.group_offsets(group, probe.topics([str(topic)]).values())
        return CoreKafka.inlet(replace(self, start=f"group:{group}") if has_begun else self, stream)


SAME_WITH_DOTS = (
    *("client_id", "security_protocol", "sasl_mechanism", "sasl_kerberos_service_name", "metadata_max_age_ms"),
    *("reconnect_backoff_ms", "reconnect_backoff_max_ms", "retry_backoff_ms", "connections_max_idle_ms"),
)
OPTION_NAMES = {name: name.replace("_", ".") for name in SAME_WITH_DOTS} | {
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
    "ssl_crlfile": "ssl.crl.location",
    "ssl_ciphers": "ssl.cipher.suites",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
    "request_timeout_ms": "socket.timeout.ms",
}
"""kafka-python's options as other clients have them; those that it alone needs to be told begin with one of these."""
ITS_OWN = ("api_version", "metric", "selector", "sock", "receive_buffer", "send_buffer", "max_in_flight")


def client_options(given: Mapping[str, object]) -> dict[str, str]:
    """Options for the clients that are used here. Raises ConfigError for one that has no counterpart."""
    options: dict[str, str] = {}
    for name, value in given.items():
        if name == "ssl_check_hostname":
            options |= {} if value else {"ssl.endpoint.identification.algorithm": "none"}
        elif name in OPTION_NAMES or "." in name:
            options[OPTION_NAMES.get(name, name)] = str(value)
        elif not name.startswith(ITS_OWN):
            raise ConfigError(
                f"kafka_extra_args: '{name}' has no counterpart in the clients that Floodmark uses.",
                hint="leave it out, or give the option under its name there: ssl.ca.location, sasl.username, …",
            )
    return options
