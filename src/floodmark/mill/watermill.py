"""The mill itself: made of a broker and a process function, it turns until its streams end."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, ClassVar

from floodmark.errors import (
    BatchClosed,
    FloodmarkError,
    LeaseHeld,
    MarkMissing,
    SinkAhead,
    SinkBehind,
    SinkDisagrees,
    SinkShared,
    SinkUndecided,
    SourceChanged,
    SourceGap,
    SourceRegressed,
    SourceRewritten,
    SpoolLost,
    StoreError,
)
from floodmark.hwm import Json
from floodmark.hwm.parsing import seconds_in, wait_seconds
from floodmark.logs import get_logger
from floodmark.mill.brokers import Followable, MessageBroker, Outlet
from floodmark.mill.codec import Deserializer, Serializer
from floodmark.mill.declaration import Declaration, declare
from floodmark.mill.injection import InjectedType, Provider
from floodmark.mill.inputs import TurnDetail, stream_inputs
from floodmark.mill.join_tree import JoinTree, Stream, Window, name_of
from floodmark.mill.pending import memory_of
from floodmark.mill.planning import Planner
from floodmark.mill.process import ProcessTransform
from floodmark.mill.progress import Progress, RunState, display_key
from floodmark.mill.signature import Process
from floodmark.mill.turn import MillStep, MillWork
from floodmark.mill.windows import ArrivalFollower, timed_windows
from floodmark.patience import doubling_pause
from floodmark.spark.session import session_of
from floodmark.step.looking import Outlook
from floodmark.step.run import reset_marks
from floodmark.stores.contract import MarkStore
from floodmark.stores.opening import spool_folder
from floodmark.stores.project import open_default
from floodmark.stores.record import Receipt, new_run_id
from floodmark.stores.run_logs import begun_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.stores.record import JobRecord


log = get_logger(__name__)
LOOK_NOTED_SECONDS = 30.0
# What to do next where a mill needs a decision: the command line of jobs does not know it.
START_AGAIN = "`mill.reset()` to read every stream from its beginning (its output comes once more)"
HINTS: Mapping[type[FloodmarkError], str] = {
    MarkMissing: f"open the store that has its marks, give the mill another output, or {START_AGAIN}",
    SinkAhead: f"bring back the newer store, or {START_AGAIN}",
    SinkBehind: f"bring back the output as it was, or {START_AGAIN}",
    BatchClosed: f"look into the output, then {START_AGAIN}",
    SinkDisagrees: f"find out which store is the right one, or {START_AGAIN}",
    SinkShared: f"give one of the two mills another name or namespace, or {START_AGAIN}",
    SinkUndecided: f"look into the output, then {START_AGAIN}",
    SpoolLost: f"bring the folder back, run where it is, or {START_AGAIN}",
    SourceChanged: f"give the mill another name, or {START_AGAIN}",
    SourceGap: f"keep the stream for longer than the mill may rest; now {START_AGAIN}",
    SourceRegressed: f"bring the stream back as it was, or {START_AGAIN}",
    SourceRewritten: f"bring the stream back as it was and run again, or {START_AGAIN}",
}
TURN_ELEMENTS = 1 << 20
SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 1.0


@dataclass(frozen=True)
class TurnPlan:
    """What the next turn would do: by stream the elements that are read, and the mark before and after; the horizon.

    `held_reason`: whom it waits for. `changes`: streams that came or went, keys that are others now; where a decision
    is needed, the turn would stop with it. `open_turn`: its number, if a turn was begun that is finished first.

    >>> TurnPlan(elements={"Order": 120}).has_work, TurnPlan().has_work
    (True, False)
    """

    marks: Mapping[str, tuple[Json, Json]] = field(default_factory=dict)
    elements: Mapping[str, int] = field(default_factory=dict)
    horizon: object = None
    held_reason: str | None = None
    changes: tuple[str, ...] = ()
    open_turn: int | None = None

    @property
    def has_work(self) -> bool:
        return bool(self.elements) or self.open_turn is not None


class WaterMill:
    """Reads the streams of a join tree, joins what is final, and gives every master element to a function once.

    Positions are saved under `name`, else the broker's `consumer_group_name`, else the function's qualified name, in
    `store`; without one, in that of the project whose folder this is, else in ./floodmark.db. `turn_elements` bounds
    what one turn reads of a stream. `idle_after` (milliseconds, or text) leaves partitions without new elements out of
    the horizon after that time. `spool` is the folder where turns are frozen, beside the marks if it is not given; the
    executors of a cluster have to see it.

    >>> broker = fm.mill.JsonFileMessageBroker({Order: "orders.json", Shipment: "shipments.json"})
    >>> mill = WaterMill(broker, ship, Order, name="ship")  # then `mill.run()`
    """

    step_type: ClassVar[type[MillStep]] = MillStep

    def __init__(
        self,
        broker: MessageBroker,
        process_func: Process,
        stream_cls: Stream | Window | None = None,
        join_tree: JoinTree | None = None,
        serializers: Mapping[Stream, Serializer] | None = None,
        deserializers: Mapping[Stream, Deserializer] | None = None,
        injector: Mapping[InjectedType, Provider] | None = None,
        output_broker: MessageBroker | None = None,
        name: str | None = None,
        spark: SparkSession | Callable[[], SparkSession] | None = None,
        store: MarkStore | None = None,
        *,
        turn_elements: int | None = TURN_ELEMENTS,
        idle_after: float | str | None = None,
        spool: str | None = None,
    ) -> None:
        self.declared = declare(
            process_func,
            stream_cls=stream_cls,
            join_tree=join_tree,
            serializers=serializers,
            deserializers=deserializers,
            injector=injector,
        )
        self.name = name or mill_name(broker, self.declared)
        self._session = session_of(spark)
        self._store, self._spool, self._stop = store, spool, threading.Event()
        self._looked_at = -LOOK_NOTED_SECONDS
        self._broker = broker
        self._streams = stream_inputs(self.declared, broker)
        self._outlet = outlet_of(self.declared, output_broker or broker)
        self._transform().output()  # a class that its sink's columns cannot hold is refused here
        node = self.declared.node_of(self.declared.tree.root)
        self._planner = Planner(node, self._streams, self.declared.tree.window is not None)
        inlets = {name: stream.inlet for name, stream in self._streams.items()}
        windows = timed_windows(self.declared, inlets[node.name].poll_timeout_seconds)
        self._run_state = RunState(inlets, turn_elements, wait_seconds(idle_after, field="idle_after"), windows)

    def use(
        self,
        *,
        name: str | None = None,
        spark: Callable[[], SparkSession] | None = None,
        store: MarkStore | None = None,
        spool: str | None = None,
    ) -> None:
        """Go on under this name, with this session, store and spool: what a project has goes over what the mill has.

        Called between turns.
        """
        self.name, self._store, self._spool = name or self.name, store or self._store, spool or self._spool
        self._session = spark or self._session

    def turn(self) -> Receipt:
        """Do what can be done now: finish an open turn, else join what has become final. Raises FloodmarkError."""
        step = self._step()
        try:
            receipt = step.run()
        except FloodmarkError as error:
            self._note_failure(error)
            raise
        if receipt.status == "done":
            self._follow_up(step, receipt)
        elif time.monotonic() - self._looked_at > LOOK_NOTED_SECONDS:
            self._looked_at = time.monotonic()
            step.store.looked(self.name, receipt.started)  # so that health can tell an idle mill from a dead one
        return receipt

    def plan(self) -> TurnPlan:
        """What the next turn would do; nothing is written, no mark moves."""
        return preview(self._step())

    def run(self, *, every: str | float | None = None) -> Progress:
        """Turn until the streams have ended, or for ever if `every` says how often; `stop` ends it between turns."""
        pause = seconds_in(every, field="every") if every is not None else None
        self._run_state.begin()
        with self._following():
            self._turn_until_over(pause)
        self._stop.clear()
        return self.progress()

    def _turn_until_over(self, pause: float | None) -> None:
        idle = 0
        while not self._stop.is_set():
            receipt = self.turn()
            has_ended = self._run_state.is_over or (receipt.status == "done" and self.has_stopped())
            if pause is None and has_ended:
                self._publish()
                break
            idle = 0 if receipt.status == "done" else idle + 1
            self._stop.wait(pause if pause is not None else pause_seconds(idle))

    def _following(self) -> AbstractContextManager[None]:
        """Windows that a function decides are cut as their elements arrive; of a join, when they are final."""
        windows, source = self._run_state.windows, self._streams[self._planner.root.name].inlet.source
        if windows is None or self._planner.root.branches or not isinstance(source, Followable):
            return nullcontext()
        return ArrivalFollower(windows, source)

    def stop(self) -> None:
        """Ask a run in another thread to end after its turn."""
        self._stop.set()

    def progress(self) -> Progress:
        """How far the mill is, as of its last turn."""
        return self._run_state.progress()

    def reset(self) -> None:
        """Forget every mark, by a person's decision: the next turn reads from the beginning, and output comes again."""
        reset_marks(self._step())
        self._run_state = self._run_state.blank()
        if self._run_state.windows is not None:
            self._run_state.windows.forget()

    def has_stopped(self) -> bool:
        """Whether the last turn that was committed was the end of the streams."""
        record = self._open_store().read(self.name)
        return record is not None and record.intent is None and memory_of(record, self._planner.root.name).has_stopped

    def _step(self) -> MillStep:
        store = self._open_store()
        work = MillWork(
            name=self.name,
            sources=tuple(self._streams.values()),
            sinks=(self._outlet.sink,) if self._outlet else (),
            transform=self._transform(),
            spool_folder=self._spool or spool_folder(store),
        )
        return self.step_type(store, self._session, work, planner=self._planner, run_state=self._run_state)

    def _transform(self) -> ProcessTransform:
        return ProcessTransform(self.declared, form=self._outlet.form if self._outlet else "json")

    def _open_store(self) -> MarkStore:
        if self._store is None:
            self._store = open_default()
        return self._store

    def _follow_up(self, step: MillStep, receipt: Receipt) -> None:
        """After a commit: others learn how far the streams are read, and an output that has ended is put in place."""
        progress = self.progress()
        lag = {name: stream.lag for name, stream in progress.streams.items()}
        log.info("turn done", mill=self.name, elements=receipt.rows_read, horizon=progress.horizon, lag=lag)
        publish = getattr(self._broker, "publish_positions", None)
        record = step.store.read(self.name)
        if publish and record:
            for stream in self.declared.tree.nodes:
                mark = record.marks.get(name_of(stream))
                if mark is not None:
                    publish(stream, mark.value)
        if self.has_stopped():
            self._publish()

    def _publish(self) -> None:
        if self._outlet and self._outlet.publish:
            self._outlet.publish()

    def _note_failure(self, error: FloodmarkError) -> None:
        advise(error)
        log.error("turn failed", mill=self.name, error=str(error))
        if isinstance(error, LeaseHeld):
            return
        now, run = datetime.now(timezone.utc), begun_run() or new_run_id()  # the turn that failed has a log
        with suppress(StoreError):
            self._open_store().add_run(Receipt(self.name, run, "failed", now, error=str(error)))


