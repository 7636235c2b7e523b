"""What is watched and with which limits, and what an examination finds: a finding per check and subject, a report."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from floodmark.hwm import Json

Status = Literal["HEALTHY", "UNKNOWN", "WARNING", "CRITICAL"]
"""UNKNOWN: it could not be looked at, which is neither good nor bad news, and makes the whole a WARNING."""
Check = Literal["data_freshness", "record_counts", "data_quality", "processing_offsets", "performance_metrics"]
CHECKS: tuple[Check, ...] = (
    "data_freshness", "record_counts", "data_quality", "processing_offsets", "performance_metrics",
)  # fmt: skip
SEVERITY: tuple[Status, ...] = ("HEALTHY", "UNKNOWN", "WARNING", "CRITICAL")
HOUR = 3600.0
SUBJECTS_NAMED = 3
NOTHING_WATCHED = "there is nothing to look at: add jobs to the project, or tables under `health: {tables: …}`"


@dataclass(frozen=True)
class Limits:
    """The limits beyond which a table or a job is not healthy.

    >>> Limits(freshness_seconds=3600, min_rows=1000).count_change
    0.5
    """

    freshness_seconds: float = 24 * HOUR
    """A table is FRESH below this age, STALE below twice of it, VERY_STALE above."""
    lag_seconds: float = 72 * HOUR
    min_rows: int = 1
    count_change: float = 0.5
    """The part by which a table may grow or shrink between two looks."""
    slow_factor: float = 2.0


@dataclass(frozen=True)
class TableWatch:
    """A Delta table by its folder or address.

    >>> TableWatch("orders", "/lake/orders", Limits(freshness_seconds=3600)).where
    '/lake/orders'
    """

    name: str
    where: str
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class JobWatch:
    """A job. `keeps_rows`: every row that it reads is written, refused or dead, so the numbers must agree.

    >>> JobWatch("orders", Limits(lag_seconds=3600), keeps_rows=True).limits.lag_seconds
    3600
    """

    name: str
    limits: Limits = field(default_factory=Limits)
    keeps_rows: bool = False


@dataclass(frozen=True)
class Watch:
    """What an examination looks at.

    >>> Watch(tables=(TableWatch("orders", "/lake/orders"),), jobs=(JobWatch("orders"),)).limits == Limits()
    True
    """

    tables: tuple[TableWatch, ...] = ()
    jobs: tuple[JobWatch, ...] = ()
    limits: Limits = field(default_factory=Limits)
    """For streams, which nobody has to name."""


@dataclass(frozen=True)
class SinkUnseen:
    """A sink that could not be asked which batches it has, and why; `needs_session`: without Spark it never can."""

    job: str
    sink: str
    reason: str
    needs_session: bool = False


@dataclass(frozen=True)
class Finding:
    """The result of one check of one table or job. `kind` is that of its alert, `advice` says what to do.

    >>> Finding("lag", "orders", "CRITICAL", "90 h behind", advice="run the job orders").severity
    3
    """

    check: Check
    subject: str
    status: Status
    message: str
    facts: Mapping[str, Json] = field(default_factory=dict)
    kind: str = ""
    advice: str | None = None

    @property
    def severity(self) -> int:
        """The higher, the worse."""
        return SEVERITY.index(self.status)

    def serialize(self) -> dict[str, Json]:
        return {"status": self.status, "message": self.message, **self.facts}


@dataclass(frozen=True)
class Report:
    """What one examination found.

    >>> late = Finding("lag", "orders", "CRITICAL", "90 h behind", advice="run the job orders")
    >>> report = Report(datetime(2026, 1, 3), (late,))
    >>> report.overall, report.recommendations()
    ('CRITICAL', ['run the job orders'])
    """

    timestamp: datetime
    findings: tuple[Finding, ...]

    @property
    def overall(self) -> Status:
        """The worst of all; not to know is a warning, also where there was nothing to look at."""
        found = worst([finding.status for finding in self.findings])
        return "WARNING" if found == "UNKNOWN" or not self.findings else found

    def recommendations(self) -> list[str]:
        """What may be done, the worst first, each once."""
        ranked = sorted(self.findings, key=lambda finding: -finding.severity)
        advice = list(dict.fromkeys(f.advice for f in ranked if f.advice and f.status != "HEALTHY"))
        return advice if self.findings else [NOTHING_WATCHED]

    def advice(self) -> list[str]:
        """As `recommendations`, for people: what is the same for several subjects stands there once."""
        problems = [each for each in self.findings if each.status != "HEALTHY"]
        return advice_lines(sorted(problems, key=lambda each: -each.severity)) if self.findings else [NOTHING_WATCHED]

    def serialize(self) -> dict[str, Json]:
        """The document that `floodmark health --json` prints."""
        return {
            "timestamp": self.timestamp.isoformat(),
            "overall_status": self.overall,
            "checks": {check: self._check(check) for check in CHECKS},
            "recommendations": list(self.recommendations()),
        }

    def _check(self, check: Check) -> dict[str, Json]:
        of_it = [finding for finding in self.findings if finding.check == check]
        subjects: dict[str, Json] = {finding.subject: finding.serialize() for finding in of_it}
        return {"status": worst([finding.status for finding in of_it]), "subjects": subjects}


def worst(statuses: Sequence[Status]) -> Status:
    """The worst of them; nothing at all is well."""
    return max(statuses, key=SEVERITY.index, default="HEALTHY")


def advice_lines(findings: Sequence[Finding]) -> list[str]:
    """What may be done, in the order of the findings; what is the same for several subjects, once."""
    same: dict[str, dict[str, str]] = {}
    for each in findings:
        if each.advice:
            rest = each.advice.removeprefix(f"{each.subject}: ")
            if each.subject in rest:
                rest = re.sub(rf"(?<![\w.]){re.escape(each.subject)}(?![\w.])", "NAME", rest)
            same.setdefault(rest, {})[each.subject] = each.advice
    return [
        next(iter(own.values())) if len(own) == 1 else f"{subjects_text(list(own))}: {rest}"
        for rest, own in same.items()
    ]


def subjects_text(names: Sequence[str]) -> str:
    """Names; of many, the first and how many more there are."""
    rest = len(names) - SUBJECTS_NAMED
    return ", ".join(names[:SUBJECTS_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")
