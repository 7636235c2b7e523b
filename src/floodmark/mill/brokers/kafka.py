"""Topics as the streams of a mill, by the class of their elements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError, SourceUnreadable
from floodmark.hwm import HWM, Span
from floodmark.hwm.parsing import wait_seconds
from floodmark.mill.brokers import OFFSET, PARTITION, VALUE, Inlet, Message, Outlet, address_of
from floodmark.mill.join_tree import Stream, name_of
from floodmark.mill.process import ENDS
from floodmark.probes.kafka import similar_topics
from floodmark.probes.kafka.client import KafkaOptions, option_text
from floodmark.probes.kafka.group import GroupOffsets
from floodmark.sinks.contract import Batch
from floodmark.sinks.kafka import Kafka as KafkaSink
from floodmark.sources.contract import Immutable, Reading, Request, Session, Sight
from floodmark.sources.kafka import Kafka as KafkaSource
from floodmark.sources.kafka import StartOption
from floodmark.sources.kafka.offsets import as_json, from_json, offsets_in, offsets_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TARGET = "_fm_partition"
MESSAGES_AT_ONCE = 1_000
GROUP = "group"
WITH_DOTS = (
    *("client_id", "security_protocol", "sasl_mechanism", "sasl_kerberos_service_name", "metadata_max_age_ms"),
    *("reconnect_backoff_ms", "reconnect_backoff_max_ms", "retry_backoff_ms", "connections_max_idle_ms"),
)
OPTION_NAMES = {name: name.replace("_", ".") for name in WITH_DOTS} | {
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
"""Options of kafka-python, which programs for watermill name, as other clients have them."""
KAFKA_PYTHON_ONLY = ("api_version", "metric", "selector", "sock", "receive_buffer", "send_buffer", "max_in_flight")
"""How options of kafka-python begin that it alone needs to be told."""


@dataclass(frozen=True)
class KafkaMessageBroker:
    """Streams in topics, one UTF-8 JSON object per record.

    `data_timeout` and `poll_timeout` are milliseconds, or text like "20s"; without them a stream is waited for.
    `consumer_group_name`: the positions are also published to the group `<consumer_group_name>-<class>`.
    `kafka_extra_args` reach every client: see KafkaOptions; kafka-python's names are understood too. Output topics that
    are missing are made with `output_partitions` and `replication`. `start` is where a stream without a mark begins;
    "group" is where that group stands, and the beginning for one that has committed nothing.

    >>> broker = KafkaMessageBroker({Order: "orders"}, "localhost:9092", data_timeout="20s")
    >>> broker.inlet(Order).data_timeout_seconds
    20.0
    """

    topic_names: Mapping[Stream, str]
    kafka_url: str | Sequence[str]
    data_timeout: float | str | None = None
    poll_timeout: float | str | None = None
    consumer_group_name: str | None = None
    kafka_extra_args: Mapping[str, object] = field(default_factory=dict, repr=False)
    output_partitions: int = 1
    replication: int = 1
    start: StartOption = "earliest"

    def __post_init__(self) -> None:
        wait_seconds(self.data_timeout, field="data_timeout")
        wait_seconds(self.poll_timeout, field="poll_timeout")
        for stream, topic in self.topic_names.items():
            if not topic:
                raise ConfigError(f"the topic of {name_of(stream)} has no name.", hint="name it in topic_names")
        if self.start == GROUP and self.consumer_group_name is None:
            raise ConfigError("start='group' needs a group.", hint="give consumer_group_name=")
        client_options(self.kafka_extra_args)

    @property
    def options(self) -> KafkaOptions:
        """How the brokers are reached."""
        return KafkaOptions(self.kafka_url, client_options(self.kafka_extra_args))

    def group_of(self, stream: Stream) -> str:
        """The consumer group that is told how far a stream is read."""
        return f"{self.consumer_group_name}-{name_of(stream)}"

    def inlet(self, stream: Stream) -> Inlet:
        return Inlet(
            self.topic_of(stream),
            "by_message",
            wait_seconds(self.data_timeout, field="data_timeout"),
            wait_seconds(self.poll_timeout, field="poll_timeout"),
        )

    def topic_of(self, stream: Stream) -> KafkaStream:
        """The topic that a stream comes in by."""
        begins_at_group = self.start == GROUP
        kafka = KafkaSource(
            self.kafka_url,
            self._topic(stream),
            value="text",
            start="earliest" if begins_at_group else self.start,
            options=self.options.options,
            name=name_of(stream),
            key="bytes",
            columns=("partition", "offset"),
        )
        return KafkaStream(kafka, self.group_of(stream) if begins_at_group else None)

    def outlet(self, stream: Stream) -> Outlet:
        sink = KafkaOutput(
            self.kafka_url,
            self._topic(stream),
            value="text:value",
            create={"partitions": self.output_partitions, "replication": self.replication},
            options=self.options.options,
            name=name_of(stream),
        )
        return Outlet(sink)

    def publish_positions(self, stream: Stream, offsets: Mapping[int, int]) -> None:
        """Tell the stream's consumer group how far it is read, for those who watch its lag; never the truth."""
        if self.consumer_group_name is None:
            return
        topic, group = self._topic(stream), GroupOffsets(self.group_of(stream), self.options)
        try:
            group.publish({(topic, partition): offset for partition, offset in offsets.items()})
        finally:
            group.close()

    def _topic(self, stream: Stream) -> str:
        return address_of(stream, self.topic_names, broker="KafkaMessageBroker")


