"""Running the records of one partition through a stream's steps, with every outcome in the journal as it happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from floodmark.probes.kafka import Place
from floodmark.streams.arrivals import ArrivalFile
from floodmark.streams.carried import Carried, load, still_held
from floodmark.streams.elements import Arrival, Element, Failure, RecordId, Settled, StepFailed
from floodmark.streams.failures import FailureLog, Raw
from floodmark.streams.journal import (
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
    Journal,
)
from floodmark.streams.program import Running
from floodmark.streams.records import Records

if TYPE_CHECKING:
    from floodmark.streams.task import Order

SYNC_SECONDS = 1.0
"""How much work a power cut may cost; a killed process loses nothing that was journalled."""
WORKER_DIED = Failure("", "the record killed its worker: the process ended while the record ran alone")


class PlaceHealing:
    """One partition at work in one task; hold its lock."""

    def __init__(
        self, order: Order, place: Place, journal: Journal, log: FailureLog, clock: Callable[[], float]
    ) -> None:
        self.place = place
        self.stopped_at: int | None = None
        """The first record that was not taken, because too many before it were left behind."""
        self._order, self._journal, self._log, self._clock = order, journal, log, clock
        self._states, self._low = journal.states, journal.low
        self._room = order.room[place]
        self._straight = None if order.rows_at_once else order.plan.straight()
        self._arrivals = ArrivalFile(order.state.arrivals(order.number, place))
        self._synced = time.monotonic()
        journal.blame()
        carried = self._carried()
        journal.let_go(carried.records if carried else ())
        self._running = carried.running if carried else order.plan.start(clock)
        self._waiting: dict[int, Raw] = dict(carried.records) if carried else {}
        if carried:
            self._running.use_clock(clock)
            self._let_go(self._running.tick)

    def take(self, records: Records) -> None:
        """Run those of the records that nobody has run yet; stop where too many are left behind."""
        if self._order.suspects_only:
            self._take_suspects(records)
        elif self._order.again is not None:
            self._take_again(records)
        elif self._order.rows_at_once:
            self._take_lists(records, self._order.rows_at_once)
        elif self._straight:
            self._take_straight(records, self._straight)
        else:
            self._take_each(records)
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self._sync()

    def finish(self) -> float | None:
        """Let go, or carry over, what the steps still hold; returns when the clock lets it go, if it does."""
        self._let_go(self._running.await_io)
        if self._order.flushes:
            self._let_go(self._running.flush)
        held = {record.offset: self._waiting[record.offset] for record in self._running.pending()}
        if held:
            carried = Carried(self._order.run, self._running, held)
            carried.save(self._order.state.carried(self._order.number, self.place))
        self._sync()
        due_in = self._running.due_in_seconds()
        return None if due_in is None else self._clock() + due_in

    def close(self) -> None:
        """Let go of the file of arrivals."""
        self._arrivals.close()

    def _carried(self) -> Carried | None:
        """What the last turn held; or this one, when its task ran to its end before and is evaluated again."""
        order, state = self._order, self._order.state
        mine = load(state.carried(order.number, self.place), order.run)
        if mine is None and self.place in order.carried:
            mine = load(state.carried(order.carried[self.place], self.place), order.run)
        return still_held(mine, self._journal)

    def _take_straight(self, records: Records, straight: Callable[..., object]) -> None:
        states, low, row = self._states, self._low, records.row
        wants_arrivals, last = self._order.plan.wants_arrivals, len(self._order.plan.steps) - 1
        for at, offset in enumerate(records.offsets):
            spot = offset - low
            if states[spot] != UNTOUCHED or self._room <= 0:
                self._meet(records, at)
                continue
            states[spot] = RUNNING
            try:
                healed = straight(row(at))
            except StepFailed as failed:
                self._fail(offset, failed.failure, records.raw(at))
            else:
                if wants_arrivals and healed is not None:
                    self._arrivals.add([Arrival(last, healed)])
                states[spot] = DROPPED if healed is None else DONE

    def _take_each(self, records: Records) -> None:
        for at, offset in enumerate(records.offsets):
            if self._states[offset - self._low] != UNTOUCHED or self._room <= 0:
                self._meet(records, at)
            else:
                self._push(self._running, records, [at])

    def _take_lists(self, records: Records, most: int) -> None:
        fresh: list[int] = []
        for at, offset in enumerate(records.offsets):
            if self._states[offset - self._low] != UNTOUCHED or self._room <= 0:
                self._meet(records, at)
            else:
                fresh.append(at)
        for start in range(0, len(fresh), most):
            self._push(self._running, records, fresh[start : start + most])

    def _take_again(self, records: Records) -> None:
        """Failed records, each by itself; one that had this attempt already is left alone."""
        attempts = (self._order.again or {}).get(self.place, {})
        for at, offset in enumerate(records.offsets):
            waits = self._states[offset - self._low] in (FAILED, SUSPECT, KILLED)
            if waits and self._log.attempts(offset) < attempts.get(offset, 0):
                self._run_alone(records, at)

    def _take_suspects(self, records: Records) -> None:
        for at, offset in enumerate(records.offsets):
            if self._states[offset - self._low] in (SUSPECT, KILLED):
                self._run_alone(records, at)

    def _meet(self, records: Records, at: int) -> None:
        """A record that is not fresh: settled, failed or held before, or its worker died; or there is no more room."""
        offset = records.offsets[at]
        state = self._states[offset - self._low]
        if state in (SUSPECT, KILLED):
            self._run_alone(records, at)  # the task is tried again by Spark, with no driver between
        elif state == UNTOUCHED and self.stopped_at is None:
            self.stopped_at = offset

    def _run_alone(self, records: Records, at: int) -> None:
        offset = records.offsets[at]
        if self._states[offset - self._low] == KILLED:
            self._fail(offset, WORKER_DIED, records.raw(at))
            return
        # Only who ran alone, and not beside others that may have been the cause, can be convicted.
        self._states[offset - self._low] = ALONE if self._states[offset - self._low] == SUSPECT else RUNNING
        running = self._order.plan.start(self._clock)
        self._waiting[offset] = records.raw(at)
        element = self._element(records, [at], self._log.attempts(offset) + 1)
        settled = [*running.push(element), *running.await_io(), *running.flush()]
        self._arrivals.add(running.take_arrivals())
        self._settle_all(settled)

    def _push(self, running: Running, records: Records, ats: list[int]) -> None:
        for at in ats:
            self._states[records.offsets[at] - self._low] = RUNNING
            self._waiting[records.offsets[at]] = records.raw(at)
        self._settle(running.push(self._element(records, ats)))
        for at in ats:
            if self._states[records.offsets[at] - self._low] == RUNNING:
                self._states[records.offsets[at] - self._low] = HELD

    def _let_go(self, release: Callable[[], list[Settled]]) -> None:
        """Steps hand on what they hold: until that is over, each of these records may be the one that kills."""
        held = [record.offset for record in self._running.pending()]
        self._journal.put(held, RUNNING)
        self._settle(release())
        self._journal.put([record.offset for record in self._running.pending()], HELD)

    def _element(self, records: Records, ats: list[int], attempt: int = 1) -> Element:
        topic, partition = self.place
        rows = [records.row(at, attempt) for at in ats]
        lineage = tuple(RecordId(topic, partition, records.offsets[at]) for at in ats)
        return Element(rows if self._order.rows_at_once else rows[0], lineage)

    def _settle(self, settled: Iterable[Settled]) -> None:
        self._arrivals.add(self._running.take_arrivals())
        self._settle_all(settled)

    def _settle_all(self, settled: Iterable[Settled]) -> None:
        for record, kind, failure in settled:
            raw = self._waiting.pop(record.offset)
            if failure is not None:
                self._fail(record.offset, failure, raw)
            else:
                self._states[record.offset - self._low] = OUTCOMES[kind]

    def _fail(self, offset: int, failure: Failure, raw: Raw) -> None:
        """First the log, then the byte: a failure without its record in the log would never be tried again."""
        self._log.add(offset, at=self._clock(), step=failure.step, error=failure.error, raw=raw)
        self._states[offset - self._low] = FAILED
        self._room -= 1

    def _sync(self) -> None:
        self._log.sync()
        self._states.flush()
        self._arrivals.sync()
        self._synced = time.monotonic()
