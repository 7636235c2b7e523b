"""A look at the topics of a stream: what is new, what has to be read again, and what the bounds of healing allow."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from floodmark.errors import ConfigError, PublicationFailed, SourceChanged, SourceUnreadable
from floodmark.hwm import Json, Span
from floodmark.logs import get_logger
from floodmark.patience import patiently
from floodmark.probes.kafka import Bounds, KafkaProbe, Offsets, Place, Topic
from floodmark.probes.kafka.client import KafkaOptions
from floodmark.sources.kafka.offsets import Planner, as_json, from_json, mark_of
from floodmark.stores.record import JobRecord
from floodmark.streams.healer.progress import Progress, Range, standing_in

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError


log = get_logger(__name__)
# A consumer group in Kafka: where its first run begins, and where lag tools find how far our own marks got.
PATIENCE_SECONDS, PAUSE_SECONDS = 15.0, 0.2
"""A coordinator that moves, or is made for the first group of a broker, answers within this time."""
PASSING = (
    *("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "REBALANCE_IN_PROGRESS"),
    *("REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "_WAIT_COORD", "_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN"),
)
"""librdkafka's names of what is over soon; its own `retriable` speaks of transactions alone."""


def committed_offsets(probe: KafkaProbe, group: str, topics: Sequence[Topic]) -> dict[Place, int]:
    """The group's offsets; a coordinator that is still loading them is waited for."""
    return patiently(
        lambda: probe.committed(group, topics),
        seconds=PATIENCE_SECONDS,
        passing=lambda error: isinstance(error, SourceUnreadable) and "oordinator" in error.reason,
        pause_seconds=PAUSE_SECONDS,
    )


@dataclass
class GroupOffsets:
    """Publishes offsets under a group's name. They are never the truth: our own marks are, and come first."""

    group: str
    options: KafkaOptions
    published: dict[Place, int] = field(default_factory=dict)
    _consumer: Consumer | None = field(default=None, repr=False)
    _thread: threading.Thread | None = field(default=None, repr=False)
    _error: PublicationFailed | None = None

    def publish(self, offsets: Mapping[Place, int]) -> None:
        """Commit those that are not published yet. Raises PublicationFailed if Kafka refuses."""
        fresh = {place: offset for place, offset in offsets.items() if self.published.get(place) != offset}
        if fresh:
            self._commit(fresh)
            self.published.update(fresh)

    def publish_later(self, offsets: Mapping[Place, int]) -> None:
        """The same in the background, one publication after the other; what failed is raised by the next call."""
        self.flush()
        self._thread = threading.Thread(target=self._publish_noting, args=(dict(offsets),), daemon=True)
        self._thread.start()

    def flush(self) -> None:
        """Wait for what is under way. Raises PublicationFailed if it failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def close(self) -> None:
        """Let go of the connection."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _publish_noting(self, offsets: Mapping[Place, int]) -> None:
        try:
            self.publish(offsets)
        except PublicationFailed as error:
            self._error = error

    def _commit(self, offsets: Mapping[Place, int]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in sorted(offsets.items())]

        def commit() -> None:
            answers = self._connected().commit(offsets=places, asynchronous=False) or []
            for refused in (each.error for each in answers if each.error is not None):
                raise KafkaException(refused)

        def is_passing(error: Exception) -> bool:
            return isinstance(error, KafkaException) and may_pass(error.args[0])

        try:
            patiently(commit, seconds=PATIENCE_SECONDS, passing=is_passing, pause_seconds=PAUSE_SECONDS)
        except KafkaException as error:
            reason = self.options.without_secrets(error.args[0].str())
            raise PublicationFailed(self.group, reason=reason) from None

    def _connected(self) -> Consumer:
        if self._consumer is None:
            self._consumer = self.options.consumer(**{"group.id": self.group})
        return self._consumer


def may_pass(error: KafkaError) -> bool:
    """Whether asking again in a moment may help."""
    from confluent_kafka import KafkaError

    return error.code() in {getattr(KafkaError, name) for name in PASSING}


MOST_AT_ONCE = 1_000_000
"""How many offsets one turn reads at most."""
Reset = Literal["earliest", "latest"]
RESETS: Mapping[str, Reset] = {
    **dict.fromkeys(("earliest", "smallest", "beginning"), "earliest"),
    **dict.fromkeys(("latest", "largest", "end"), "latest"),
}


@dataclass(frozen=True)
class Outlook:
    """What a look saw: where every partition stands, and what the next turn reads of it."""

    standing: Mapping[Place, Progress]
    reads: Mapping[Place, Range]
    sources: Mapping[str, str]
    ids: Mapping[str, str]
    ends: Offsets
    is_beginning: bool = False
    held_back: int = 0
    held_reason: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.reads and not self.is_beginning

    @property
    def idle_notes(self) -> tuple[str, ...]:
        return (*((self.held_reason,) if self.held_reason else ()), *self.notes)

    def spans(self) -> dict[str, Span]:
        """The reads as they stand in an intent: a span for each topic."""
        topics = sorted({topic for topic, _ in self.reads})
        return {topic: self._span(topic) for topic in topics}

    def _span(self, topic: str) -> Span:
        starts, ends = ({p: read[end] for p, read in self.reads.items() if p[0] == topic} for end in (0, 1))
        detail: dict[str, Json] = {"topics": {topic: self.ids[topic]}, "from": as_json(starts), "upto": as_json(ends)}
        return Span(mark_of(topic, [topic], starts), mark_of(topic, [topic], ends), detail)


