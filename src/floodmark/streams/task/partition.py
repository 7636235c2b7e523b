"""Running the records of one partition through a stream's steps, with every outcome in the journal as it happens."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.streams.elements import Element, Failure, HealedElement, RecordId, RecordOutcome, StepFailed
from floodmark.streams.program import PlanRun, ShortPath
from floodmark.streams.task.journal import (
    ALONE,
    DONE,
    DROPPED,
    FAILED,
    HELD,
    KILLED,
    OUTCOMES,
    RUNNING,
    SUSPECT,
    UNTOUCHED,
    FailureLog,
    HealedRowsFile,
    Journal,
    RawRecord,
)

if TYPE_CHECKING:
    from floodmark.probes.kafka import Place
    from floodmark.streams.task import PartitionRecords, TaskPlan

SYNC_SECONDS = 1.0
"""How much work a power cut may cost; a killed process loses nothing that was journalled."""
WORKER_DIED = Failure("", "the record killed its worker: the process ended while the record ran alone")


class PartitionRun:
    """One partition at work in one task; hold its lock."""

    def __init__(
        self, plan: TaskPlan, place: Place, journal: Journal, log: FailureLog, clock: Callable[[], float]
    ) -> None:
        self.place = place
        self.stopped_at: int | None = None
        """The first record that was not taken, because too many before it were left behind."""
        self._plan, self._journal, self._log, self._clock = plan, journal, log, clock
        self._states, self._low = journal.states, journal.low
        self._room = plan.room[place]
        self._short_path = None if plan.rows_at_once else plan.plan.short_path()
        self._healed_rows = HealedRowsFile(plan.state.healed_rows(plan.number, place))
        self._synced_at = time.monotonic()
        journal.blame()
        carried = self._carried_state()
        journal.let_go(carried.records if carried else ())
        self._run = carried.plan_run if carried else plan.plan.start(clock)
        self._raw_records: dict[int, RawRecord] = dict(carried.records) if carried else {}
        """Those that have no outcome yet."""
        if carried:
            self._run.use_clock(clock)
            self._release(self._run.tick)

    def take(self, records: PartitionRecords) -> None:
        """Run those of the records that nobody has run yet; stop where too many are left behind."""
        if self._plan.suspects_only:
            self._take_suspects(records)
        elif self._plan.attempts is not None:
            self._take_again(records)
        elif self._plan.rows_at_once:
            self._take_lists(records, self._plan.rows_at_once)
        elif self._short_path:
            self._take_directly(records, self._short_path)
        else:
            self._take_each(records)
        if time.monotonic() - self._synced_at > SYNC_SECONDS:
            self._sync()

    def finish(self) -> float | None:
        """Let go, or carry over, what the steps still hold; returns when the clock lets it go, if it does."""
        self._release(self._run.await_io)
        if self._plan.flushes:
            self._release(self._run.flush)
        held = {record.offset: self._raw_records[record.offset] for record in self._run.pending()}
        if held:
            carried = CarriedState(self._plan.run, self._run, held)
            carried.save(self._plan.state.carried_state(self._plan.number, self.place))
        self._sync()
        due_in = self._run.due_in_seconds()
        return None if due_in is None else self._clock() + due_in

    def close(self) -> None:
        """Let go of the file of healed rows."""
        self._healed_rows.close()

    def _carried_state(self) -> CarriedState | None:
        """What the last turn held; or this one, when its task ran to its end before and is evaluated again."""
        plan, state = self._plan, self._plan.state
        carried = CarriedState.load(state.carried_state(plan.number, self.place), plan.run)
        if carried is None and self.place in plan.carried_from:
            carried = CarriedState.load(state.carried_state(plan.carried_from[self.place], self.place), plan.run)
        return carried if carried is not None and carried.is_current(self._journal) else None

    def _take_directly(self, records: PartitionRecords, heal: ShortPath) -> None:
        states, low, row = self._states, self._low, records.row
        returns_rows, last = self._plan.plan.returns_rows, len(self._plan.plan.steps) - 1
        for at, offset in enumerate(records.offsets):
            spot = offset - low
            if states[spot] != UNTOUCHED or self._room <= 0:
                self._pass_over(records, at)
                continue
            states[spot] = RUNNING
            try:
                healed = heal(row(at))
            except StepFailed as failed:
                self._fail(offset, failed.failure, records.raw(at))
            else:
                if returns_rows and healed is not None:
                    self._healed_rows.add([HealedElement(last, healed)])
                states[spot] = DROPPED if healed is None else DONE

    def _take_each(self, records: PartitionRecords) -> None:
        for at, offset in enumerate(records.offsets):
            if self._states[offset - self._low] != UNTOUCHED or self._room <= 0:
                self._pass_over(records, at)
            else:
                self._push(records, [at])

    def _take_lists(self, records: PartitionRecords, most: int) -> None:
        fresh: list[int] = []
        for at, offset in enumerate(records.offsets):
            if self._states[offset - self._low] != UNTOUCHED or self._room <= 0:
                self._pass_over(records, at)
            else:
                fresh.append(at)
        for start in range(0, len(fresh), most):
            self._push(records, fresh[start : start + most])

    def _take_again(self, records: PartitionRecords) -> None:
        """Failed records, each by itself; one that had this attempt already is left alone."""
        attempts = (self._plan.attempts or {}).get(self.place, {})
        for at, offset in enumerate(records.offsets):
            waits = self._states[offset - self._low] in (FAILED, SUSPECT, KILLED)
            if waits and self._log.attempts(offset) < attempts.get(offset, 0):
                self._run_alone(records, at)

    def _take_suspects(self, records: PartitionRecords) -> None:
        for at, offset in enumerate(records.offsets):
            if self._states[offset - self._low] in (SUSPECT, KILLED):
                self._run_alone(records, at)

    def _pass_over(self, records: PartitionRecords, at: int) -> None:
        """A record that is not fresh: settled, failed or held before, or its worker died; or there is no more room."""
        offset = records.offsets[at]
        state = self._states[offset - self._low]
        if state in (SUSPECT, KILLED):
            self._run_alone(records, at)  # the task is tried again by Spark, with no driver between
        elif state == UNTOUCHED and self.stopped_at is None:
            self.stopped_at = offset

    def _run_alone(self, records: PartitionRecords, at: int) -> None:
        offset = records.offsets[at]
        if self._states[offset - self._low] == KILLED:
            self._fail(offset, WORKER_DIED, records.raw(at))
            return
        # Only who ran alone, and not beside others that may have been the cause, can be convicted.
        self._states[offset - self._low] = ALONE if self._states[offset - self._low] == SUSPECT else RUNNING
        run = self._plan.plan.start(self._clock)
        self._raw_records[offset] = records.raw(at)
        element = self._element(records, [at], self._log.attempts(offset) + 1)
        self._settle(run, [*run.push(element), *run.await_io(), *run.flush()])

    def _push(self, records: PartitionRecords, ats: list[int]) -> None:
        for at in ats:
            self._states[records.offsets[at] - self._low] = RUNNING
            self._raw_records[records.offsets[at]] = records.raw(at)
        self._settle(self._run, self._run.push(self._element(records, ats)))
        for at in ats:
            if self._states[records.offsets[at] - self._low] == RUNNING:
                self._states[records.offsets[at] - self._low] = HELD

    def _release(self, release: Callable[[], list[RecordOutcome]]) -> None:
        """Steps hand on what they hold: until that is over, each of these records may be the one that kills."""
        self._journal.set_state([record.offset for record in self._run.pending()], RUNNING)
        self._settle(self._run, release())
        self._journal.set_state([record.offset for record in self._run.pending()], HELD)

    def _element(self, records: PartitionRecords, ats: list[int], attempt: int = 1) -> Element:
        topic, partition = self.place
        rows = [records.row(at, attempt) for at in ats]
        lineage = tuple(RecordId(topic, partition, records.offsets[at]) for at in ats)
        return Element(rows if self._plan.rows_at_once else rows[0], lineage)

    def _settle(self, run: PlanRun, outcomes: Iterable[RecordOutcome]) -> None:
        """First the healed rows, then the bytes: a record that is done has its rows on disk."""
        self._healed_rows.add(run.take_healed())
        for record, kind, failure in outcomes:
            raw = self._raw_records.pop(record.offset)
            if failure is not None:
                self._fail(record.offset, failure, raw)
            else:
                self._states[record.offset - self._low] = OUTCOMES[kind]

    def _fail(self, offset: int, failure: Failure, raw: RawRecord) -> None:
        """First the log, then the byte: a failure without its record in the log would never be tried again."""
        self._log.add(offset, at=self._clock(), step=failure.step, error=failure.error, raw=raw)
        self._states[offset - self._low] = FAILED
        self._room -= 1

    def _sync(self) -> None:
        self._log.sync()
        self._states.flush()
        self._healed_rows.sync()
        self._synced_at = time.monotonic()


@dataclass(frozen=True)
class CarriedState:
    """What steps such as `partition` still hold when a turn ends, and the held records as Kafka gave them, by offset.

    It holds the user's code as well, so only the run that made it takes it back: after a restart the records are read
    again and meet the code of that day.
    """

    run: str
    plan_run: PlanRun
    records: Mapping[int, RawRecord]

    def save(self, path: Path) -> None:
        """Put it in place, whole or not at all."""
        from pyspark import cloudpickle

        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        temporary.write_bytes(cloudpickle.dumps(self))  # type: ignore[no-untyped-call]
        temporary.replace(path)

    @classmethod
    def load(cls, path: Path, run: str) -> CarriedState | None:
        """What was carried under this name by this run, if anything was."""
        try:
            state = pickle.loads(path.read_bytes())  # noqa: S301 (our own file, beside the marks)
        except FileNotFoundError:
            return None
        except (AttributeError, ImportError):  # of a run before an upgrade, whose classes had other names
            return None
        return state if isinstance(state, CarriedState) and state.run == run else None

    def is_current(self, journal: Journal) -> bool:
        """Whether nothing of it has moved on: an attempt that died may have settled a part of it."""
        return all(journal.states[offset - journal.low] == HELD for offset in self.records)
