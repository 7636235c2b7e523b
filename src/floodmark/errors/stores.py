"""What stops a run at its store: it cannot be read or reached, or another run holds the job or has overtaken it."""

from __future__ import annotations

from collections.abc import Sequence

from floodmark.errors.configuration import FloodmarkError
from floodmark.errors.known_causes import server_hint


class StoreError(FloodmarkError):
    """Something is wrong with the store or with what is in it."""


class StoreUnreachable(StoreError):
    """The store could not be read or written; the run stops and never starts from the beginning."""

    def __init__(self, store: str, *, reason: str, hint: str = "") -> None:
        hint = hint or server_hint(reason) or "check that the store is there and may be written"
        super().__init__(f"store {store} cannot be used: {reason}.", hint=hint)
        self.store, self.reason = store, reason


class StoreNotPrepared(StoreUnreachable):
    """The store's tables are not there, and this user may not make them."""

    def __init__(self, store: str, *, reason: str, ddl: str) -> None:
        hint = f"let somebody who may create tables run this once, and grant their use:\n{ddl}"
        super().__init__(store, reason=reason, hint=hint)
        self.ddl = ddl


class MarkUnreadable(StoreError):
    """A record is there but cannot be parsed; it is never taken for "no mark"."""

    def __init__(self, job: str, *, where: str, reason: str) -> None:
        super().__init__(
            f"the record of job '{job}' in {where} cannot be read: {reason}.",
            hint=f"restore it from a backup, or `floodmark marks reset {job}` to read everything again",
        )
        self.job, self.where, self.reason = job, where, reason


class MarkMoved(StoreError):
    """Another run committed first: nothing was saved."""

    def __init__(self, job: str, *, stored: int, expected: int) -> None:
        super().__init__(
            f"mark '{job}' is at number {stored}, this run started from {expected}. "
            "Another run finished first, so this run's mark was not saved.",
            hint=f"floodmark marks history {job}",
        )
        self.job, self.stored, self.expected = job, stored, expected


class LeaseLost(StoreError):
    """This run's lease expired or was taken over: it stopped, and its mark was not saved.

    `written` are the sinks that had taken the batch before that.
    """

    def __init__(self, job: str, *, holder: str | None, written: Sequence[str] = ()) -> None:
        now = f"it is held by {holder}" if holder else "nobody holds it now"
        done = f"after it had written to {', '.join(written)}" if written else "and saved nothing"
        super().__init__(
            f"the lease on job '{job}' is gone ({now}); this run stopped {done}.",
            hint=f"floodmark runs --job {job}; the next run finishes what is open",
        )
        self.job, self.holder, self.written = job, holder, tuple(written)


class Overtaken(StoreError):
    """Another run took this one's place and closed its batch to it: the sink refused the rows."""

    def __init__(self, job: str, *, sink: str, number: int) -> None:
        super().__init__(
            f"batch {number} of job '{job}' was closed by another run while this one waited: sink '{sink}' took no row "
            "of it.",
            hint=f"floodmark runs --job {job}; the other run reads the same rows",
        )
        self.job, self.sink, self.number = job, sink, number


class LeaseHeld(FloodmarkError):
    """Another run works on this job."""

    exit_code = 4

    def __init__(self, job: str, *, holder: str, since: str) -> None:
        super().__init__(
            f"job '{job}' is being run by {holder} since {since}.",
            hint="wait for it to finish; if it is dead, its lease expires by itself",
        )
        self.job, self.holder, self.since = job, holder, since