def reads_in(spans: Mapping[str, Span]) -> dict[Place, Range]:
    """What an open intent reads."""
    ends = [(from_json(span.detail["from"]), from_json(span.detail["upto"])) for span in spans.values()]
    return {place: (start[place], upto[place]) for start, upto in ends for place in start}


@dataclass(frozen=True)
class Lookout:
    """Looks at the topics of a stream, without Spark and without reading a record."""

    group: str
    topics: tuple[str, ...]
    options: KafkaOptions
    reset: Reset = "latest"
    warned: set[str] = field(default_factory=set, compare=False)

    @cached_property
    def probe(self) -> KafkaProbe:
        return KafkaProbe(self.options)

    def look(self, record: JobRecord, waiting: Offsets, upto: Offsets | None = None) -> Outlook:
        """What a turn would read; `waiting` are the lowest offsets that have to come again, `upto` where to end."""
        topics = tuple(self.probe.topics(self.topics).values())
        bounds = self.probe.bounds(topics)
        sources = self._sources(record, topics)
        known = standing_in(record, self.topics)
        standing = {**known, **self._beginnings(known, topics, bounds)}
        positions = {place: min(waiting.get(place, each.reached), each.reached) for place, each in standing.items()}
        planner = Planner(self.group, topics, bounds, positions, max_rows=MOST_AT_ONCE)
        sight = planner.sight(positions, sets_mark=False, has_mark=True)
        ends = {place: seen.stable for place, seen in bounds.items()}
        reads, notes = self._within_bounds(standing, reads_in({"": sight.span}) if sight.span else {}, upto or ends)
        return Outlook(
            standing,
            reads,
            sources,
            ids={topic.name: topic.id for topic in topics},
            ends=ends,
            is_beginning=not standing.keys() <= known.keys(),
            held_back=sight.held_back,
            held_reason=sight.held_reason,
            notes=notes,
        )

    def require_same(self, stored: Mapping[str, str]) -> None:
        """For a batch that was begun: its topics have to be the same ones still. Raises SourceChanged."""
        self._sources(JobRecord(self.group, sources=stored), tuple(self.probe.topics(self.topics).values()))

    def _sources(self, record: JobRecord, topics: Sequence[Topic]) -> dict[str, str]:
        cluster = self.probe.cluster_id
        found = {each.name: f"kafka topic {each.name} (id {each.id}) of cluster {cluster}" for each in topics}
        for topic, source in found.items():
            stored = record.sources.get(topic)
            if stored is not None and stored != source:
                raise SourceChanged(self.group, stored=stored, found=source)
        return found

    def _beginnings(
        self, known: Mapping[Place, Progress], topics: Sequence[Topic], bounds: Mapping[Place, Bounds]
    ) -> dict[Place, Progress]:
        """Where partitions begin that the record does not know; one that a known topic got later is read whole."""
        new = [place for place in bounds if place not in known]
        seen = {topic for topic, _ in known}
        first = [place for place in new if place[0] not in seen]
        committed = committed_offsets(self.probe, self.group, topics) if first else {}
        found = {place: Progress.beginning(bounds[place].earliest) for place in new}
        found.update({place: Progress.beginning(self._first(place, committed, bounds[place])) for place in first})
        if set(first) & set(committed):
            self._tell("the stream begins where its group stands in Kafka", group=self.group, topics=self.topics)
        return found

    def _first(self, place: Place, committed: Offsets, seen: Bounds) -> int:
        """The group's own offset while it can still be read; else what `auto.offset.reset` says."""
        offset = committed.get(place)
        if offset is not None and seen.earliest <= offset <= seen.end:
            return offset
        return seen.earliest if self.reset == "earliest" else seen.stable

    def _within_bounds(
        self, standing: Mapping[Place, Progress], reads: Mapping[Place, Range], ends: Offsets
    ) -> tuple[dict[Place, Range], tuple[str, ...]]:
        """Reads that leave no more settled above a mark than may be remembered."""
        kept: dict[Place, Range] = {}
        notes: list[str] = []
        for place, (start, upto) in reads.items():
            progress = standing[place]
            end = min(upto, ends.get(place, upto), max(progress.reached + progress.free_offsets, start))
            if start < end:
                kept[place] = (start, end)
            elif progress.is_stuck and not progress.free_offsets:
                notes.append(f"{place[0]}/{place[1]} takes no new records: too much is settled above {progress.mark}")
        for note in notes:
            self._tell(note, group=self.group)
        return kept, tuple(notes)

    def _tell(self, event: str, **facts: object) -> None:
        """Once, and not at every poll."""
        if event not in self.warned:
            self.warned.add(event)
            log.warning(event, **facts)


def reset_of(word: str) -> Reset:
    """Kafka's words for where a group without offsets begins."""
    if word not in RESETS:
        raise ConfigError(f"auto.offset.reset is '{word}'.", hint="one of: earliest, latest")
    return RESETS[word]
