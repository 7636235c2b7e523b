"""Kafka as a source: the offsets of one topic or of several, always between fixed bounds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from floodmark.errors import (
    ConfigError,
    FloodmarkError,
    MarkInvalid,
    RecordMalformed,
    SourceRewritten,
    SourceUnreadable,
    UnknownKind,
)
from floodmark.hwm import HWM, Span
from floodmark.logs import get_logger
from floodmark.probes.kafka import KafkaProbe, Offsets, PartitionBounds, Place, Topic
from floodmark.probes.kafka.client import KafkaOptions
from floodmark.sources.contract import Immutable, Reading, Request, Session, Sight
from floodmark.sources.kafka.decoding import Decoded, message_value
from floodmark.sources.kafka.offsets import OffsetPlanner, flatten, from_json, mark_of, offsets_in
from floodmark.sources.kafka.reading import COLUMNS, KafkaReading, Key, Malformed
from floodmark.sources.values import ValueOption
from floodmark.spark.faults import fault_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


log = get_logger(__name__)
StartOption: TypeAlias = "str | Mapping[int, int] | Mapping[str, Mapping[int, int]]"

GROUP = "group:"
OnGap = Literal["fail", "skip"]
MALFORMED_AT = re.compile(r"(?P<topic>\S+) (?P<partition>\d+) (?P<offset>\d+): ")
LOST = ("KAFKA_DATA_LOSS", "data may have been lost", "OffsetOutOfRange", "UnknownTopicOrPartition")
MOST_WARNINGS = 1_000


class SharedState:
    """What a source shares with its copies that have another setting: the connection, and what it said before."""

    def __init__(self) -> None:
        self.topic_ids: dict[str, str] = {}
        self.warnings: set[str] = set()
        self._probes: list[KafkaProbe] = []

    def probe(self, options: KafkaOptions) -> KafkaProbe:
        """The connection; another one if the options are others."""
        probe = next((each for each in self._probes if each.options == options), None)
        if probe is None:
            probe = KafkaProbe(options)
            self._probes.append(probe)
        return probe


@dataclass(frozen=True)
class Kafka(Immutable):
    """Messages of a topic, or of several, by offset; only those of committed transactions.

    With `value` "bytes" or "text" the columns are key, value, topic, partition, offset, timestamp and headers. With
    JSON, or a function of yours ({"python": "module:decode", "schema": "id long"}), they are the fields of its schema,
    and kafka_key, kafka_topic, kafka_partition, kafka_offset, kafka_timestamp and kafka_headers; a message without a
    value (a tombstone) is a row with null fields. `columns` names those of Kafka's own columns that are wanted (all).
    `key` is "text", and "bytes" where the value is bytes.
    `start` is "earliest", "latest", "group:<id>" or offsets: {partition: offset}, for several topics
    {topic: {partition: offset}}; partitions that it does not name begin at their earliest offset.
    `on_gap` "skip" goes on where retention has passed the mark. `options` reach both clients: see KafkaOptions.

    >>> Kafka("localhost:9092", "orders", value={"format": "json", "schema": "id long"}).on_gap
    'fail'
    """

    bootstrap: str | Sequence[str]
    topic: str | Sequence[str]
    value: ValueOption = "bytes"
    start: StartOption = "earliest"
    on_gap: OnGap = "fail"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    name: str = "kafka"
    key: Key | None = None
    columns: Sequence[str] = COLUMNS
    malformed: Malformed = "fail"
    shared: SharedState = field(default_factory=SharedState, repr=False, compare=False)

    def __post_init__(self) -> None:
        _require_known("on_gap", self.on_gap, get_args(OnGap))
        _require_known("malformed", self.malformed, get_args(Malformed))
        for column in self.columns:
            _require_known("column of Kafka", column, COLUMNS)
        message_value(self.value)
        if not self.topics or len(set(self.topics)) != len(self.topics) or not all(self.topics):
            raise ConfigError(f"topic {self.topic!r} names no topic, or one twice.", hint="name each topic once")
        Start.parse(self.start, self.topics)
        KafkaOptions(self.bootstrap, self.options)

    @property
    def topics(self) -> tuple[str, ...]:
        return (self.topic,) if isinstance(self.topic, str) else tuple(sorted(self.topic))

    @property
    def probe(self) -> KafkaProbe:
        """Answers about the topics, over a connection that is kept."""
        return self.shared.probe(KafkaOptions(self.bootstrap, self.options))

    def fingerprint(self, session: Session) -> str:
        """The topics by name and id, and the cluster: a topic that was made anew is another one."""
        found = self.probe.topics(self.topics)
        self.shared.topic_ids.update({name: topic.id for name, topic in found.items()})
        return f"kafka topic {_with_ids(found.values())} of cluster {self.probe.cluster_id}"

    def gives_same_rows(self) -> bool:
        """Not a compacted topic: what was read of it once may be gone behind a newer record of the same key.

        Where the broker does not tell, rows are kept rather than read again; and so they are where a function of the
        user's decodes them.
        """
        if isinstance(message_value(self.value), Decoded):
            return False
        try:
            kept = self.probe.retention(self.topics)
        except SourceUnreadable as error:
            self._warn("it is not known whether a topic is compacted", ", ".join(self.topics), reason=error.reason)
            return False
        return not any(retention.is_compacted for retention in kept.values())

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        """One question for the bounds of every partition.

        Raises SourceUnreadable if the broker does not answer, SourceGap where retention has passed the mark and
        `on_gap` is fail, SourceRegressed if a partition ends below the mark.
        """
        planner = self._planner(offsets_in(mark, self.topics), request.max_rows)
        self._require_same_ids(planner.topics)
        self._warn_of(planner)
        has_mark = mark is not None and bool(mark.value)
        if has_mark and request.start is None:
            return planner.sight(planner.known_offsets, sets_mark=False, has_mark=True)
        own = "earliest" if request.whole else self.start
        start = Start.parse(own if request.start is None else request.start, self.topics)
        first = start.offsets_in(self.probe, planner.topics, planner.bounds)
        sets_mark = request.start is not None or not start.is_earliest
        return planner.sight({**planner.known_offsets, **first}, sets_mark=sets_mark, has_mark=has_mark)

    def read(self, spark: SparkSession, span: Span) -> Reading:
        """The messages of the span. Raises a DecisionNeeded if they are no longer those that were looked at."""
        start, upto = (from_json(span.detail[end]) for end in ("from", "upto"))
        planner = self._planner({})
        _require_same(span, planner.topics)
        planner.require_whole(start, upto)
        return self._reading(spark, start, upto).reading(self.malformed)

    def without_rows(self, spark: SparkSession) -> Reading:
        """Of no offsets; no broker is asked."""
        return self._reading(spark, {}, {}).reading(self.malformed)

    def read_saved(self, saved: DataFrame) -> Reading:
        """Messages from the dead letters, parsed by the options of today; no broker is asked."""
        return replace(self._reading(saved.sparkSession, {}, {}), saved_messages=saved).reading("dead_letter")

    def explain(self, error: Exception, spark: SparkSession, span: Span) -> FloodmarkError | None:
        """What a failed write met: the malformed message, or offsets that went away while they were read."""
        at = MALFORMED_AT.match(fault_in(error, "malformed") or "")
        if at:
            return self._malformed(spark, (at["topic"], int(at["partition"])), int(at["offset"]))
        if any(sign in str(error) for sign in LOST):
            return self._lost(span)
        return None

    def _planner(self, known: Offsets, max_rows: int | None = None) -> OffsetPlanner:
        topics = tuple(self.probe.topics(self.topics).values())
        bounds = self.probe.bounds(topics)
        return OffsetPlanner(self.name, topics, bounds, known, skips_gaps=self.on_gap == "skip", max_rows=max_rows)

    def _require_same_ids(self, topics: Sequence[Topic]) -> None:
        """A topic that was made anew between two questions of one look must not be read under the old one's mark."""
        for topic in topics:
            if self.shared.topic_ids.get(topic.name, topic.id) != topic.id:
                raise SourceUnreadable(
                    f"kafka topic {topic.name}", reason="it was made anew just now", hint="run again"
                )

    def _warn_of(self, planner: OffsetPlanner) -> None:
        """Once for each thing that an operator should know, not at every tick of a loop."""
        gaps = planner.gaps(planner.known_offsets) if self.on_gap == "skip" else {}
        for (topic, number), (low, high) in gaps.items():
            lost = f"{topic}/{number}: {low} to {high - 1}"
            self._warn("offsets are gone and are skipped", lost, offsets=high - low)
        for partition in planner.missing_partitions:
            self._warn("a partition of the mark is gone; its offset is kept", partition)

    def _warn(self, event: str, what: str, **facts: object) -> None:
        if what not in self.shared.warnings:
            if len(self.shared.warnings) >= MOST_WARNINGS:
                self.shared.warnings.clear()  # a loop that loses offsets again and again must not grow with each time
            self.shared.warnings.add(what)
            log.warning(event, source=self.name, where=what, **facts)

    def _reading(self, spark: SparkSession, start: Offsets, upto: Offsets) -> KafkaReading:
        value = message_value(self.value)
        key = self.key or ("bytes" if value == "bytes" else "text")
        options, columns = self.probe.options.spark(), tuple(self.columns)
        return KafkaReading(spark, options, start, upto, value, key, columns, gathers=True)

    def _malformed(self, spark: SparkSession, place: tuple[str, int], offset: int) -> RecordMalformed:
        """The one message, read again for its text."""
        bad = self._reading(spark, {place: offset}, {place: offset + 1}).dead().collect()
        where = f"{place[0]}/{place[1]}, offset {offset}"
        source = f"kafka topic {place[0]}"
        return RecordMalformed(source, file=where, line=None, text=bad[0].text if bad else "")

    def _lost(self, span: Span) -> FloodmarkError | None:
        """Retention, or somebody who deletes topics, was faster than the batch."""
        try:
            planner = self._planner({})
            _require_same(span, planner.topics)
            planner.require_whole(from_json(span.detail["from"]), from_json(span.detail["upto"]))
        except FloodmarkError as error:
            return error
        return None


