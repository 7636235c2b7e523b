"""A look at the topics of a stream: what is new, what has to be read again, and what the bounds of healing allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from floodmark.errors import ConfigError, SourceChanged
from floodmark.hwm import Json, Span
from floodmark.logs import get_logger
from floodmark.probes.kafka import KafkaProbe, Offsets, PartitionBounds, Place, Topic
from floodmark.probes.kafka.client import KafkaOptions
from floodmark.sources.kafka.offsets import OffsetPlanner, as_json, from_json, mark_of
from floodmark.stores.record import JobRecord
from floodmark.streams.healer.progress import Progress, Range, StreamProgress, progress_in

log = get_logger(__name__)
MOST_AT_ONCE = 1_000_000
"""How many offsets one turn reads at most."""
MOST_IN_ORDER = 100_000
"""The same where steps span the stream: one task has what waits for them in its memory."""
Reset = Literal["earliest", "latest"]
RESETS: Mapping[str, Reset] = {
    **dict.fromkeys(("earliest", "smallest", "beginning"), "earliest"),
    **dict.fromkeys(("latest", "largest", "end"), "latest"),
}


@dataclass(frozen=True)
class StreamOutlook:
    """What a look saw: where every partition stands, and what the next turn reads of it."""

    progress: StreamProgress
    reads: Mapping[Place, Range]
    sources: Mapping[str, str]
    topic_ids: Mapping[str, str]
    ends: Offsets
    is_beginning: bool = False
    held_back: int = 0
    held_reason: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def idle_notes(self) -> tuple[str, ...]:
        return (*((self.held_reason,) if self.held_reason else ()), *self.notes)

    def spans(self) -> dict[str, Span]:
        """The reads as they stand in an intent: a span for each topic."""
        topics = sorted({topic for topic, _ in self.reads})
        return {topic: self._span(topic) for topic in topics}

    def _span(self, topic: str) -> Span:
        starts, ends = ({p: read[end] for p, read in self.reads.items() if p[0] == topic} for end in (0, 1))
        detail: dict[str, Json] = {
            "topics": {topic: self.topic_ids[topic]},
            "from": as_json(starts),
            "upto": as_json(ends),
        }
        return Span(mark_of(topic, [topic], starts), mark_of(topic, [topic], ends), detail)


def reads_in(spans: Mapping[str, Span]) -> dict[Place, Range]:
    """What an open intent reads."""
    ends = [(from_json(span.detail["from"]), from_json(span.detail["upto"])) for span in spans.values()]
    return {place: (start[place], upto[place]) for start, upto in ends for place in start}


@dataclass(frozen=True)
class TopicLook:
    """Looks at the topics of a stream, without Spark and without reading a record."""

    group: str
    topics: tuple[str, ...]
    options: KafkaOptions
    reset: Reset = "latest"
    at_once: int = MOST_AT_ONCE
    warnings: set[str] = field(default_factory=set, compare=False)

    @cached_property
    def probe(self) -> KafkaProbe:
        return KafkaProbe(self.options)

    def look(self, record: JobRecord, waiting: Offsets, upto: Offsets | None = None) -> StreamOutlook:
        """What a turn would read; `waiting` are the lowest offsets that have to come again, `upto` where to end."""
        topics = tuple(self.probe.topics(self.topics).values())
        bounds = self.probe.bounds(topics)
        sources = self._sources(record, topics)
        known = progress_in(record, self.topics)
        progress = {**known, **self._beginnings(known, topics, bounds)}
        positions = {place: min(waiting.get(place, each.read_upto), each.read_upto) for place, each in progress.items()}
        planner = OffsetPlanner(self.group, topics, bounds, positions, max_rows=self.at_once)
        sight = planner.sight(positions, sets_mark=False, has_mark=True)
        ends = {place: each.stable for place, each in bounds.items()}
        reads, notes = self._within_bounds(progress, reads_in({"": sight.span}) if sight.span else {}, upto or ends)
        return StreamOutlook(
            progress,
            reads,
            sources,
            topic_ids={topic.name: topic.id for topic in topics},
            ends=ends,
            is_beginning=not progress.keys() <= known.keys(),
            held_back=sight.held_back,
            held_reason=sight.held_reason,
            notes=notes,
        )

    def ends(self) -> dict[Place, int]:
        """Where the topics end now."""
        bounds = self.probe.bounds(self.probe.topics(self.topics).values())
        return {place: each.stable for place, each in bounds.items()}

    def require_same(self, stored: Mapping[str, str]) -> None:
        """For a batch that was begun: its topics have to be the same ones still. Raises SourceChanged."""
        self._sources(JobRecord(self.group, sources=stored), tuple(self.probe.topics(self.topics).values()))

    def _sources(self, record: JobRecord, topics: Sequence[Topic]) -> dict[str, str]:
        cluster = self.probe.cluster_id
        sources = {each.name: f"kafka topic {each.name} (id {each.id}) of cluster {cluster}" for each in topics}
        for topic, source in sources.items():
            stored = record.sources.get(topic)
            if stored is not None and stored != source:
                raise SourceChanged(self.group, stored=stored, found=source)
        return sources

    def _beginnings(
        self, known: StreamProgress, topics: Sequence[Topic], bounds: Mapping[Place, PartitionBounds]
    ) -> dict[Place, Progress]:
        """Where partitions begin that the record does not know; one that a known topic got later is read whole."""
        new = [place for place in bounds if place not in known]
        known_topics = {topic for topic, _ in known}
        first = [place for place in new if place[0] not in known_topics]
        committed = self.probe.group_offsets(self.group, topics) if first else {}
        beginnings = {place: Progress.beginning(bounds[place].earliest) for place in new}
        beginnings |= {place: Progress.beginning(self._first(place, committed, bounds[place])) for place in first}
        if set(first) & set(committed):
            self._warn_once("the stream begins where its group stands in Kafka", group=self.group, topics=self.topics)
        return beginnings

    def _first(self, place: Place, committed: Offsets, bounds: PartitionBounds) -> int:
        """The group's own offset while it can still be read; else what `auto.offset.reset` says."""
        offset = committed.get(place)
        if offset is not None and bounds.earliest <= offset <= bounds.end:
            return offset
        return bounds.earliest if self.reset == "earliest" else bounds.stable

    def _within_bounds(
        self, progress: StreamProgress, reads: Mapping[Place, Range], ends: Offsets
    ) -> tuple[dict[Place, Range], tuple[str, ...]]:
        """Reads that leave no more settled above a mark than may be remembered."""
        bounded: dict[Place, Range] = {}
        notes: list[str] = []
        for place, (start, upto) in reads.items():
            own = progress[place]
            end = min(upto, ends.get(place, upto), max(own.read_upto + own.free_offsets, start))
            if start < end:
                bounded[place] = (start, end)
            elif own.is_stuck and not own.free_offsets:
                notes.append(f"{place[0]}/{place[1]} takes no new records: too much is settled above {own.mark}")
        for note in notes:
            self._warn_once(note, group=self.group)
        return bounded, tuple(notes)

    def _warn_once(self, event: str, **facts: object) -> None:
        """And not at every poll."""
        if event not in self.warnings:
            self.warnings.add(event)
            log.warning(event, **facts)


def reset_of(word: str) -> Reset:
    """Kafka's words for where a group without offsets begins."""
    if word not in RESETS:
        raise ConfigError(f"auto.offset.reset is '{word}'.", hint="one of: earliest, latest")
    return RESETS[word]
