"""Errors on the way of the rows: at a source, in the work on them (transforms, rules, tasks, Spark), at a sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from floodmark.errors.configuration import FloodmarkError
from floodmark.errors.known_causes import server_hint


class SourceUnreadable(FloodmarkError):
    """The source could not be looked at; this is never taken for "no rows"."""

    def __init__(self, source: str, *, reason: str, hint: str = "") -> None:
        hint = hint or server_hint(reason) or "check that it is there and may be read"
        super().__init__(f"{source} cannot be read: {reason}.", hint=hint)
        self.source, self.reason = source, reason


class DeltaTableMissing(SourceUnreadable):
    """There is no Delta table at that place."""

    def __init__(self, place: object) -> None:
        hint = "fix `path:`, or run the job first that fills it: `floodmark lineage` shows who fills which table"
        super().__init__(f"delta table {place}", reason="there is no such table", hint=hint)
        self.place = str(place)


class RecordMalformed(SourceUnreadable):
    """A record that cannot be parsed, and no dead letters to keep it in."""

    def __init__(
        self, source: str, *, file: str, line: int | None, text: str, reason: str = "", hint: str = ""
    ) -> None:
        place = f"{file}, line {line}" if line else file
        super().__init__(
            source,
            reason=f"malformed record in {place}: {text[:120]!r}{f' ({reason})' if reason else ''}",
            hint=hint or "fix the record, or add `dead_letters: {path: …}` to the job to put such records aside",
        )
        self.file, self.line, self.text = file, line, text


class ElementInvalid(FloodmarkError):
    """An element of a stream does not fit its class; `position` is empty while nobody has said where it stands."""

    def __init__(self, stream: str, *, field: str, reason: str, position: str = "") -> None:
        where = f" at {position}" if position else ""
        what = f", field {field}" if field else ""
        super().__init__(
            f"element of {stream}{where}{what}: {reason}.",
            hint="fix the element, change the class, or give WaterMill a deserializer for it",
        )
        self.stream, self.field, self.reason, self.position = stream, field, reason, position

    def at(self, position: str) -> ElementInvalid:
        """The same error, told where the element stands."""
        return ElementInvalid(self.stream, field=self.field, reason=self.reason, position=position)

    def __reduce__(self) -> tuple[object, ...]:
        """It is raised beside the data and has to come back to the driver."""
        return _element_invalid, (self.stream, self.field, self.reason, self.position)


def _element_invalid(stream: str, field: str, reason: str, position: str) -> ElementInvalid:
    return ElementInvalid(stream, field=field, reason=reason, position=position)


class ElementFailed(FloodmarkError):
    """A process function raised; nothing of this turn was written."""

    def __init__(self, stream: str, *, position: str, reason: str, element: str = "") -> None:
        what = f" ({element})" if element else ""
        super().__init__(
            f"the process function failed on the element of {stream} at {position}{what}: {reason}.",
            hint="fix the function, or the element, and run again: the same turn is tried anew",
        )
        self.stream, self.position, self.reason, self.element = stream, position, reason, element


class KeyDecreased(FloodmarkError):
    """A key is lower than one before it in its partition: what it belongs to was joined already."""

    def __init__(self, stream: str, *, position: str, key: str, before: str) -> None:
        super().__init__(
            f"element of {stream} at {position}: its key {key} is lower than {before} before it.",
            hint="keys must not decrease within a partition: order the stream by its key, or join by another one",
        )
        self.stream, self.position, self.key, self.before = stream, position, key, before


class TransformFailed(FloodmarkError):
    """The user's SQL or function raised; nothing was written."""

    def __init__(self, job: str, *, reason: str, hint: str = "") -> None:
        super().__init__(
            f"the transform of job '{job}' failed: {reason}",
            hint=f"{hint or 'fix it'}; then `floodmark run --select {job}`",
        )
        self.job, self.reason = job, reason


class RuleBroken(FloodmarkError):
    """A rule with the action `fail` does not hold for a batch; nothing was written and the mark did not move."""

    def __init__(
        self,
        job: str,
        *,
        rule: str,
        failed: int,
        checked: int,
        samples: Sequence[str],
        results: Sequence[Mapping[str, object]] = (),
    ) -> None:
        such = f", such as {'; '.join(samples)}" if samples else ""
        count = f"{failed} of {checked} rows break it" if checked != 1 or failed != 1 else "it does not hold"
        super().__init__(
            f"rule '{rule}' of job '{job}' fails the batch: {count}{such}. Nothing was written.",
            hint="fix the rows at their source, or the rule, and run again; `action: quarantine` puts such rows aside",
        )
        self.job, self.rule, self.failed, self.checked, self.samples = job, rule, failed, checked, tuple(samples)
        self.results = tuple(results)
        """What every rule of the job gave, as a receipt keeps it."""


class TaskFailed(FloodmarkError):
    """The program that a task of a workflow runs ended badly."""

    def __init__(self, task: str, *, reason: str) -> None:
        super().__init__(
            f"task '{task}' failed: {reason}.", hint="fix it and run the workflow again: it takes what is missing"
        )
        self.task, self.reason = task, reason


