"""Errors of sinks and of the rows they get."""

from __future__ import annotations

from floodmark.errors.root import FloodmarkError


class SinkFailed(FloodmarkError):
    """A sink could not be written; the mark did not move."""

    def __init__(self, job: str, *, sink: str, reason: str) -> None:
        super().__init__(
            f"sink '{sink}' of job '{job}' could not be written: {reason}",
            hint="mend the cause and run again: the same batch is finished, nothing is written twice",
        )
        self.job, self.sink, self.reason = job, sink, reason


class ConflictingEvents(SinkFailed):
    """Two events of one key and moment say different things; nothing was written."""

    def __init__(self, job: str, *, sink: str, key: str, sequence: str) -> None:
        super().__init__(job, sink=sink, reason=f"events of key {key} at {sequence} contradict each other")
        self.hint = "mend them, name one more column in `sequence`, or set `on_conflict` to quarantine or last_arrival"
        self.key, self.sequence = key, sequence


class SnapshotRefused(SinkFailed):
    """A snapshot that would delete every row, or that is older than the last one; nothing was written."""

    def __init__(self, job: str, *, sink: str, reason: str) -> None:
        super().__init__(job, sink=sink, reason=f"a snapshot is refused: {reason}")
        self.hint = "deliver snapshots in their order; `allow_empty: true` takes an empty one for the deletion of all"


class KeysCollide(FloodmarkError):
    """Two rows of a dimension got the same surrogate key."""

    def __init__(self, column: str, *, key: int, rows: int) -> None:
        super().__init__(
            f"{rows} rows have the surrogate key {key} in column '{column}'.",
            hint="check that the natural key tells all rows apart; if it does, add a column to it",
        )
        self.column, self.key, self.rows = column, key, rows


class SinkUnreachable(FloodmarkError):
    """The server of a sink could not be reached, or the connection broke; never taken for "nothing recorded"."""

    def __init__(self, target: str, *, reason: str) -> None:
        super().__init__(
            f"{target} cannot be used: {reason}.",
            hint="check that the server runs and lets this role in; then run again: nothing is written twice",
        )
        self.target, self.reason = target, reason
