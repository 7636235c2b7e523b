"""Errors of marks, of the stores that keep them, and of the lease."""

from __future__ import annotations

from collections.abc import Sequence

from floodmark.errors.root import FloodmarkError


class MarkError(FloodmarkError):
    """Something is wrong with a mark itself."""


class MarkInvalid(MarkError, ValueError):
    """A value that this kind of mark refuses."""

    def __init__(self, kind: str, value: object, *, reason: str) -> None:
        super().__init__(f"{kind} refuses {value!r}: {reason}.", hint="pass a value of the kind's own type")
        self.kind, self.value, self.reason = kind, value, reason


class MarkFieldUnknown(MarkError, TypeError):
    """A mark was made with a field that it does not have."""

    def __init__(self, kind: str, field: str, *, known: Sequence[str]) -> None:
        super().__init__(f"{kind} has no field '{field}'.", hint=f"one of: {', '.join(known)}")
        self.kind, self.field, self.known = kind, field, tuple(known)


class MarkKindMismatch(MarkError, TypeError):
    """Two marks (or a mark and a value) that cannot be compared."""

    def __init__(self, left: object, right: object, *, reason: str) -> None:
        super().__init__(
            f"cannot compare {left!r} with {right!r}: {reason}.",
            hint="compare marks of the same kind, name and entity",
        )
        self.left, self.right, self.reason = left, right, reason


class StoreError(FloodmarkError):
    """Something is wrong with the store or with what is in it."""


class StoreUnreachable(StoreError):
    """The store could not be read or written; the run stops and never starts from the beginning."""

    def __init__(
        self, store: str, *, reason: str, hint: str = "check that the store is there and may be written"
    ) -> None:
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
    """This run's lease expired or was taken over: it stopped before it wrote."""

    def __init__(self, job: str, *, holder: str | None) -> None:
        now = f"it is held by {holder}" if holder else "nobody holds it now"
        super().__init__(
            f"the lease on job '{job}' is gone ({now}); this run stopped before writing.",
            hint=f"floodmark runs --job {job}; the next run finishes what is open",
        )
        self.job, self.holder = job, holder


class LeaseHeld(FloodmarkError):
    """Another run works on this job."""

    exit_code = 4

    def __init__(self, job: str, *, holder: str, since: str) -> None:
        super().__init__(
            f"job '{job}' is being run by {holder} since {since}.",
            hint="wait for it to finish; if it is dead, its lease expires by itself",
        )
        self.job, self.holder, self.since = job, holder, since
