"""The steps that span the stream, over all partitions in one task and in one order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate, compress
from typing import TYPE_CHECKING

from floodmark.streams.elements import Element, RecordId, RecordOutcome
from floodmark.streams.task.journal import FAILED, HELD, OUTCOMES, PASSED, RUNNING, FailureLog, Journal, RawRecord
from floodmark.streams.task.kept import (
    CarriedState,
    KeptFile,
    WaitingElement,
    last_memory,
    read_waiting,
    save_memory,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from floodmark.probes.kafka import Place
    from floodmark.streams.flow import PlanRun
    from floodmark.streams.task import TaskPlan

SYNC_SECONDS = 1.0
SUMMARY = "due_at double"


def stream_task(plan: TaskPlan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow` over one row: it gives when the clock lets go what is held, if it does."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            if batch.num_rows:
                with ExitStack() as stack:
                    due_at = StreamRun(plan, stack, clock=time.time).run()
                yield pa.RecordBatch.from_arrays([pa.array([due_at], pa.float64())], names=["due_at"])

    return run


@dataclass
class DriverState:
    """What steps that run in the driver hold when a turn ends: as it is, for the user's own objects are in it."""

    carried: CarriedState | None = None


class StreamRun:
    """All partitions at work: their journals are open, and locked, as long as the stack is.

    It runs in a task of Spark, or in the driver, if it is given what a turn there has left.
    """

    def __init__(
        self, plan: TaskPlan, stack: ExitStack, clock: Callable[[], float], driver_state: DriverState | None = None
    ) -> None:
        self._plan, self._clock, self._driver_state = plan, clock, driver_state
        self._journals: dict[Place, Journal] = {}
        self._logs: dict[Place, FailureLog] = {}
        for place in sorted(plan.lows):
            self._enter(place, stack)
        self._healed_rows = KeptFile(plan.state.stream_healed_rows(plan.number))
        stack.callback(self._healed_rows.close)
        self._waiting = {place: self._read_waiting(place) for place in self._journals}
        carried = self._carried_state()
        for place, journal in self._journals.items():
            own = {record.offset for each in self._waiting[place] for record in each.passed.lineage}
            journal.let_go([r.offset for r in (carried.records if carried else ()) if r[:2] == place], own)
        self._run = carried.plan_run if carried else self._fresh_run()
        stack.callback(self._run.close)
        self._raw_records: dict[RecordId, RawRecord] = dict(carried.records) if carried else {}
        self._begun: set[RecordId] = set()
        """The records that user code may have in its hands: each may be the one that kills."""
        self._synced_at = time.monotonic()
        self._run.watch(self._begin)
        self._run.use_clock(clock)

    def run(self) -> float | None:
        """Everything that waits, in its order; then let go, or carry over, what is held. Returns when that is due."""
        self._settle(self._run.tick())
        ordered = [(each, element_of(each)) for each in in_stream_order(self._waiting.values())]
        waiting = [self._waits(each) for each, _ in ordered]
        for _, element in compress(ordered, waiting):
            self._run.expect(element)
        for (each, element), waits in zip(ordered, waiting, strict=True):
            if waits:
                self._take(each, element)
            else:  # an attempt of this turn that died has settled it
                self._run.replay(element, each.passed.step)
        self._finish()
        if self._plan.plan.remembers:
            save_memory(self._plan.state.memories, self._plan.number, self._run.memory(self._is_open))
        self._carry()
        self._sync()
        due_in = self._run.due_in_seconds()
        return None if due_in is None else self._clock() + due_in

    def _carry(self) -> None:
        """Keep what is held for the next turn."""
        held = {record: self._raw_records[record] for record in self._run.pending()}
        self._run.watch(None)
        carried = CarriedState(self._plan.run, self._run, held)
        if self._driver_state is not None:
            self._driver_state.carried = carried
        elif held:
            carried.save(self._plan.state.carried_state(self._plan.number))

    def _fresh_run(self) -> PlanRun:
        """Nothing is held; what steps know of settled elements is what they knew after the last turn."""
        run = self._plan.plan.start(self._clock)
        if self._plan.plan.remembers:
            run.remember(last_memory(self._plan.state.memories, self._plan.number))
        return run

    def _is_open(self, record: RecordId) -> bool:
        """Whether a record may come again: it failed, or this turn says nothing of its partition."""
        journal = self._journals.get(record[:2])
        return journal is None or (journal.low <= record.offset < journal.upto and self._state(record) == FAILED)

    def _waits(self, waiting: WaitingElement) -> bool:
        """Whether it is still to be taken; a record that failed on another branch takes none of its elements along."""
        return any(self._state(record) == PASSED for record in waiting.passed.lineage)

    def _take(self, waiting: WaitingElement, element: Element) -> None:
        self._raw_records.update(zip(element.lineage, waiting.raw_records, strict=True))
        self._begin(element.lineage)
        self._run.heal(waiting.passed.healed_early)
        self._settle(self._run.push_into(element, waiting.passed.step))
        self._settle(self._run.tick())
        if time.monotonic() - self._synced_at > SYNC_SECONDS:
            self._sync()

    def _finish(self) -> None:
        if self._plan.flushes:
            self._settle(self._run.finish())
            return
        self._settle(self._run.await_io())
        while self._run.is_busy:
            self._settle(self._run.await_io())
        self._settle(self._run.await_io())

    def _begin(self, records: Iterable[RecordId]) -> None:
        for record in records:
            if self._state(record) in (PASSED, HELD):
                self._set_state(record, RUNNING)
                self._begun.add(record)

    def _settle(self, outcomes: Iterable[RecordOutcome]) -> None:
        """First the healed rows, then the bytes; what user code has had in its hands and steps hold again waits."""
        self._healed_rows.add(self._run.take_healed())
        for record, kind, failure in outcomes:
            raw = self._raw_records.pop(record, None)
            self._begun.discard(record)
            if raw is None or self._state(record) not in (RUNNING, HELD, PASSED):
                continue  # settled before: it failed on another branch
            if failure is not None:
                self._logs[record[:2]].add(
                    record.offset, at=self._clock(), step=failure.step, error=failure.error, raw=raw
                )
            self._set_state(record, OUTCOMES[kind] if failure is None else FAILED)
        if self._run.is_busy:
            return
        for record in self._begun:
            self._set_state(record, HELD)
        self._begun.clear()

    def _enter(self, place: Place, stack: ExitStack) -> None:
        state, plan = self._plan.state, self._plan
        stack.enter_context(state.lock(place))
        self._journals[place] = stack.enter_context(Journal.open(state.states(plan.number, place), plan.lows[place]))
        self._journals[place].blame()
        log = self._logs[place] = FailureLog(state.failures(place))
        stack.callback(log.close)

    def _read_waiting(self, place: Place) -> list[WaitingElement]:
        return read_waiting(self._plan.state.all_passed_elements(self._plan.number, place))

    def _carried_state(self) -> CarriedState | None:
        """What the last turn held; or this one, when its task ran to its end before and is evaluated again."""
        plan, state = self._plan, self._plan.state
        if self._driver_state is not None:
            carried, self._driver_state.carried = self._driver_state.carried, None
        else:
            carried = CarriedState.load(state.carried_state(plan.number), plan.run)
        if self._driver_state is None and carried is None and plan.carried_from is not None:
            carried = CarriedState.load(state.carried_state(plan.carried_from), plan.run)
        # An attempt that died may have settled a part of it.
        is_current = carried is not None and all(self._is_held(record) for record in carried.records)
        return carried if is_current else None

    def _is_held(self, record: RecordId) -> bool:
        return record[:2] in self._journals and self._state(record) == HELD

    def _state(self, record: RecordId) -> int:
        journal = self._journals[record[:2]]
        return int(journal.states[record.offset - journal.low])

    def _set_state(self, record: RecordId, state: int) -> None:
        journal = self._journals[record[:2]]
        journal.states[record.offset - journal.low] = state

    def _sync(self) -> None:
        for log in self._logs.values():
            log.sync()
        for journal in self._journals.values():
            journal.states.flush()
        self._healed_rows.sync()
        self._synced_at = time.monotonic()


def element_of(waiting: WaitingElement) -> Element:
    """The element as it reached the step that it waits for."""
    return Element(waiting.passed.value, waiting.passed.lineage, waiting.passed.made_by)


def in_stream_order(partitions: Iterable[Sequence[WaitingElement]]) -> list[WaitingElement]:
    """The elements of all partitions by the time of their records; those of one partition stay in its order."""
    placed: list[tuple[int, RecordId, WaitingElement]] = []
    for own in partitions:
        times = accumulate((each.raw_records[0].timestamp for each in own), max)
        placed += [(at, each.passed.lineage[0], each) for at, each in zip(times, own, strict=True)]
    return [each for _, _, each in sorted(placed, key=lambda entry: entry[:2])]
