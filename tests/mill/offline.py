"""A mill without Spark: its step looks, plans and remembers as ever; what a turn reads is joined by plain loops."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from floodmark.hwm import HWM, Json, KeyValueIntHWM, Span
from floodmark.mill.brokers import Inlet, Message, Outlet
from floodmark.mill.declaration import Declaration, declare
from floodmark.mill.horizon import Level
from floodmark.mill.inputs import StreamInput, TurnDetail, as_looked_at, stream_inputs
from floodmark.mill.join_tree import Stream, name_of
from floodmark.mill.pending import PendingInput, memory_of
from floodmark.mill.planning import Planner
from floodmark.mill.progress import RunState
from floodmark.mill.scan import KeySurvey, ScanResult, results_of
from floodmark.mill.turn import MillStep, MillWork, ReturnedEnd, cut_at
from floodmark.mill.windows import timed_windows
from floodmark.sources.contract import Reading, Request, Session, Sight
from floodmark.sources.kafka.offsets import split
from floodmark.step.commit import record_after
from floodmark.step.engine import OpenBatch
from floodmark.stores.extras import IntentExtras
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import Intent, JobRecord
from tests.mill.nested_loop import Match, calls

END = object()
"""Stands in a partition where its end message does."""
HOLE = object()
"""Stands at an offset that a transaction has used up."""


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
        """Under `max_rows` the partitions share as those of a topic do."""
        known = dict(mark.value) if mark else {}
        starts = {number: known.get(number, 0) for number in range(len(self.partitions))}
        lags = {(self.name, number): self.arrived.get(number, 0) - first for number, first in starts.items()}
        shares = lags if request.max_rows is None else split(lags, request.max_rows)
        ends = {number: first + shares[self.name, number] for number, first in starts.items()}
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
            if self.partitions[number][offset] is not HOLE
        ]


@dataclass(frozen=True)
class ListBroker:
    """Streams in memory."""

    streams: Mapping[Stream, ListStream]

    def inlet(self, stream: Stream) -> Inlet:
        return Inlet(self.streams[stream])

    def outlet(self, stream: Stream) -> Outlet:
        raise AssertionError("output is what the test collects")


@dataclass(frozen=True)
class OfflineStep(MillStep):
    """The step of a mill over lists: where it would ask Spark for elements, it goes through them."""

    def scan_one(self, pending: PendingInput, span: Span, spark: object) -> dict[int, ScanResult]:
        """What the product's own survey finds in the elements that have arrived."""
        stream = pending.stream
        ordered = not (stream.name == self.planner.root.name and self.planner.is_in_runs(pending))
        survey = KeySurvey(tuple(key.spark_type for key in stream.keys), ordered=ordered)
        for partition, offset, element in rows_of(stream, span):
            keys = tuple(None if element is END else key.of(vars(element)) for key in stream.keys)
            survey.take(partition, offset, element is END, None, keys)
        survey.close()
        return results_of(stream, survey.notes, ordered=ordered)

    def elements_to_ask_about(
        self, own: PendingInput, results: Mapping[int, ScanResult], below: Level
    ) -> Iterator[Message]:
        asked = self.run_state.windows.taken_upto if self.run_state.windows else {}
        keyed = [(key_of(own.stream, row), row) for row in rows_of(own.stream, own.unread)]
        for key, (number, at, element) in sorted(keyed, key=lambda each: (each[0], each[1][:2])):
            if element is not END and (0, key) < below and at >= asked.get(number, 0):
                yield number, at, json.dumps(vars(element))


def rows_of(stream: StreamInput, span: Span | None) -> list[tuple[int, int, Any]]:
    """(partition, offset, element) of a stream."""
    source: Any = stream.inlet.source
    return list(source.rows(span))


def key_of(stream: StreamInput, row: tuple[int, int, Any]) -> Any:  # noqa: ANN401 (a key of whatever kind)
    """What orders an element among those of other partitions; an end comes last, and without keys arrival counts."""
    if not stream.keys:
        return row[0]
    return stream.keys[0].of(vars(row[2])) if row[2] is not END else float("inf")