def preview(step: MillStep) -> TurnPlan:
    """Look and compare; the record, the output and what the mill knows of its run stay as they are."""
    record, stored = step.read(), step.store.read(step.work.name)
    changes = changes_of(step, stored) if stored else ()
    if record.intent is not None:
        return TurnPlan(changes=changes, open_turn=record.intent.number)
    looking = replace(step, run_state=step.run_state.blank())
    try:
        outlook = looking.look(record)
    except SourceChanged as error:
        return TurnPlan(changes=(*changes, f"{error.stored} is now {error.found}: a decision is needed"))
    finally:
        looking.run_state.cache.clear()
    return plan_of(looking, record, outlook, changes)


def plan_of(step: MillStep, record: JobRecord, outlook: Outlook, changes: tuple[str, ...]) -> TurnPlan:
    """What a look found, in the words of a plan."""
    turn, spans = step.run_state.turn, outlook.spans
    before = {name: mark.show() for name, mark in record.marks.items()}
    return TurnPlan(
        marks={name: (before.get(name), span.upto.show()) for name, span in spans.items()},
        elements={name: TurnDetail.of(span).elements for name, span in spans.items()},
        horizon=display_key(turn.until) if turn is not None else None,
        held_reason=outlook.held_reason,
        changes=changes,
    )


