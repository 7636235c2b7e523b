"""Topics as the streams of a mill, by the class of their elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from floodmark.errors import ConfigError
from floodmark.mill.aliases import Stream, name_of
from floodmark.mill.brokers import Inlet, Outlet, place_of
from floodmark.mill.kafka_output import TARGET, KafkaOutput
from floodmark.mill.kafka_stream import KafkaStream
from floodmark.mill.waits import wait_seconds
from floodmark.probes.kafka_client import KafkaOptions
from floodmark.sinks.kafka import Kafka as KafkaSink
from floodmark.sources.kafka import Kafka as KafkaSource
from floodmark.sources.kafka_start import StartOption


@dataclass(frozen=True)
class KafkaMessageBroker:
    """Streams in topics, one UTF-8 JSON object per record.

    `data_timeout` and `poll_timeout` are milliseconds, or text like "20s"; without them a stream is waited for.
    `consumer_group_name`: the positions are also published to the group `<consumer_group_name>-<class>`.
    `kafka_extra_args` reach every client: see KafkaOptions. Output topics that are missing are made with
    `output_partitions` and `replication`. `start` is where a stream without a mark begins.
    """

    topic_names: Mapping[Stream, str]
    kafka_url: str | Sequence[str]
    data_timeout: float | str | None = None
    poll_timeout: float | str | None = None
    consumer_group_name: str | None = None
    kafka_extra_args: Mapping[str, str] = field(default_factory=dict, repr=False)
    output_partitions: int = 1
    replication: int = 1
    start: StartOption = "earliest"

    def __post_init__(self) -> None:
        wait_seconds(self.data_timeout, field="data_timeout")
        wait_seconds(self.poll_timeout, field="poll_timeout")
        for stream, topic in self.topic_names.items():
            if not topic:
                raise ConfigError(f"the topic of {name_of(stream)} has no name.", hint="name it in topic_names")

    def inlet(self, stream: Stream) -> Inlet:
        kafka = KafkaSource(
            self.kafka_url,
            self._topic(stream),
            value="text",
            start=self.start,
            options=self.kafka_extra_args,
            name=name_of(stream),
            key="bytes",
            columns=("partition", "offset"),
        )
        return Inlet(
            KafkaStream(kafka),
            "by_message",
            wait_seconds(self.data_timeout, field="data_timeout"),
            wait_seconds(self.poll_timeout, field="poll_timeout"),
        )

    def outlet(self, stream: Stream) -> Outlet:
        kafka = KafkaSink(
            self.kafka_url,
            self._topic(stream),
            value="text:value",
            partition=TARGET,
            create={"partitions": self.output_partitions, "replication": self.replication},
            options=self.kafka_extra_args,
            name=name_of(stream),
        )
        return Outlet(KafkaOutput(kafka))

    def publish_positions(self, stream: Stream, offsets: Mapping[int, int]) -> None:
        """Tell the stream's consumer group how far it is read, for those who watch its lag; never the truth."""
        if self.consumer_group_name is None:
            return
        from confluent_kafka import TopicPartition

        topic = self._topic(stream)
        places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        options = KafkaOptions(self.kafka_url, self.kafka_extra_args)
        consumer = options.consumer(**{"group.id": f"{self.consumer_group_name}-{name_of(stream)}"})
        try:
            consumer.commit(offsets=places, asynchronous=False)
        finally:
            consumer.close()

    def _topic(self, stream: Stream) -> str:
        return place_of(self.topic_names, stream, broker="KafkaMessageBroker")