@dataclass(frozen=True)
class Start:
    """Where a source without a mark begins: at an end of the topic, where a consumer group stands, or at offsets."""

    word: str | None = None
    group: str | None = None
    offsets: Offsets | None = None

    @classmethod
    def parse(cls, option: StartOption, topics: Sequence[str]) -> Start:
        """From an option, or from the text of `--from`. Raises ConfigError for what is none of the four."""
        if option in ("earliest", "latest"):
            return cls(word=str(option))
        if isinstance(option, str) and option.startswith(GROUP) and len(option) > len(GROUP):
            return cls(group=option.removeprefix(GROUP))
        return cls(offsets=_named_offsets(option, topics))

    def offsets_in(
        self, probe: KafkaProbe, topics: Sequence[Topic], bounds: Mapping[Place, PartitionBounds]
    ) -> Offsets:
        """The first offset of each partition that the start says something about."""
        if self.word is not None:
            return {place: seen.earliest if self.word == "earliest" else seen.stable for place, seen in bounds.items()}
        if self.group is not None:
            return _group_offsets(self.group, probe, topics)
        return self._known_only(bounds)

    @property
    def is_earliest(self) -> bool:
        return self.word == "earliest"

    def _known_only(self, bounds: Mapping[Place, PartitionBounds]) -> Offsets:
        named = self.offsets or {}
        unknown = [f"{topic}/{partition}" for topic, partition in named if (topic, partition) not in bounds]
        if unknown:
            raise ConfigError(f"start names {', '.join(unknown)}, which is not there.", hint="name partitions that are")
        return named


