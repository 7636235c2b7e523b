"""Freshness: how long ago the rows of a table last changed."""

from __future__ import annotations

from datetime import datetime

from floodmark.health.findings import Finding, Status
from floodmark.health.tables import TableFacts
from floodmark.health.watch import HOUR, TableWatch
from floodmark.hwm import Json


def freshness(table: TableWatch, facts: TableFacts, now: datetime) -> Finding:
    """FRESH below the limit, STALE below twice the limit, VERY_STALE above."""
    if facts.error or not facts.exists or facts.changed is None:
        why = f"could not look: {facts.error}" if facts.error else "there is no such table"
        return Finding("data_freshness", table.name, "CRITICAL", why, {"freshness": None}, "stale", _advice(table))
    age = max(0.0, (now - facts.changed).total_seconds())
    word, status = _grade(age, table.limits.freshness_seconds)
    told: dict[str, Json] = {
        "freshness": word,
        "age_hours": round(age / HOUR, 2),
        "last_change": facts.changed.isoformat(),
    }
    message = f"{word}: rows last changed {age / HOUR:.1f} h ago"
    return Finding("data_freshness", table.name, status, message, told, "stale", _advice(table))


def _grade(age: float, limit: float) -> tuple[str, Status]:
    if age < limit:
        return "FRESH", "HEALTHY"
    return ("STALE", "WARNING") if age < 2 * limit else ("VERY_STALE", "CRITICAL")


def _advice(table: TableWatch) -> str:
    return f"{table.name}: run the job that fills it, and look at `floodmark runs` for why it did not"
