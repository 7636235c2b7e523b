"""Quality: what the last run of each job refused or could not parse."""

from __future__ import annotations

from floodmark.health.findings import Finding
from floodmark.health.offsets import JobFacts
from floodmark.health.watch import JobWatch
from floodmark.hwm import Json


def quality(job: JobWatch, facts: JobFacts) -> Finding | None:
    """How the rows of the last batch did, rule by rule; None if there was no batch yet."""
    last = facts.last_of("done")
    if last is None:
        return None
    bad = last.rows_refused + last.rows_dead
    kept = 1.0 if not last.rows_read else 1 - bad / last.rows_read
    failed: dict[str, Json] = {rule.name: rule.failed for rule in last.rules}
    told: dict[str, Json] = {
        "rows_read": last.rows_read,
        "rows_refused": last.rows_refused,
        "rows_dead": last.rows_dead,
    }
    told |= {"score": round(kept if last.score is None else last.score, 4), "failed_by_rule": failed}
    broken = [name for name, count in failed.items() if count]
    if not bad and not broken:
        return Finding("data_quality", job.name, "HEALTHY", "every row was kept", told, "quality")
    message = f"{last.rows_refused} rows refused and {last.rows_dead} dead of {last.rows_read}"
    message += f"; broken: {', '.join(broken)}" if broken else ""
    advice = f"{job.name}: look at what it put aside with `floodmark quarantine list` and `floodmark deadletters list`"
    kind = "dead_letters" if last.rows_dead else "quality"
    return Finding("data_quality", job.name, "WARNING", message, told, kind, advice)
