"""Offsets of a Kafka source: planning what one batch reads, and how they stand in marks and in stored spans.

A batch is planned from the bounds of the partitions alone, before any record is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from floodmark.errors import MarkKindMismatch, SourceGap, SourceRegressed
from floodmark.hwm import HWM, Json, KeyValueIntHWM, Span, TopicOffsetsHWM
from floodmark.probes.kafka import Offsets, PartitionBounds, Place, Topic
from floodmark.sources.contract import Sight


@dataclass(frozen=True)
class OffsetPlanner:
    """One look at the topics of a source; `known_offsets` is what its mark holds."""

    name: str
    topics: Sequence[Topic]
    bounds: Mapping[Place, PartitionBounds]
    known_offsets: Offsets
    skips_gaps: bool = False
    max_rows: int | None = None

    def sight(self, wanted: Offsets, *, sets_mark: bool, has_mark: bool) -> Sight:
        """The next span, where partitions that nobody asked about begin at their earliest offset.

        `sets_mark`: somebody chose where to begin, so the mark is put there even if there is no record to read.
        """
        position = {place: wanted.get(place, seen.earliest) for place, seen in self.bounds.items()}
        self._require_not_beyond(position)
        start = self._above_gaps(position)
        upto = self._upto(start)
        moves = any(upto[place] > min(start[place], self.known_offsets.get(place, start[place])) for place in upto)
        span = self._span(start, upto, has_mark=has_mark or sets_mark) if moves or sets_mark else None
        held = {place: seen.end - seen.stable for place, seen in self.bounds.items() if seen.end > seen.stable}
        return Sight(
            span,
            held_back=sum(held.values()),
            held_reason=_held_reason(held),
            expected_rows=self._expected(start, upto),
        )

    @property
    def missing_partitions(self) -> list[str]:
        """Partitions of the mark that the topics no longer list."""
        return [
            f"{topic}/{partition}" for topic, partition in self.known_offsets if (topic, partition) not in self.bounds
        ]

    def gaps(self, position: Offsets) -> dict[Place, tuple[int, int]]:
        """What retention took away: from and to, for each partition where the oldest record lies above the position."""
        return {
            place: (position[place], seen.earliest)
            for place, seen in self.bounds.items()
            if place in position and seen.earliest > position[place]
        }

    def require_whole(self, start: Offsets, upto: Offsets) -> None:
        """For a span that was begun earlier: every offset of it has to be there still."""
        gaps = self.gaps(start)
        if gaps:
            raise self._gap(gaps)
        self._require_not_beyond(upto)

    def _require_not_beyond(self, position: Offsets) -> None:
        beyond = {place: at for place, at in position.items() if place in self.bounds and at > self.bounds[place].end}
        if beyond:
            ends = {place: self.bounds[place].end for place in beyond}
            raise SourceRegressed(self._where, mark=self._text(beyond), highest=self._text(ends))

    def _above_gaps(self, position: Offsets) -> dict[Place, int]:
        gaps = self.gaps(position)
        if gaps and not self.skips_gaps:
            raise self._gap(gaps)
        return {place: max(at, self.bounds[place].earliest) for place, at in position.items()}

    def _gap(self, gaps: Mapping[Place, tuple[int, int]]) -> SourceGap:
        mark, oldest = ({place: gap[end] for place, gap in gaps.items()} for end in (0, 1))
        lost = sum(high - low for low, high in gaps.values())
        return SourceGap(
            self._where,
            mark=self._text(mark),
            oldest=self._text(oldest),
            hint=f"`floodmark run --from '{self._text(oldest)}'` or `on_gap: skip` accepts the loss of up to "
            f"{lost} records, `--full-refresh` rebuilds the target from what is left",
        )

    def _upto(self, start: Offsets) -> dict[Place, int]:
        """The last stable offsets; under `max_rows` each partition's share of it is as large as its share of the lag.

        A transaction that is open ends what can be read; so does a start above it, until it is closed.
        """
        lags = {place: max(self.bounds[place].stable - at, 0) for place, at in start.items()}
        shares = lags if self.max_rows is None else split(lags, self.max_rows)
        return {place: at + shares[place] for place, at in start.items()}

    def _span(self, start: Offsets, upto: Offsets, *, has_mark: bool) -> Span:
        names = [topic.name for topic in self.topics]
        taken = [place for place in start if start[place] < upto[place]]
        detail: dict[str, Json] = {
            "topics": {topic.name: topic.id for topic in self.topics},
            "from": as_json({place: start[place] for place in taken}),
            "upto": as_json({place: upto[place] for place in taken}),
        }
        after = mark_of(self.name, names, start) if has_mark else None
        return Span(after, mark_of(self.name, names, upto), detail)

    def _expected(self, start: Offsets, upto: Offsets) -> int | None:
        """Offsets are no count: transactions and compaction leave holes. Only an empty range is sure."""
        return 0 if start == upto else None

    @property
    def _where(self) -> str:
        return f"kafka topic {', '.join(topic.name for topic in self.topics)}"

    def _text(self, offsets: Offsets) -> str:
        return offsets_text(offsets, [topic.name for topic in self.topics])


def split(lags: Offsets, rows: int) -> dict[Place, int]:
    """So many rows over the partitions, in proportion to their lags and never more than those."""
    total = sum(lags.values())
    if total <= rows:
        return dict(lags)
    shares = {place: lag * rows // total for place, lag in lags.items()}
    most_cut = sorted(lags, key=lambda place: (-(lags[place] * rows % total), place))
    for place in most_cut[: rows - sum(shares.values())]:
        shares[place] += 1
    return shares


def as_json(offsets: Offsets) -> Json:
    """Offsets for a stored span: JSON's keys are text."""
    nested = by_topic(offsets)
    return {topic: {str(partition): at for partition, at in parts.items()} for topic, parts in nested.items()}