def changes_of(step: MillStep, stored: JobRecord) -> tuple[str, ...]:
    """Streams that the record has and the tree has not, and the other way round."""
    old = [f"{name} left the tree: its mark is dropped" for name in sorted(stored.marks.keys() - step.planner.streams)]
    new = [name for name in step.planner.streams if stored.marks and name not in stored.marks]
    return (*old, *(f"{name} is new in the tree and begins at its start" for name in new))


def advise(error: FloodmarkError) -> None:
    """Give the error a next step that a mill has."""
    error.hint = HINTS.get(type(error), error.hint)


def outlet_of(declaration: Declaration, broker: MessageBroker) -> Outlet | None:
    """Where output goes, if the function gives any."""
    return broker.outlet(declaration.output.stream) if declaration.output else None


def mill_name(broker: MessageBroker, declaration: Declaration) -> str:
    """What positions are saved under where nobody said it."""
    return plain_name(getattr(broker, "consumer_group_name", None) or declaration.signature.name)


def plain_name(text: str) -> str:
    """A text as positions can be saved under it."""
    return re.sub(r"[^A-Za-z0-9_.\-]+", "_", text).strip("._-") or "mill"


def pause_seconds(idle: int) -> float:
    """Short after work, longer the longer nothing comes."""
    return doubling_pause(SHORTEST_PAUSE_SECONDS, idle + 1, LONGEST_PAUSE_SECONDS)
