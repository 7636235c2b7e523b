"""A topic as a stream of a mill: one JSON object per record, and a mark that can be put between any two of them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError, SourceUnreadable
from floodmark.hwm import HWM, Span
from floodmark.mill.brokers import OFFSET, PARTITION, VALUE
from floodmark.sinks.kafka_topic import Topic
from floodmark.sources.contract import Immutable, Reading, Request, Session, Sight
from floodmark.sources.kafka import Kafka
from floodmark.sources.kafka_mark import offsets_in, shown
from floodmark.sources.kafka_span import as_json, from_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class KafkaStream(Immutable):
    """One node of a join tree that is read from a topic."""

    kafka: Kafka

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
            raise self._missing() or error from error

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        """Always with a span, so that partitions without a single record are known too."""
        sight = self.kafka.look(mark, request, session)
        if sight.span is not None:
            return sight
        known = offsets_in(mark, self.kafka.topics)
        start = shown(known, self.kafka.topics) if known else str(self.kafka.start)
        return self.kafka.look(mark, replace(request, start=start), session)

    def read(self, spark: SparkSession, span: Span) -> Reading:
        reading = self.kafka.read(spark, span)
        return Reading(reading.rows.select(PARTITION, OFFSET, VALUE))

    def lanes(self, span: Span) -> dict[int, tuple[int, int]]:
        """The offsets of every partition, those without records too."""
        starts, ends = (from_json(span.detail[end]) for end in ("from", "upto"))
        marks = offsets_in(span.upto, self.kafka.topics)
        return {place[1]: (starts.get(place, at), ends.get(place, at)) for place, at in marks.items()}

    def cut(self, span: Span, *, reads: Mapping[int, int], passes: Mapping[int, int]) -> Span:
        starts = {partition: first for partition, (first, _) in self.lanes(span).items()}
        taken = {partition: at for partition, at in reads.items() if at > starts[partition]}
        ends = {
            "from": as_json({(self.topic, partition): starts[partition] for partition in taken}),
            "upto": as_json({(self.topic, partition): at for partition, at in taken.items()}),
        }
        return replace(span, upto=span.upto.reset().update(dict(passes)), detail={**span.detail, **ends})

    def _missing(self) -> ConfigError | None:
        """The error of a topic that is not there, with those that have a name like it; None if it is there."""
        if self.kafka.probe is None:
            return None
        topics = Topic(self.kafka.probe.options, self.topic).names()
        if self.topic in topics:
            return None
        near = difflib.get_close_matches(self.topic, topics, n=3)
        meant = f"did you mean {', '.join(near)}?" if near else f"make the topic; there are {len(topics)} others"
        return ConfigError(f"there is no topic '{self.topic}' for {self.name}.", hint=meant)