class TaskTimedOut(TaskFailed):
    """A task did not end within its time; `lives` if its code could not be stopped and still runs in this process."""

    def __init__(self, task: str, *, seconds: float, lives: bool) -> None:
        still = ", and its code still runs until this process ends" if lives else ""
        super().__init__(task, reason=f"it did not end within {seconds:g} s{still}")
        self.seconds, self.lives = seconds, lives


class RecordsFailed(FloodmarkError):
    """Records of a stream failed and were not given up: the mark stops at the first of them, the others went on."""

    def __init__(self, stream: str, *, records: Sequence[str]) -> None:
        others = f" and {len(records) - 1} more" if len(records) > 1 else ""
        super().__init__(
            f"stream '{stream}' is stuck at {records[0]}{others}.",
            hint="fix the cause and run again: only the failed records run; or choose on_error='dead_letter'",
        )
        self.stream, self.records = stream, tuple(records)


class HealingFailed(FloodmarkError):
    """A turn of a stream could not be run to its end; what was settled until then stays settled."""

    def __init__(self, stream: str, *, reason: str, hint: str = "") -> None:
        super().__init__(
            f"the steps of stream '{stream}' could not be run on Spark: {reason}",
            hint=hint or "fix the cause and run again: what is settled does not run again",
        )
        self.stream, self.reason = stream, reason


class PublicationFailed(FloodmarkError):
    """A consumer group's offsets could not be published: lag tools see old ones, and no record is lost or repeated."""

    def __init__(self, group: str, *, reason: str) -> None:
        super().__init__(
            f"the offsets of group '{group}' could not be published: {reason.rstrip('.')}. The mark has moved.",
            hint="let no other consumer be a member of this group, or heal with ignore=True",
        )
        self.group, self.reason = group, reason


class SparkUnavailable(FloodmarkError):
    """No Spark session could be started."""


class JavaMissing(SparkUnavailable):
    """No Java 17 or 21 was found."""

    def __init__(self, *, found: str | None, command: str) -> None:
        what = (
            f"found {found}, but Spark needs Java 17 or 21"
            if found
            else "Spark needs Java 17 or 21, and none was found"
        )
        super().__init__(f"{what}.", hint=command)
        self.found, self.command = found, command


class ConnectorsMissing(SparkUnavailable):
    """The JVM connectors could not be resolved."""

    def __init__(self, *, missing: Sequence[str], reason: str) -> None:
        super().__init__(
            f"could not resolve {', '.join(missing)}: {reason}.",
            hint="run again with a network; behind a mirror set FLOODMARK_IVY_SETTINGS to an ivysettings.xml; "
            "on a cluster that brings its own connectors set FLOODMARK_CONNECTORS=none",
        )
        self.missing, self.reason = tuple(missing), reason


class SinkFailed(FloodmarkError):
    """A sink could not be written; the mark did not move."""

    def __init__(self, job: str, *, sink: str, reason: str, hint: str = "") -> None:
        super().__init__(
            f"sink '{sink}' of job '{job}' could not be written: {reason}",
            hint=f"{hint or 'fix the cause'} and run again: the same batch is finished, nothing is written twice",
        )
        self.job, self.sink, self.reason = job, sink, reason


class NumbersDisagree(FloodmarkError):
    """Rows that were handed over and rows that came out are not as many; the batch is not done and stays open."""

    def __init__(self, job: str, *, number: int, expected: int, counted_by: str, found: Mapping[str, int]) -> None:
        others = " and ".join(f"{place} has {rows}" for place, rows in found.items())
        super().__init__(
            f"batch {number} of job '{job}' is not done: by {counted_by} it has {expected} rows, and {others}. "
            "The mark stays where it is.",
            hint="find where rows were lost or came twice (a disk that not all executors share, another writer), then "
            f"`floodmark run --select {job} --full-refresh`; or `--abandon`, which reads the span again as a new batch "
            "(append sinks that have rows of this one get them a second time)",
        )
        self.job, self.number, self.expected, self.found = job, number, expected, dict(found)


class DiskNotShared(SinkFailed):
    """A task runs on a machine that does not see the folder of the driver: its rows would be left out."""

    def __init__(self, job: str, *, sink: str, reason: str) -> None:
        super().__init__(job, sink=sink, reason=f"{reason}, which the driver made. Nothing was written.")
        self.hint = (
            "put the folder on a disk that the driver and all executors share, use a sink of type delta on an object "
            "store, or run with master local[*]"
        )


class ConflictingEvents(SinkFailed):
    """Two events of one key and moment say different things; nothing was written."""

    def __init__(self, job: str, *, sink: str, key: str, sequence: str) -> None:
        super().__init__(job, sink=sink, reason=f"events of key {key} at {sequence} contradict each other")
        self.hint = "fix them, name one more column in `sequence`, or set `on_conflict` to quarantine or last_arrival"
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

    def __init__(
        self,
        target: str,
        *,
        reason: str,
        hint: str = "",
    ) -> None:
        known = hint or server_hint(reason) or "check that the server runs and lets this role in"
        again = "" if hint else "; then run again: nothing is written twice"
        super().__init__(f"{target} cannot be used: {reason}.", hint=f"{known}{again}")
        self.target, self.reason = target, reason