def _named_offsets(option: Any, topics: Sequence[str]) -> Offsets:  # noqa: ANN401 (whatever a user wrote)
    try:
        found = flatten(mark_of("start", topics, {}).parse(option), topics)
    except MarkInvalid as error:
        raise ConfigError(
            f"start {option!r} is not known: {error.reason}.",
            hint="one of: earliest, latest, group:<id>, or offsets as "
            + ('{"0": 100}' if len(topics) == 1 else '{"topic": {"0": 100}}'),
        ) from error
    if not found or any(offset < 0 for offset in found.values()):
        raise ConfigError(f"start {option!r} names no offsets that could be read.", hint="offsets are 0 or higher")
    return found


def _group_offsets(group: str, probe: KafkaProbe, topics: Sequence[Topic]) -> Offsets:
    committed = probe.group_offsets(group, topics)
    if committed:
        return committed
    names = ", ".join(topic.name for topic in topics)
    raise SourceUnreadable(
        f"kafka group {group}",
        reason=f"it has committed no offset of {names}, or they have expired",
        hint="check the group's name, or choose where to begin: earliest, latest or offsets",
    )


def _require_same(span: Span, topics: Sequence[Topic]) -> None:
    ids = span.detail.get("topics")
    for topic in topics:
        if isinstance(ids, dict) and ids.get(topic.name, topic.id) != topic.id:
            raise SourceRewritten(
                f"kafka topic {topic.name}",
                what="it was deleted and made anew since the batch was begun",
                hint="`floodmark run --full-refresh` rebuilds the target from the new topic",
            )


def _with_ids(topics: Iterable[Topic]) -> str:
    return ", ".join(f"{topic.name} (id {topic.id})" for topic in topics)


def _require_known(thing: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise UnknownKind(thing, value, known=known)