@dataclass(frozen=True)
class KafkaStream(Immutable):
    """One topic as a stream: one JSON object per record, and a mark that can be put between any two of them.

    Without a mark it begins where `group` stands, if that has committed anything, else where its source begins.
    """

    kafka: KafkaSource
    group: str | None = None

    @property
    def name(self) -> str:
        return self.kafka.name

    @property
    def topic(self) -> str:
        return self.kafka.topics[0]

    def fingerprint(self, session: Session) -> str:
        try:
            return self.kafka.fingerprint(session)
        except SourceUnreadable as error:
            raise self._missing_topic() or error from error

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        """Always with a span, so that partitions without a single record are known too."""
        kafka = self._at_group() if mark is None and not request.whole else self.kafka
        sight = kafka.look(mark, request, session)
        if sight.span is not None:
            return sight
        known = offsets_in(mark, self.kafka.topics)
        start = offsets_text(known, self.kafka.topics) if known else str(kafka.start)
        return kafka.look(mark, replace(request, start=start), session)

    def read(self, spark: SparkSession, span: Span) -> Reading:
        reading = self.kafka.read(spark, span)
        return Reading(reading.rows.select(PARTITION, OFFSET, VALUE))

    def offsets(self, span: Span) -> dict[int, tuple[int, int]]:
        """The offsets of every partition, those without records too."""
        starts, ends = (from_json(span.detail[end]) for end in ("from", "upto"))
        marks = offsets_in(span.upto, self.kafka.topics)
        return {place[1]: (starts.get(place, at), ends.get(place, at)) for place, at in marks.items()}

    def cut(self, span: Span, *, reads: Mapping[int, int], passes: Mapping[int, int]) -> Span:
        starts = {partition: first for partition, (first, _) in self.offsets(span).items()}
        taken = {partition: at for partition, at in reads.items() if at > starts[partition]}
        ends = {
            "from": as_json({(self.topic, partition): starts[partition] for partition in taken}),
            "upto": as_json({(self.topic, partition): at for partition, at in taken.items()}),
        }
        return replace(span, upto=span.upto.reset().update(dict(passes)), detail={**span.detail, **ends})

    def follow(self) -> KafkaArrivals:
        return KafkaArrivals(self.topic, KafkaOptions(self.kafka.bootstrap, self.kafka.options))

    def _at_group(self) -> KafkaSource:
        """The source as it begins: at the offsets of the group, if it has any."""
        probe = self.kafka.probe
        if self.group is None or not probe.group_offsets(self.group, probe.topics(self.kafka.topics).values()):
            return self.kafka
        return replace(self.kafka, start=f"group:{self.group}")

    def _missing_topic(self) -> ConfigError | None:
        """The error of a topic that is not there, with those that have a name like it; None if it is there."""
        topics = self.kafka.probe.partition_counts()
        if self.topic in topics:
            return None
        hint = similar_topics(self.topic, topics) or f"make the topic; there are {len(topics)} others"
        return ConfigError(f"there is no topic '{self.topic}' for {self.name}.", hint=hint)


