"""A range of Kafka's messages, by offset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from floodmark.errors import RangeAboveMark
from floodmark.hwm import HWM, Json, Span
from floodmark.jobs.ranges import Bounds, empty_range, placed
from floodmark.sources import Kafka
from floodmark.sources.contract import Request, Session, Sight
from floodmark.sources.kafka_mark import mark_of, offsets_in
from floodmark.sources.kafka_span import as_json, from_json, split


@dataclass(frozen=True)
class OffsetRange:
    """Messages by offset. Partitions that `stop` does not name are left out; each ends at the mark at the latest."""

    source: Kafka
    mark: HWM[Any]
    bounds: Bounds
    session: Session = field(repr=False)
    condition: str | None = None

    def __post_init__(self) -> None:
        start, stop, mark = self._asked(self.bounds.start), self._asked(self.bounds.stop), self._offsets(self.mark)
        above = {place for place, at in start.items() if at > mark.get(place, 0)}
        if above:
            raise RangeAboveMark(self.source.name, start=str(self.bounds.start), mark=str(self.mark.show()))
        if start and stop and not any(at < stop.get(place, at) for place, at in start.items()):
            raise empty_range(self.bounds)

    @property
    def is_cut(self) -> bool:
        mark = self._offsets(self.mark)
        return any(at > mark.get(place, 0) for place, at in self._asked(self.bounds.stop).items())

    def piece(self, after: HWM[Any] | None, max_rows: int | None, remembered: Mapping[str, Json]) -> Sight:
        first = self.bounds.start if after is None else None
        sight = self.source.look(after, Request(first, whole=after is None and first is None), self.session)
        return replace(sight, span=self._cut(sight.span, max_rows) if sight.span else None, expected_rows=None)

    def _cut(self, span: Span, max_rows: int | None) -> Span | None:
        begin, found = from_json(span.detail["from"]), from_json(span.detail["upto"])
        ends = {place: min(found[place], self._ends().get(place, 0)) for place in begin}
        lags = {place: max(ends[place] - begin[place], 0) for place in begin}
        shares = lags if max_rows is None else split(lags, max_rows)
        taken = {place: at for place, at in begin.items() if shares[place]}
        if not taken:
            return None
        upto = {place: begin[place] + shares[place] for place in taken}
        detail = {**span.detail, "from": as_json(taken), "upto": as_json(upto)}
        stays = self._offsets(span.upto) | begin
        return Span(span.after, mark_of(span.upto.name, self.source.topics, stays | upto), detail)

    def _ends(self) -> dict[tuple[str, int], int]:
        mark = self._offsets(self.mark)
        stop = self._asked(self.bounds.stop) or mark
        return {place: min(at, mark.get(place, 0)) for place, at in stop.items()}

    def _asked(self, text: str | None) -> dict[tuple[str, int], int]:
        return {} if text in (None, "earliest") else self._offsets(placed(self.mark, str(text), "--from or --to"))

    def _offsets(self, mark: HWM[Any]) -> dict[tuple[str, int], int]:
        return offsets_in(mark, self.source.topics)
