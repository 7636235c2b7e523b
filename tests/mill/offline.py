"""A mill without Spark: turns are planned by the product's own code, and read and joined by plain loops."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from floodmark.hwm import HWM, Json, KeyValueIntHWM, Span
from floodmark.mill.brokers import Inlet, Outlet
from floodmark.mill.declaration import Declaration, declare
from floodmark.mill.horizon import Memory
from floodmark.mill.inputs import feeds_of, is_in_runs, levels_in, node_of, windows_in
from floodmark.mill.join_tree import Stream, name_of
from floodmark.mill.pending import Found, Stretch, found_in
from floodmark.mill.planning import Planner, Turn, asked_below, plan_timed
from floodmark.mill.survey import Survey
from floodmark.mill.timed import timed_windows
from floodmark.sources.contract import Reading, Request, Session, Sight
from tests.mill.nested_loop import Match, calls

END = object()
"""Stands in a partition where its end message does."""


@dataclass
class ListStream:
    """A topic that is a list of partitions, each a list of elements, of which the first so many have arrived."""

    stream: Stream
    partitions: Sequence[Sequence[Any]]
    arrived: dict[int, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return name_of(self.stream)

    def fingerprint(self, session: Session) -> str:
        return f"list {self.name}"

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        known = dict(mark.value) if mark else {}
        starts = {number: known.get(number, 0) for number in range(len(self.partitions))}
        ends = {number: self.arrived.get(number, 0) for number in starts}
        bounds = {"from": starts, "upto": ends}
        detail: dict[str, Json] = {end: {str(n): at for n, at in own.items()} for end, own in bounds.items()}
        return Sight(Span(mark, KeyValueIntHWM(self.name, ends), detail))

    def read(self, spark: object, span: Span) -> Reading:
        raise AssertionError("nothing here reads with Spark")

    def lanes(self, span: Span) -> dict[int, tuple[int, int]]:
        stored: Any = span.detail
        return {int(number): (at, stored["upto"][number]) for number, at in stored["from"].items()}

    def cut(self, span: Span, *, reads: Mapping[int, int], passes: Mapping[int, int]) -> Span:
        ends: dict[str, Json] = {str(number): at for number, at in reads.items()}
        return replace(span, upto=KeyValueIntHWM(self.name, dict(passes)), detail={**span.detail, "upto": ends})

    def rows(self, span: Span | None) -> list[tuple[int, int, Any]]:
        """(partition, offset, element) of what the span reads."""
        if span is None:
            return []
        return [
            (number, offset, self.partitions[number][offset])
            for number, (first, upto) in self.lanes(span).items()
            for offset in range(first, upto)
        ]


@dataclass(frozen=True)
class ListBroker:
    """Streams in memory."""

    streams: Mapping[Stream, ListStream]

    def inlet(self, stream: Stream) -> Inlet:
        return Inlet(self.streams[stream])

    def outlet(self, stream: Stream) -> Outlet:
        raise AssertionError("output is what the test collects")


@dataclass
class OfflineMill:
    """Plans a turn, joins what it reads, and remembers: the record is a dict of marks and memories."""

    declared: Declaration
    broker: ListBroker
    marks: dict[str, HWM[Any]] = field(default_factory=dict)
    memories: dict[str, Memory] = field(default_factory=dict)
    given: list[list[Match]] = field(default_factory=list)
    stopped: bool = False

    def __post_init__(self) -> None:
        tree = self.declared.tree
        self.feeds = feeds_of(self.declared, self.broker)
        self.planner = Planner(node_of(self.declared, tree.root), self.feeds, tree.window is not None)
        self.windows = timed_windows(self.declared, None)

    def turn(self) -> Turn:
        """One turn; what the process function would be called with is added to `given`."""
        stretches = {name: self.stretch(name) for name in self.feeds}
        found = {name: self.scouted(stretch) for name, stretch in stretches.items()}
        turn = self.planner.plan(stretches, found) if self.windows is None else self.timed(stretches, found)
        if turn.moves:
            spans = turn.spans()
            self.given += self.joined(spans)
            for name, span in spans.items():
                mark = self.marks.get(name)
                self.marks[name] = mark.update(span.upto.value) if mark else span.upto
            self.memories = {name: Memory.from_json(each.to_json()) for name, each in turn.memories().items()}
            self.stopped = turn.stops
        return turn

    def timed(self, stretches: Mapping[str, Stretch], found: Mapping[str, Mapping[int, Found]]) -> Turn:
        """The turn whose windows the product's own code decides, element by element."""
        windows, own = self.windows, stretches[self.planner.root.name]
        assert windows is not None
        windows.begin_at({lane: first for lane, (first, _) in own.ranges.items()})
        below = asked_below(self.planner, stretches, found)
        keyed = [(self.key_of(own, row), row) for row in self.source(own.feed.name).rows(own.unread)]
        rows = [row for key, row in sorted(keyed, key=lambda each: (each[0], each[1][:2])) if (0, key) < below]
        windows.take(
            (lane, at, json.dumps(vars(e))) for lane, at, e in rows if e is not END and at >= windows.seen[lane]
        )
        return plan_timed(self.planner, stretches, found, windows)

    def key_of(self, stretch: Stretch, row: tuple[int, int, Any]) -> Any:  # noqa: ANN401 (a key of whatever kind)
        """What orders an element among those of other partitions; an end comes last."""
        return stretch.feed.keys[0].of(vars(row[2])) if row[2] is not END else float("inf")

    def stretch(self, name: str) -> Stretch:
        feed = self.feeds[name]
        sight = feed.look(self.marks.get(name), Request(), _no_session)
        return Stretch(feed, sight.span, self.memories.get(name, Memory()))

    def scouted(self, stretch: Stretch) -> dict[int, Found]:
        """What the product's own survey finds in the elements that have arrived."""
        feed = stretch.feed
        ordered = not (feed.name == self.planner.root.name and self.planner.is_in_runs(stretch))
        survey = Survey(tuple(key.spark_type for key in feed.keys), ordered=ordered)
        for lane, offset, element in self.source(feed.name).rows(stretch.unread):
            keys = tuple(None if element is END else key.of(vars(element)) for key in feed.keys)
            survey.take(lane, offset, element is END, None, keys)
        survey.close()
        return found_in(feed, survey.out, ordered=ordered)

    def source(self, name: str) -> ListStream:
        return next(source for source in self.broker.streams.values() if source.name == name)

    def joined(self, spans: Mapping[str, Span]) -> list[list[Match]]:
        streams: dict[Stream, list[list[Any]]] = {}
        for stream in self.declared.tree.nodes:
            source = self.broker.streams[stream]
            rows = source.rows(spans[name_of(stream)])
            kept = [row for row in rows if self.is_within(stream, row, spans[name_of(stream)])]
            numbers = range(len(source.partitions))
            streams[stream] = [[element for lane, _, element in kept if lane == number] for number in numbers]
        return calls(self.declared.tree, streams)

    def is_within(self, stream: Stream, row: tuple[int, int, Any], span: Span) -> bool:
        feed = self.feeds[name_of(stream)]
        if stream != self.declared.tree.root or not feed.keys or is_in_runs(span):
            return True
        lane, offset, element = row
        windows = windows_in(span)
        if windows is not None:
            return any(n == lane and first <= offset < upto for window in windows for n, first, upto in window)
        after, until = levels_in(span)
        place = (0, feed.keys[0].of(vars(element)), lane, offset)
        return after <= place < until


def offline_mill(process: Any, partitions: Mapping[Stream, Sequence[Sequence[Any]]], **declared: Any) -> OfflineMill:  # noqa: ANN401
    """A mill over these lists; nothing has arrived yet."""
    declaration = declare(process, **declared)
    return OfflineMill(declaration, ListBroker({stream: ListStream(stream, own) for stream, own in partitions.items()}))


def _no_session() -> Any:  # noqa: ANN401
    raise AssertionError("planning needs no Spark")
