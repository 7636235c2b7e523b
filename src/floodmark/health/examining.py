"""One examination: look at every table and job once, and let every check judge what was seen."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from floodmark.health.counts import rows_agree, table_count
from floodmark.health.findings import Finding, Report
from floodmark.health.freshness import freshness
from floodmark.health.offsets import HEALING, JobFacts, processing_offset
from floodmark.health.performance import COMPARED, performance
from floodmark.health.quality import quality
from floodmark.health.tables import TableFacts, look_at
from floodmark.health.watch import JobWatch

if TYPE_CHECKING:
    from floodmark.health.watch import TableWatch, Watch
    from floodmark.stores.contract import MarkStore

RUNS_READ = 5 * COMPARED
"""Failed runs stand between those that are compared."""


def examine(watch: Watch, store: MarkStore, now: datetime, counts_before: Mapping[str, int] | None = None) -> Report:
    """The report of this moment. Raises StoreUnreachable: marks that could not be read are not healthy marks."""
    facts = [(table, look_at(table)) for table in watch.tables]
    findings = [finding for table, seen in facts for finding in _of_table(table, seen, now, counts_before or {})]
    for job in [*watch.jobs, *_streams(watch, store)]:
        known = JobFacts(store.read(job.name), tuple(store.runs(job.name, RUNS_READ)), store.last_looked(job.name))
        findings += _of_job(job, known, now)
    return Report(now, tuple(findings))


def _streams(watch: Watch, store: MarkStore) -> list[JobWatch]:
    """Streams stand in no project file: the store knows which there are."""
    known = {job.name for job in watch.jobs}
    records = {name: store.read(name) for name in store.jobs() if name not in known}
    return [JobWatch(name, watch.limits) for name, record in records.items() if record and HEALING in record.extras]


def row_counts(report: Report) -> dict[str, int]:
    """The tables' counts, for the next examination to compare with."""
    counted = [f for f in report.findings if f.check == "record_counts" and "rows_before" in f.facts]
    return {f.subject: rows for f in counted if isinstance(rows := f.facts["rows"], int)}


def _of_table(table: TableWatch, facts: TableFacts, now: datetime, before: Mapping[str, int]) -> list[Finding]:
    return [freshness(table, facts, now), table_count(table, facts, before.get(table.name))]


def _of_job(job: JobWatch, facts: JobFacts, now: datetime) -> list[Finding]:
    found = (
        rows_agree(job, facts.last_of("done")),
        quality(job, facts),
        processing_offset(job, facts, now),
        performance(job, facts),
    )
    return [finding for finding in found if finding is not None]
