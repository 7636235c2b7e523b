"""Errors of the work between source and sink: transforms, rules, tasks, healing, Spark itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from floodmark.errors.root import FloodmarkError


class TransformFailed(FloodmarkError):
    """The user's SQL or function raised; nothing was written."""

    def __init__(self, job: str, *, reason: str) -> None:
        super().__init__(
            f"the transform of job '{job}' failed: {reason}",
            hint=f"mend it and run again; `floodmark plan --select {job}`",
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
            hint="mend the rows at their source, or the rule, and run again; `action: quarantine` puts such rows aside",
        )
        self.job, self.rule, self.failed, self.checked, self.samples = job, rule, failed, checked, tuple(samples)
        self.results = tuple(results)
        """What every rule of the job gave, as a receipt keeps it."""


class TaskFailed(FloodmarkError):
    """The program that a task of a workflow runs ended badly."""

    def __init__(self, task: str, *, reason: str) -> None:
        super().__init__(
            f"task '{task}' failed: {reason}.", hint="mend it and run the workflow again: it takes what is missing"
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
            hint="mend the cause and run again: only the failed records run; or choose on_error='dead_letter'",
        )
        self.stream, self.records = stream, tuple(records)


class HealingFailed(FloodmarkError):
    """A turn of a stream could not be run to its end; what was settled until then stays settled."""

    def __init__(self, stream: str, *, reason: str) -> None:
        super().__init__(
            f"the steps of stream '{stream}' could not be run on Spark: {reason}",
            hint="mend the cause and run again: what is settled does not run again",
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
