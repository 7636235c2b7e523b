"""Kafka as water-healer's programs see it: sources with a `consumer` and a `memory`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from floodmark.compat.waterhealer.stream import VALUE, DoorSteps
from floodmark.streams.healer.progress import progress_in
from floodmark.streams.kafka import KafkaSettings, KafkaStream

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

    from floodmark.streams import flow
    from floodmark.streams.operators import Operator
    from floodmark.streams.stream import Stream

OURS = ("store", "spark", "state")
"""Options of a source that are Floodmark's own; of the original's, those that mean nothing here are let be."""
NO_OFFSET = -1001


def topic_partition_str(topic: str, partition: int) -> str:
    """The key of a partition in a source's `memory`."""
    return f"{topic}<!>{partition}"


class KafkaSource(DoorSteps, KafkaStream):
    """A source of `(uuid, value)`, or of plain values."""

    gives_plain_values = False

    def __init__(self, settings: KafkaSettings, options: Mapping[str, Any]) -> None:
        own = {name: options[name] for name in OURS if name in options}
        KafkaStream.__init__(self, settings, start=bool(options.get("start")), **own)
        self.consumer = SourceConsumer(self)

    @property
    def memory(self) -> Mapping[str, Mapping[int, bool]]:
        """For every partition the records that the mark has not passed: whether each of them is healed."""
        record = self.store.read(self.group)
        memory: defaultdict[str, dict[int, bool]] = defaultdict(dict)
        for (topic, partition), own in progress_in(record, self.settings.topics).items() if record else ():
            for offset in range(own.mark, own.read_upto):
                memory[topic_partition_str(topic, partition)][offset] = own.is_settled(offset)
        return memory

    def _then(self, operator: Operator, *others: flow.Node) -> Stream:
        if not self.gives_plain_values:
            return super()._then(operator, *others)
        if not hasattr(self, "_values"):
            self._values = super()._then(VALUE)
        return self._values._then(operator, *others)


class SourceConsumer:
    """What programs ask of `source.consumer`: where the marks are; all else is asked of a consumer of Kafka's."""

    def __init__(self, source: KafkaSource) -> None:
        self._source = source

    def committed(self, partitions: Sequence[TopicPartition], timeout: float | None = None) -> list[TopicPartition]:
        """The marks of these partitions; one that nothing was committed for has Kafka's number for that."""
        from confluent_kafka import TopicPartition

        record = self._source.store.read(self._source.group)
        marks = record.marks if record else {}
        offsets = [marks[each.topic].value.get(each.partition) if each.topic in marks else None for each in partitions]
        return [
            TopicPartition(each.topic, each.partition, NO_OFFSET if offset is None else offset)
            for each, offset in zip(partitions, offsets, strict=True)
        ]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (a method of Kafka's consumer)
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._kafka, name)

    @cached_property
    def _kafka(self) -> Consumer:
        settings = self._source.settings
        return settings.options.consumer(**{"group.id": settings.group, "enable.auto.commit": "false"})


def settings_of(
    topics: str | Sequence[str],
    consumer_params: Mapping[str, object],
    poll_interval: str | float,
    options: Mapping[str, Any],
) -> KafkaSettings:
    """The settings of a source; what `partition` holds when a run ends waits for the next one, as in the original."""
    on_error, debug = options.get("on_error", "stop"), bool(options.get("debug"))
    settings = KafkaSettings.of(topics, consumer_params, poll_interval, on_error, debug=debug)
    return replace(settings, flushes_at_end=False)


def from_kafka(
    topics: str | Sequence[str],
    consumer_params: Mapping[str, object],
    poll_interval: float = 0.1,
    start: bool = False,
    debug: bool = False,
    **kwargs: Any,  # noqa: ANN401 (streamz's own, and Floodmark's)
) -> KafkaSource:
    """A stream of `(uuid, value)`."""
    options = {**kwargs, "start": start, "debug": debug}
    return KafkaSource(settings_of(topics, consumer_params, poll_interval, options), options)


def from_kafka_batched(
    topics: str | Sequence[str],
    consumer_params: Mapping[str, object],
    poll_interval: str | float = "1s",
    partitions: int = 5,
    start: bool = False,
    dask: bool = False,
    maxlen: int = 1000,
    **kwargs: Any,  # noqa: ANN401 (streamz's own, and Floodmark's)
) -> KafkaSource:
    """A stream of lists of `(uuid, value)`, each of one partition; `dask` means Spark, which is always."""
    options = {**kwargs, "start": start}
    settings = settings_of(topics, consumer_params, poll_interval, options)
    return KafkaSource(replace(settings, rows_at_once=maxlen, side_by_side=partitions), options)
