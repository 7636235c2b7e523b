"""Running the records of one partition, or a share of them, with every outcome in the journal as it happens.

Steps that span the stream come later (`task.stream`): here a record goes as far as it can go by itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable
from itertools import count
from typing import TYPE_CHECKING

from floodmark.streams.elements import (
    Element,
    Failure,
    HealedElement,
    PassedElement,
    RecordId,
    RecordOutcome,
    StepFailed,
)
from floodmark.streams.flow import PlanRun
from floodmark.streams.program import ShortPath
from floodmark.streams.task.journal import (
    ALONE,
    DONE,
    DROPPED,
    FAILED,
    KILLED,
    OUTCOMES,
    RUNNING,
    SUSPECT,
    UNTOUCHED,
    FailureLog,
    Journal,
    RawRecord,
)
from floodmark.streams.task.kept import KeptFile, WaitingElement

if TYPE_CHECKING:
    from floodmark.probes.kafka import Place
    from floodmark.streams.task import PartitionRecords, TaskPlan

SYNC_SECONDS = 1.0
"""How much work a power cut may cost; a killed process loses nothing that was journalled."""
WORKER_DIED = Failure("", "the record killed its worker: the process ended while the record ran alone")


class PartitionRun:
    """One partition, or one share of it, at work in one task; hold its lock."""

    def __init__(
        self,
        plan: TaskPlan,
        place: Place,
        journal: Journal,
        log: FailureLog,
        clock: Callable[[], float],
        share: int = 0,
    ) -> None:
        self.place = place
        self.stopped_at: int | None = None
        """The first record that was not taken, because too many before it were left behind."""
        self._plan, self._journal, self._log, self._clock = plan, journal, log, clock
        self._states, self._low = journal.states, journal.low
        self._room = plan.room[place]
        self._short_path = None if plan.rows_at_once else plan.plan.short_path()
        self._healed_rows = KeptFile(plan.state.healed_rows(plan.number, place, share))
        self._waiting = KeptFile(plan.state.passed_elements(plan.number, place, share))
        self._calls = (f"{os.getpid()}-{time.time_ns()}-{number}" for number in count())
        self._synced_at = time.monotonic()
        if plan.shares == 1:
            journal.blame()  # with other tasks beside this one, only the driver can tell who died
        self._run = plan.plan.record_part(plan.threads).start(clock)
        self._raw_records: dict[int, RawRecord] = {}
        """Those that have no outcome yet."""

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

    def finish(self) -> None:
        """Wait for what is under way, and journal each outcome as it comes."""
        self._settle(self._run, self._run.await_io())
        while self._run.is_busy:
            self._settle(self._run, self._run.await_io())
        self._settle(self._run, self._run.await_io())
        self._sync()

    def close(self) -> None:
        """Let go of files and threads."""
        self._run.close()
        self._healed_rows.close()
        self._waiting.close()

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
                    self._healed_rows.add([HealedElement(last, healed, offset)])
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
        # Through all steps, and out of those that would hold it; where one keeps what it holds, it has to wait for it.
        plan = self._plan.plan.record_part() if self._plan.plan.keeps else self._plan.plan
        run = plan.start(self._clock)
        self._raw_records[offset] = records.raw(at)
        element = self._element(records, [at], self._log.attempts(offset) + 1)
        self._settle(run, [*run.push(element), *run.finish()])
        run.close()

    def _push(self, records: PartitionRecords, ats: list[int]) -> None:
        for at in ats:
            self._states[records.offsets[at] - self._low] = RUNNING
            self._raw_records[records.offsets[at]] = records.raw(at)
        self._settle(self._run, self._run.push(self._element(records, ats)))

    def _element(self, records: PartitionRecords, ats: list[int], attempt: int = 1) -> Element:
        topic, partition = self.place
        rows = [records.row(at, attempt) for at in ats]
        lineage = tuple(RecordId(topic, partition, records.offsets[at]) for at in ats)
        return Element(rows if self._plan.rows_at_once else rows[0], lineage)

    def _settle(self, run: PlanRun, outcomes: Iterable[RecordOutcome]) -> None:
        """First what was made of a record, then its byte: one that is done, or waits, has its rows on disk."""
        self._healed_rows.add(run.take_healed())
        outcomes = list(outcomes)
        self._keep_passed(run.take_passed(), {record for record, _, failure in outcomes if failure})
        for record, kind, failure in outcomes:
            raw = self._raw_records.pop(record.offset)
            if failure is not None:
                self._fail(record.offset, failure, raw)
            else:
                self._states[record.offset - self._low] = OUTCOMES[kind]

    def _keep_passed(self, passed: Iterable[PassedElement], failed: Collection[RecordId]) -> None:
        """A record that failed on another branch takes nothing along; its next attempt brings it anew."""
        own = [each for each in passed if not all(record in failed for record in each.lineage)]
        if own:
            call, raws = next(self._calls), self._raw_records
            raw_records = [tuple(raws[record.offset] for record in each.lineage) for each in own]
            self._waiting.add(WaitingElement(*each, call) for each in zip(own, raw_records, strict=True))

    def _fail(self, offset: int, failure: Failure, raw: RawRecord) -> None:
        """First the log, then the byte: a failure without its record in the log would never be tried again."""
        self._log.add(offset, at=self._clock(), step=failure.step, error=failure.error, raw=raw)
        self._states[offset - self._low] = FAILED
        self._room -= 1

    def _sync(self) -> None:
        self._log.sync()
        self._states.flush()
        self._healed_rows.sync()
        self._waiting.sync()
        self._synced_at = time.monotonic()
