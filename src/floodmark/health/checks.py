"""Marks: how long ago each job last moved its mark or looked and found nothing, and whether its last run failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from floodmark.health.findings import Finding, Status
from floodmark.health.watch import HOUR, JobWatch
from floodmark.hwm import Json
from floodmark.stores.record import JobRecord, Receipt

OPEN_TOO_LONG = timedelta(hours=1)
ERROR_SHOWN = 300
MOMENT = "%Y-%m-%d %H:%M UTC"
PENDING, HELD = "pending", "held"
"""Under which the record of a job keeps that rows of a source wait for a transaction of somebody else."""
HEALING = "healing"
"""What the record of a stream holds beside its marks: what was done ahead of them."""


@dataclass(frozen=True)
class JobFacts:
    """What the store says of a job; `runs` are newest first."""

    record: JobRecord | None = None
    runs: tuple[Receipt, ...] = ()
    looked: datetime | None = None

    def last_of(self, status: str) -> Receipt | None:
        return next((run for run in self.runs if run.status == status), None)

    def is_a_stream(self) -> bool:
        return self.record is not None and HEALING in self.record.extras

    def held(self) -> Mapping[str, Json] | None:
        """What a source said of rows that wait for somebody: how many, since when and why."""
        kept = (self.record.extras if self.record else {}).values()
        pending = [each.get(PENDING) for each in kept if isinstance(each, dict)]
        held = [each.get(HELD) for each in pending if isinstance(each, dict)]
        return next((each for each in held if isinstance(each, dict)), None)

    def last_sign(self) -> datetime | None:
        """When the job last knew that it was up to date."""
        moved = self.record.modified_time if self.record else None
        return max((each for each in (moved, self.looked) if each is not None), default=None)


def processing_offset(job: JobWatch, facts: JobFacts, now: datetime) -> Finding:
    """A failed last run is worst; then a mark that does not move, an open batch, rows that are held back."""
    told, sign = _told(facts, now), facts.last_sign()
    last = facts.runs[0] if facts.runs else None
    if last is not None and last.status == "failed" and (sign is None or last.started > sign):
        when = f" on {last.started:{MOMENT}}" if facts.is_a_stream() else ""  # its error tells ages of that moment
        message = f"its last run failed{when}: {(last.error or '')[:ERROR_SHOWN]}"
        advice = f"{job.name}: mend what its last run says, then {_run(job, facts)}"
        return Finding("processing_offsets", job.name, "CRITICAL", message, told, "failed_run", advice)
    waiting = facts.held()
    if sign is None and waiting is not None:  # its first rows wait
        return _waiting(job, waiting, now, told)
    if sign is None:
        advice = f"{job.name}: {_run(job, facts)}"
        return Finding("processing_offsets", job.name, "WARNING", "it has never run", told, "lag", advice)
    age = (now - sign).total_seconds()
    if age > job.limits.lag_seconds:
        message = f"its mark has not been looked after for {age / HOUR:.1f} h"
        advice = f"{job.name}: is its loop or schedule alive? {_run(job, facts)}"
        return Finding("processing_offsets", job.name, "WARNING", message, told, "lag", advice)
    return _open_or_held(job, facts, now, told)


def _open_or_held(job: JobWatch, facts: JobFacts, now: datetime, told: dict[str, Json]) -> Finding:
    intent = facts.record.intent if facts.record else None
    if intent is not None and now - intent.batch_time > OPEN_TOO_LONG:
        message = f"batch {intent.number} has been open since {intent.batch_time:{MOMENT}}"
        advice = f"{job.name}: {_run(job, facts)}, which finishes the open batch"
        return Finding("processing_offsets", job.name, "WARNING", message, told, "stuck", advice)
    if facts.is_a_stream() and facts.runs and facts.runs[0].notes:
        last = facts.runs[0]
        message = f"records wait to be healed, as of {last.started:{MOMENT}}: {'; '.join(last.notes)}"
        advice = f"{job.name}: mend what fails these records; `floodmark deadletters list` shows what was given up"
        return Finding("processing_offsets", job.name, "WARNING", message, told, "stuck", advice)
    waiting = facts.held()
    if waiting is not None:
        return _waiting(job, waiting, now, told)
    held = facts.runs[0].rows_held_back if facts.runs else 0
    if held:
        message = f"{held} rows are held back: {'; '.join(facts.runs[0].notes)}"
        return Finding("processing_offsets", job.name, "HEALTHY", message, told, "stuck")
    return Finding("processing_offsets", job.name, "HEALTHY", "its mark is looked after", told, "lag")


def _waiting(job: JobWatch, held: Mapping[str, Json], now: datetime, told: dict[str, Json]) -> Finding:
    """Rows that wait for a transaction; one that lasts for an hour was probably forgotten."""
    since = datetime.fromisoformat(str(held["since"]))
    message = f"{held['rows']} rows are held back since {since:{MOMENT}}: they {held['reason']}"
    advice = f"{job.name}: end the transaction that holds its rows back, or choose another `safety`"
    status: Status = "WARNING" if now - since > OPEN_TOO_LONG else "HEALTHY"
    return Finding("processing_offsets", job.name, status, message, {**told, "held_back": dict(held)}, "stuck", advice)


def _run(job: JobWatch, facts: JobFacts) -> str:
    """How it is run: a stream is the user's own program."""
    return "start the program of this stream" if facts.is_a_stream() else f"`floodmark run --select {job.name}`"


def _told(facts: JobFacts, now: datetime) -> dict[str, Json]:
    sign, record = facts.last_sign(), facts.record
    marks: dict[str, Json] = {source: mark.show() for source, mark in record.marks.items()} if record else {}
    return {
        "marks": marks,
        "number": record.number if record else 0,
        "lag_hours": round((now - sign).total_seconds() / HOUR, 2) if sign else None,
        "last_run": facts.runs[0].status if facts.runs else None,
    }