class KafkaArrivals:
    """Committed messages of a topic, by a consumer that belongs to no group."""

    def __init__(self, topic: str, options: KafkaOptions) -> None:
        # Unlike a probe it waits: the broker answers when there is something, not a hundred times a second.
        self._consumer = options.consumer(**{"fetch.wait.max.ms": 500, "auto.offset.reset": "earliest"})
        self._topic = topic
        self._offsets: dict[int, int] = {}
        """By partition that is read, the offset of the message that comes next."""

    def next_after(self, offsets: Mapping[int, int], seconds: float) -> Iterator[Message]:
        if self._offsets != dict(offsets):
            self._go_to(offsets)
        messages = [self._consumer.poll(seconds), *self._consumer.consume(MESSAGES_AT_ONCE, 0)]
        for message in messages:
            if message is None or message.error() is not None:  # what passes is tried again by the client itself
                continue
            partition, offset, value = int(message.partition() or 0), int(message.offset() or 0), message.value()
            self._offsets[partition] = offset + 1
            yield partition, offset, None if value is None else value.decode(errors="replace")

    def close(self) -> None:
        self._consumer.close()

    def _go_to(self, offsets: Mapping[int, int]) -> None:
        from confluent_kafka import TopicPartition

        self._offsets = dict(offsets)
        self._consumer.assign([TopicPartition(self._topic, each, offset) for each, offset in offsets.items()])


@dataclass(frozen=True)
class KafkaOutput(KafkaSink):
    """The Kafka sink with elements in master order in every partition, chosen by their content, and an end in each."""

    partition: str | None = TARGET

    def takes_end(self) -> bool:
        return True

    def counts_every_row(self) -> bool:
        return False  # an end goes to every partition

    def write(self, rows: DataFrame, batch: Batch) -> int | None:
        from pyspark.sql import functions as F

        count = int(str(batch.frozen[self.name]["partitions"]))
        own = F.array(F.pmod(F.xxhash64("value"), F.lit(count)).cast("int"))
        every = F.sequence(F.lit(0), F.lit(count - 1))
        targets = F.explode(F.when(F.col(ENDS), every).otherwise(own)) if count > 1 else F.lit(0)
        return super().write(rows.withColumn(TARGET, targets), batch)


def client_options(given: Mapping[str, object]) -> dict[str, str]:
    """Options for the clients that are used here, also those that are given in kafka-python's words.

    Raises ConfigError for one of kafka-python's that has no counterpart: it may be what keeps others out.
    """
    options: dict[str, str] = {}
    for name, value in given.items():
        if value is None or name.startswith(KAFKA_PYTHON_ONLY):
            continue
        if name == "ssl_check_hostname":
            options |= {} if value else {"ssl.endpoint.identification.algorithm": "none"}
        elif name in OPTION_NAMES or "_" not in name or "." in name or name == "log_level":
            options[OPTION_NAMES.get(name, name)] = option_text(value)
        else:
            raise ConfigError(
                f"kafka_extra_args: '{name}' has no counterpart in the clients that Floodmark uses.",
                hint="leave it out, or give the option under its name there: ssl.ca.location, sasl.username, …",
            )
    return options