@dataclass
class OfflineMill:
    """Turns of a step over lists, and the record as it would be stored.

    `enders` are the names of elements at which the function returns the end of the stream, each of them once.
    """

    declared: Declaration
    broker: ListBroker
    turn_elements: int | None = None
    enders: set[str] = field(default_factory=set)
    record: JobRecord = field(default_factory=lambda: JobRecord("mill"))
    calls: list[list[Match]] = field(default_factory=list)
    ends: int = 0
    """How often the mill came to its end; what follows is the next run's."""

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Another process: only the record outlives the one before."""
        tree, streams = self.declared.tree, stream_inputs(self.declared, self.broker)
        planner = Planner(self.declared.node_of(tree.root), streams, tree.window is not None)
        inlets = {name: stream.inlet for name, stream in streams.items()}
        state = RunState(inlets, self.turn_elements, windows=timed_windows(self.declared, None))
        work = MillWork(name="mill", sources=tuple(streams.values()), sinks=())
        self.step = OfflineStep(MemoryMarkStore(), _no_spark, work, planner=planner, run_state=state)

    @property
    def planner(self) -> Planner:
        return self.step.planner

    def intend(self) -> Intent | None:
        """The next turn as it is made durable; None if there is nothing to do. A kill here leaves all as it was."""
        outlook = self.step.look(self.record)
        if outlook.is_empty:
            return None
        extras = IntentExtras(sources=outlook.sources, remember=outlook.extras_after(self.record.extras))
        began = datetime(2026, 1, 1, tzinfo=timezone.utc)
        return Intent(self.record.number + 1, "span", outlook.spans, began, "attempt", None, {}, extras)

    def turn(self) -> bool:
        """One turn, if there is something to do; what the process function is called with is added to `calls`."""
        intent = self.intend()
        if intent is None:
            return False
        found = self.joined(intent.spans)
        end = next((n for n, call in enumerate(found, start=1) if self.ends_at(call)), None)
        if end is not None:
            found = found[:end]
            intent = cut_at(self.returned_end(found[-1], intent), intent, self.planner)
            self.enders -= {each.element.name for each in found[-1]}
        self.calls += found
        after = record_after(OpenBatch(self.record, intent, None))
        self.record = JobRecord.deserialize(json.loads(json.dumps(after.serialize())))
        self.ends += memory_of(self.record, self.planner.root.name).has_stopped
        return True

    def ends_at(self, call: Sequence[Match]) -> bool:
        """Whether the function returns the end when it is given these."""
        return any(each.element.name in self.enders for each in call)

    def returned_end(self, call: Sequence[Match], intent: Intent) -> ReturnedEnd:
        """Where the output of a call stands."""
        stream, turn = self.planner.streams[self.planner.root.name], TurnDetail.of(self.span_of_root(intent))
        rows = rows_of(stream, as_looked_at(self.span_of_root(intent)))
        (partition, offset), (_, last) = (place_of(rows, each.element) for each in (call[0], call[-1]))
        key: Any = stream.keys[0].of(vars(call[0].element)) if stream.keys else None
        if turn.windows is not None:
            numbers = [n for n, window in enumerate(turn.windows) if holds(window, partition, offset)]
            key = numbers[0]
        return ReturnedEnd({"last": 0, "k0": key, "partition": partition, "offset": offset}, last + 1)

    def span_of_root(self, intent: Intent) -> Span:
        return intent.spans[self.planner.root.name]

    def joined(self, spans: Mapping[str, Span]) -> list[list[Match]]:
        """What the function is called with in a turn."""
        streams: dict[Stream, list[list[Any]]] = {}
        for stream in self.declared.tree.nodes:
            source, span = self.broker.streams[stream], spans.get(name_of(stream))
            kept = [row for row in source.rows(span) if span is not None and self.is_within(stream, row, span)]
            numbers = range(len(source.partitions))
            streams[stream] = [[element for partition, _, element in kept if partition == number] for number in numbers]
        return calls(self.declared.tree, streams)

    def is_within(self, stream: Stream, row: tuple[int, int, Any], span: Span) -> bool:
        own, turn = self.planner.streams[name_of(stream)], TurnDetail.of(span)
        partition, offset, element = row
        if element is END:
            return False
        if turn.windows is not None:
            return any(holds(window, partition, offset) for window in turn.windows)
        if stream != self.declared.tree.root or not own.keys or turn.is_in_runs:
            return True
        after, until = turn.levels
        place = (0, own.keys[0].of(vars(element)), partition, offset)
        return after <= place < until


def holds(window: Iterable[Sequence[int]], partition: int, offset: int) -> bool:
    """Whether an element belongs to a window, as an intent holds it."""
    return any(number == partition and first <= offset < upto for number, first, upto in window)


def place_of(rows: Iterable[tuple[int, int, Any]], element: object) -> tuple[int, int]:
    """The partition and offset of an element."""
    return next((number, offset) for number, offset, each in rows if each is element)


def offline_mill(process: Any, partitions: Mapping[Stream, Sequence[Sequence[Any]]], **declared: Any) -> OfflineMill:  # noqa: ANN401
    """A mill over these lists; nothing has arrived yet."""
    declaration = declare(process, **declared)
    return OfflineMill(declaration, ListBroker({stream: ListStream(stream, own) for stream, own in partitions.items()}))


def _no_spark() -> Any:  # noqa: ANN401
    """No step of these asks it for anything."""
    return None
