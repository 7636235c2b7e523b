"""Quality: what the last run of each job refused or could not parse."""

from __future__ import annotations

from floodmark.health.findings import Finding
from floodmark.health.offsets import JobFacts
from floodmark.health.watch import JobWatch


def quality(job: JobWatch, facts: JobFacts) -> Finding | None:
    """The share of rows that the last batch kept; None if there was none yet."""
    last = facts.last_of("done")
    if last is None:
        return None
    bad = last.rows_refused + last.rows_dead
    score = 1.0 if not last.rows_read else 1 - bad / last.rows_read
    told = {"rows_read": last.rows_read, "rows_refused": last.rows_refused, "rows_dead": last.rows_dead}
    scored = {**told, "score": round(score, 4)}
    if not bad:
        return Finding("data_quality", job.name, "HEALTHY", "every row was kept", scored, "quality")
    message = f"{last.rows_refused} rows refused and {last.rows_dead} dead of {last.rows_read}"
    advice = f"{job.name}: look at what it put aside with `floodmark runs --job {job.name} --json`"
    kind = "dead_letters" if last.rows_dead else "quality"
    return Finding("data_quality", job.name, "WARNING", message, scored, kind, advice)
