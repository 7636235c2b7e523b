"""A mill without Spark: turns are planned by the product's own code, and read and joined by plain loops."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from floodmark.hwm import HWM, Json, KeyValueIntHWM, Span
from floodmark.mill.brokers import Inlet, Outlet
from floodmark.mill.declaration import Declaration, declare
from floodmark.mill.inputs import TurnDetail, stream_inputs
from floodmark.mill.join_tree import Stream, name_of
from floodmark.mill.pending import PendingInput, StreamMemory
from floodmark.mill.planning import Inputs, Planner, Scans, Turn
from floodmark.mill.scan import KeySurvey, ScanResult, results_of
from floodmark.mill.windows import timed_windows
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

    def offsets(self, span: Span) -> dict[int, tuple[int, int]]:
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
            for number, (first, upto) in self.offsets(span).items()
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
    memories: dict[str, StreamMemory] = field(default_factory=dict)
    calls: list[list[Match]] = field(default_factory=list)
    has_stopped: bool = False

    def __post_init__(self) -> None:
        tree = self.declared.tree
        self.streams = stream_inputs(self.declared, self.broker)
        self.planner = Planner(self.declared.node_of(tree.root), self.streams, tree.window is not None)
        self.windows = timed_windows(self.declared, None)

    def turn(self) -> Turn:
        """One turn; what the process function would be called with is added to `calls`."""
        inputs = {name: self.pending(name) for name in self.streams}
        scans = {name: self.scan(pending) for name, pending in inputs.items()}
        self.take_windows(inputs, scans)
        turn = self.planner.plan(inputs, scans, self.windows)
        if turn.moves:
            spans = turn.spans()
            self.calls += self.joined(spans)
            for name, span in spans.items():
                mark = self.marks.get(name)
                self.marks[name] = mark.update(span.upto.value) if mark else span.upto
            self.memories = {name: StreamMemory.from_json(each.to_json()) for name, each in turn.memories().items()}
            self.has_stopped = turn.stops
        return turn

    def take_windows(self, inputs: Inputs, scans: Scans) -> None:
        """The product's own code decides windows by a function, element by element."""
        windows, own = self.windows, inputs[self.planner.root.name]
        if windows is None:
            return
        windows.begin_at({partition: first for partition, (first, _) in own.offsets.items()})
        below = self.planner.level_to_ask(inputs, scans)
        keyed = [(self.key_of(own, row), row) for row in self.source(own.stream.name).rows(own.unread)]
        rows = [row for key, row in sorted(keyed, key=lambda each: (each[0], each[1][:2])) if (0, key) < below]
        windows.take(
            (number, at, json.dumps(vars(e)))
            for number, at, e in rows
            if e is not END and at >= windows.taken_upto[number]
        )

    def key_of(self, pending: PendingInput, row: tuple[int, int, Any]) -> Any:  # noqa: ANN401 (a key of whatever kind)
        """What orders an element among those of other partitions; an end comes last."""
        return pending.stream.keys[0].of(vars(row[2])) if row[2] is not END else float("inf")

    def pending(self, name: str) -> PendingInput:
        stream = self.streams[name]
        sight = stream.look(self.marks.get(name), Request(), _no_session)
        return PendingInput(stream, sight.span, self.memories.get(name, StreamMemory())).reaching_what_was_seen()

    def scan(self, pending: PendingInput) -> dict[int, ScanResult]:
        """What the product's own survey finds in the elements that have arrived."""
        stream = pending.stream
        ordered = not (stream.name == self.planner.root.name and self.planner.is_in_runs(pending))
        survey = KeySurvey(tuple(key.spark_type for key in stream.keys), ordered=ordered)
        for partition, offset, element in self.source(stream.name).rows(pending.unread):
            keys = tuple(None if element is END else key.of(vars(element)) for key in stream.keys)
            survey.take(partition, offset, element is END, None, keys)
        survey.close()
        return results_of(stream, survey.notes, ordered=ordered)

    def source(self, name: str) -> ListStream:
        return next(source for source in self.broker.streams.values() if source.name == name)

    def joined(self, spans: Mapping[str, Span]) -> list[list[Match]]:
        streams: dict[Stream, list[list[Any]]] = {}
        for stream in self.declared.tree.nodes:
            source = self.broker.streams[stream]
            rows = source.rows(spans[name_of(stream)])
            kept = [row for row in rows if self.is_within(stream, row, spans[name_of(stream)])]
            numbers = range(len(source.partitions))
            streams[stream] = [[element for partition, _, element in kept if partition == number] for number in numbers]
        return calls(self.declared.tree, streams)

    def is_within(self, stream: Stream, row: tuple[int, int, Any], span: Span) -> bool:
        own, turn = self.streams[name_of(stream)], TurnDetail.of(span)
        if stream != self.declared.tree.root or not own.keys or turn.is_in_runs:
            return True
        partition, offset, element = row
        if turn.windows is not None:
            return any(
                n == partition and first <= offset < upto for window in turn.windows for n, first, upto in window
            )
        after, until = turn.levels
        place = (0, own.keys[0].of(vars(element)), partition, offset)
        return after <= place < until


def offline_mill(process: Any, partitions: Mapping[Stream, Sequence[Sequence[Any]]], **declared: Any) -> OfflineMill:  # noqa: ANN401
    """A mill over these lists; nothing has arrived yet."""
    declaration = declare(process, **declared)
    return OfflineMill(declaration, ListBroker({stream: ListStream(stream, own) for stream, own in partitions.items()}))


def _no_session() -> Any:  # noqa: ANN401
    raise AssertionError("planning needs no Spark")
