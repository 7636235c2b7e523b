"""Running a stream: once over what is there, or for ever until somebody asks it to stop."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from types import FrameType
from typing import TypeAlias

from floodmark.errors import FloodmarkError, HealingFailed, LeaseHeld, RecordsFailed, SourceUnreadable, StoreError
from floodmark.logs import get_logger
from floodmark.patience import StopRequest, doubling_pause
from floodmark.stores.record import Receipt, new_run_id
from floodmark.stores.run_logs import begun_run
from floodmark.streams.healer import Healer
from floodmark.streams.healer.unsettled import TurnLimit

log = get_logger(__name__)
PASSING = (SourceUnreadable, StoreError, HealingFailed)
"""Troubles that may be over at the next poll."""
MOST_JOB_FAILURES = 5
MOST_JOB_FAILURES_OF_ONE_RUN = 3
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 30.0


def run_once(healer: Healer) -> Receipt:
    """Heal what is there now, try again what fails as often as the policy says, and let go what steps hold."""
    try:
        receipt = _heal_all(healer)
        healer.commit.end()
        require_not_stuck(healer)
    except FloodmarkError as error:
        _note(healer, error)
        raise
    return receipt


def run_for_ever(healer: Healer, stopping: StopRequest, poll_seconds: float) -> None:
    """Heal what comes until asked to stop; then let go what steps hold. Raises RecordsFailed where it is stuck."""
    failures = 0
    try:
        healer.begin()
        while not stopping.is_requested:
            try:
                _poll(healer, stopping, poll_seconds)
                failures = 0
            except PASSING as error:
                failures += 1
                if isinstance(error, HealingFailed) and failures >= MOST_JOB_FAILURES:
                    raise
                _wait_out(error, failures, stopping)
            except RecordsFailed:
                _stop(healer)  # what others wait in batches for goes on: none of it depends on the record that failed
                raise
        _stop(healer)
    except FloodmarkError as error:
        _note(healer, error)
        raise


def require_not_stuck(healer: Healer) -> None:
    """Raise RecordsFailed if records failed for good and were not put aside."""
    stuck = healer.stuck_records()
    if stuck:
        raise RecordsFailed(healer.job, records=stuck)


def _heal_all(healer: Healer) -> Receipt:
    healer.begin()
    limit = TurnLimit(healer.topic_look.ends(), flushes=healer.flushes_at_end)
    receipt = _turn(healer, limit)
    while True:
        wait = healer.seconds_until_due()
        time.sleep(wait or 0.0)
        later = _turn(healer, limit)
        if later.status == "nothing_new":
            return receipt
        receipt = receipt.followed_by(later) if receipt.status == "done" else later


def _turn(healer: Healer, limit: TurnLimit) -> Receipt:
    """One turn; a Spark job that failed without a record to blame is tried again, as `run` does.

    A worker that did not start in time is such a failure. What was journalled does not run a second time.
    """
    for failures in range(1, MOST_JOB_FAILURES_OF_ONE_RUN):
        try:
            return healer.turn(limit)
        except HealingFailed as error:
            log.warning("the stream fails, trying again", failures=failures, error=str(error))
        time.sleep(FIRST_PAUSE_SECONDS)
    return healer.turn(limit)


def _poll(healer: Healer, stopping: StopRequest, poll_seconds: float) -> None:
    """One turn, and the pause after one that found nothing."""
    try:
        receipt = healer.turn(TurnLimit())
    except LeaseHeld as held:
        log.debug("another process of this group is at work", stream=healer.job, holder=held.holder)
        stopping.wait(poll_seconds)
        return
    require_not_stuck(healer)
    healer.commit.tick()
    if receipt.status == "nothing_new":
        healer.store.looked(healer.job, datetime.now(timezone.utc))
        wait = healer.seconds_until_due()
        stopping.wait(poll_seconds if wait is None else min(poll_seconds, wait))


def _wait_out(error: FloodmarkError, failures: int, stopping: StopRequest) -> None:
    pause = doubling_pause(FIRST_PAUSE_SECONDS, failures, LONGEST_PAUSE_SECONDS)
    log.warning("the stream fails, trying again", failures=failures, seconds=pause, error=str(error))
    stopping.wait(pause)


def _stop(healer: Healer) -> None:
    """Nothing new is taken; what steps hold goes on, shorter than it might have been."""
    if healer.unsettled_records.held_records and healer.flushes_at_end:
        ends = {place: progress.read_upto for place, progress in healer.progress().items()}
        healer.turn(TurnLimit(ends, flushes=True))
    healer.commit.end()


def _note(healer: Healer, error: FloodmarkError) -> None:
    """Keep the failure for `floodmark runs`; a store that is itself the trouble cannot, and the error says so."""
    if isinstance(error, LeaseHeld):
        return
    run = begun_run() or new_run_id()  # the turn that failed has a log
    receipt = Receipt(healer.job, run, "failed", started=datetime.now(timezone.utc), error=str(error))
    try:
        healer.store.add_run(receipt)
    except StoreError:
        return


Work: TypeAlias = "Callable[[StopRequest], None]"
GRACE_SECONDS = 0.2
"""How long a program may take from one step to the next while it builds its stream."""


@dataclass
class Background:
    """A stream that runs beside the program that built it: it keeps it alive, ends by Ctrl-C, and reports failures.

    At most one run at a time; `ready` gives the work with the steps as they are at that moment.
    """

    name: str
    ready: Callable[[], Work]
    error: FloodmarkError | None = None
    _stopping: StopRequest | None = None
    _thread: threading.Thread | None = None
    _soon: threading.Timer | None = None
    _is_watched: bool = False

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begin now, unless it runs. What is wrong with the stream itself is raised here."""
        self._watch()
        if not self.is_running:
            self._launch(self.ready())

    def start_soon(self) -> None:
        """Begin, or begin anew, once the program has added no step for a moment: a branch may follow."""
        self._watch()
        if self._soon is not None:
            self._soon.cancel()
        self._soon = threading.Timer(GRACE_SECONDS, self._begin_anew)
        self._soon.start()

    def stop(self) -> None:
        """Let the current turn end; returns when all is done. Raises what the run failed with."""
        self._request()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
            self._forget()
        error, self.error = self.error, None
        if error is not None:
            raise error

    def _forget(self) -> None:
        stopping, self._stopping, self._thread = self._stopping, None, None
        if stopping is not None:
            stopping.close()

    def _begin_anew(self) -> None:
        try:
            self.stop()
            self._launch(self.ready())
        except FloodmarkError as error:
            self._fail(error)

    def _launch(self, work: Work) -> None:
        stopping = self._stopping = StopRequest()
        self._thread = threading.Thread(target=self._run, args=(work, stopping), name=f"stream {self.name}")
        self._thread.start()

    def _run(self, work: Work, stopping: StopRequest) -> None:
        try:
            work(stopping)
        except FloodmarkError as error:
            self._fail(error)

    def _fail(self, error: FloodmarkError) -> None:
        self.error = error
        sys.stderr.write(f"Error: {error.message}\nTry: {error.hint}\n")

    def _request(self) -> None:
        if self._stopping is not None and not self._stopping.is_requested:
            self._stopping.request()

    def _watch(self) -> None:
        """Signals can only be taken by the main thread; the exit code is settled after all threads have ended."""
        if self._is_watched or threading.current_thread() is not threading.main_thread():
            return
        self._is_watched = True
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGTERM, self._on_signal)
        atexit.register(self._leave)  # before Spark's own, which are then called before this one

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._soon is not None:
            self._soon.cancel()
        if not self.is_running or self._stopping is None or self._stopping.is_requested:
            raise KeyboardInterrupt
        self._request()

    def _leave(self) -> None:
        """A program whose stream failed exits as `floodmark run` would."""
        if self.error is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.error.exit_code)