def from_json(stored: Json) -> dict[Place, int]:
    """Offsets out of a stored span."""
    topics = stored if isinstance(stored, dict) else {}
    nested = {topic: parts for topic, parts in topics.items() if isinstance(parts, dict)}
    return {(topic, int(part)): int(str(at)) for topic, parts in nested.items() for part, at in parts.items()}


def _held_reason(held: Mapping[Place, int]) -> str | None:
    if not held:
        return None
    (topic, partition), offsets = max(held.items(), key=lambda entry: entry[1])
    others = f" and of {len(held) - 1} more partitions" if len(held) > 1 else ""
    return f"an open transaction holds back {offsets} offsets of {topic}/{partition}{others}"


def mark_of(name: str, topics: Sequence[str], offsets: Offsets) -> HWM[Any]:
    """The mark of a source: a map of the next offsets for one topic, a map of maps for several."""
    nested = by_topic(offsets)
    if len(topics) == 1:
        return KeyValueIntHWM(name, nested.get(topics[0], {}), topic=topics[0])
    return TopicOffsetsHWM(name, nested, topics=",".join(topics))


def offsets_in(mark: HWM[Any] | None, topics: Sequence[str]) -> dict[tuple[str, int], int]:
    """The next offsets that a mark holds. Raises MarkKindMismatch if it is not a mark of such a source."""
    if mark is None:
        return {}
    expected = mark_of(mark.name, topics, {})
    if type(mark) is not type(expected):
        raise MarkKindMismatch(mark, expected, reason="a Kafka source keeps the next offsets of its partitions")
    return flatten(mark.value, topics)


def by_topic(offsets: Offsets) -> dict[str, dict[int, int]]:
    """Offsets as `{topic: {partition: offset}}`."""
    topics = sorted({topic for topic, _ in offsets})
    return {topic: {part: at for (name, part), at in sorted(offsets.items()) if name == topic} for topic in topics}


def flatten(offsets: Mapping[Any, Any], topics: Sequence[str]) -> dict[tuple[str, int], int]:
    """The other way round; a map without topics belongs to the only one."""
    nested = {topics[0]: offsets} if len(topics) == 1 else offsets
    return {(topic, int(part)): at for topic, parts in nested.items() for part, at in parts.items()}


def offsets_text(offsets: Offsets, topics: Iterable[str]) -> str:
    """Offsets as people read them, and as `--from` takes them back."""
    names, nested = list(topics), by_topic(offsets)
    return json.dumps(nested.get(names[0], {}) if len(names) == 1 else nested)
