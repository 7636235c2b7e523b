"""Pace: the last batch of a job against the median of those before it."""

from __future__ import annotations

from statistics import median

from floodmark.health.findings import Finding
from floodmark.health.offsets import JobFacts
from floodmark.health.watch import JobWatch
from floodmark.hwm import Json

COMPARED = 10
FEWEST = 3
NOTICEABLE_SECONDS = 1.0
"""Below this, twice as long is noise."""


def performance(job: JobWatch, facts: JobFacts) -> Finding | None:
    """Slower than its limit's factor in both seconds and seconds per row, so that a larger batch is not blamed."""
    done = [run for run in facts.runs if run.status == "done"][: COMPARED + 1]
    if not done:
        return None
    last, before = done[0], done[1:]
    told: dict[str, Json] = {"seconds": last.seconds, "rows_per_second": _rate(last.rows_read, last.seconds)}
    if len(before) < FEWEST:
        return Finding("performance_metrics", job.name, "HEALTHY", "too few runs to compare", told, "slow_run")
    usual = median(run.seconds for run in before)
    rate = median(run.rows_read / max(run.seconds, 1e-3) for run in before)
    told |= {"median_seconds": round(usual, 3), "median_rows_per_second": round(rate, 1)}
    is_long = last.seconds > max(usual * job.limits.slow_factor, NOTICEABLE_SECONDS)
    is_slow = last.rows_read / max(last.seconds, 1e-3) * job.limits.slow_factor < rate
    if not (is_long and is_slow):
        return Finding("performance_metrics", job.name, "HEALTHY", f"{last.seconds:.1f} s", told, "slow_run")
    message = f"{last.seconds:.1f} s for {last.rows_read} rows, usually {usual:.1f} s"
    advice = f"{job.name}: its `durations` in `floodmark runs --job {job.name} --json` show where the time went"
    return Finding("performance_metrics", job.name, "WARNING", message, told, "slow_run", advice)


def _rate(rows: int, seconds: float) -> float:
    return round(rows / max(seconds, 1e-3), 1)
