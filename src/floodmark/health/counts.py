"""Row counts: empty tables, tables below their minimum, jumps, and rows that went missing between read and written."""

from __future__ import annotations

from floodmark.health.findings import Finding
from floodmark.health.tables import TableFacts
from floodmark.health.watch import JobWatch, TableWatch
from floodmark.hwm import Json
from floodmark.stores.record import Receipt


def table_count(table: TableWatch, facts: TableFacts, before: int | None) -> Finding:
    """Against zero, the minimum, and the count of the last examination."""
    told = {"rows": facts.rows, "rows_before": before, "files": facts.files, "bytes": facts.bytes}
    advice = f"{table.name}: compare it with its source; `floodmark runs` shows what was written"

    def finding(status: str, message: str) -> Finding:
        return Finding("record_counts", table.name, status, message, told, "count", advice)  # type: ignore[arg-type]

    if facts.error or not facts.exists:
        return finding("CRITICAL", f"could not look: {facts.error}" if facts.error else "there is no such table")
    if facts.rows is None:
        return finding("HEALTHY", "its files do not tell how many rows they hold")
    if facts.rows == 0:
        return finding("CRITICAL" if table.limits.min_rows else "HEALTHY", "it is empty")
    if facts.rows < table.limits.min_rows:
        return finding("WARNING", f"{facts.rows} rows, at least {table.limits.min_rows} expected")
    change = abs(facts.rows - before) / before if before else 0.0
    if change > table.limits.count_change:
        return finding("WARNING", f"{facts.rows} rows, {before} at the last look: changed by {change:.0%}")
    return finding("HEALTHY", f"{facts.rows} rows")


def rows_agree(job: JobWatch, last: Receipt | None) -> Finding | None:
    """Rows read = written + refused + dead, for a job that keeps its rows; None where that says nothing."""
    if not job.keeps_rows or last is None or last.status != "done":
        return None
    out = {sink: rows + last.rows_refused + last.rows_dead for sink, rows in last.rows_written.items()}
    written: dict[str, Json] = dict(last.rows_written)
    told: dict[str, Json] = {"rows_read": last.rows_read, "rows_written": written, "rows_refused": last.rows_refused}
    missing = [f"{sink} {total - last.rows_read:+d}" for sink, total in out.items() if total != last.rows_read]
    if not missing:
        return Finding("record_counts", f"job {job.name}", "HEALTHY", "read = written + refused + dead", told)
    message = f"{last.rows_read} rows read, but the sinks differ: {', '.join(missing)}"
    advice = f"{job.name}: look at its last run with `floodmark runs --job {job.name} --json`"
    return Finding("record_counts", f"job {job.name}", "CRITICAL", message, told, "count", advice)
