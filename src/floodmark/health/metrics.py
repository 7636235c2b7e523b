"""The numbers of a project in the text form that Prometheus reads; what nobody recorded is absent, and not 0."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING

from floodmark.health.checks import JobFacts, look_at
from floodmark.health.report import HOUR
from floodmark.stores.record import UPKEEP

if TYPE_CHECKING:
    from floodmark.health.report import JobWatch, TableWatch, Watch
    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import Receipt


RUNS_COUNTED = 10_000
UPKEEPS_READ = 100
HELP = {
    "pipeline_start_count": "runs whose receipts are kept",
    "pipeline_error_count": "failed runs whose receipts are kept",
    "pipeline_retry_count": "runs, among those kept, that finished a batch which an earlier one had begun",
    "pipeline_duration_seconds": "how long the last run took",
    "pipeline_records_processed": "rows that the last run read",
    "rows_held_back": "rows that the last run left for later",
    "dead_letter_count": "records that the last run could not parse or gave up",
    "validation_failure_count": "rows of the last batch that broke a rule",
    "mark_lag_seconds": "since the job last knew that it was up to date",
    "mark_lag_rows": "rows above the mark that the source has now, as it tells them",
    "optimize_duration_seconds": "how long the last upkeep of the table took that did something",
    "data_age_hours": "since rows of the table last changed",
    "table_files": "files that the table is made of",
    "table_bytes": "their size",
}


@dataclass(frozen=True)
class Sample:
    """One number, of whom its labels say."""

    name: str
    labels: Mapping[str, str]
    value: float


def metrics(
    watch: Watch, store: MarkStore, now: datetime, rows_behind: Mapping[str, int] | None = None
) -> list[Sample]:
    """Everything that the store and the tables' logs tell, sorted by name. Raises StoreUnreachable.

    `rows_behind` says of jobs whose source was asked how many rows it has above the mark.
    """
    of_tables = (sample for table in watch.tables for sample in _of_table(table, now))
    of_jobs = (sample for job in watch.jobs for sample in _of_job(job, store, now))
    behind = (Sample("mark_lag_rows", {"job": job}, rows) for job, rows in (rows_behind or {}).items())
    found = [*of_tables, *of_jobs, *behind, *_of_upkeep(watch, store)]
    return sorted(found, key=lambda sample: (sample.name, sorted(sample.labels.items())))


def exposition(samples: Iterable[Sample]) -> str:
    """The samples, already sorted, with a line of help before each name."""
    lines: list[str] = []
    for name, alike in groupby(samples, lambda sample: sample.name):
        lines += [f"# HELP {name} {HELP[name]}", f"# TYPE {name} gauge"]
        lines += [f"{name}{_labels(each.labels)} {each.value:.15g}" for each in alike]
    return "\n".join([*lines, ""])


def _of_table(table: TableWatch, now: datetime) -> Iterator[Sample]:
    facts, labels = look_at(table), {"table": table.name}
    if facts.error or not facts.exists:
        return
    yield Sample("table_files", labels, facts.files or 0)
    yield Sample("table_bytes", labels, facts.bytes or 0)
    if facts.last_change is not None:
        yield Sample("data_age_hours", labels, max(0.0, (now - facts.last_change).total_seconds()) / HOUR)


def _of_upkeep(watch: Watch, store: MarkStore) -> Iterator[Sample]:
    runs = store.runs(UPKEEP, UPKEEPS_READ)
    for table in watch.tables:
        took = next((run.durations[table.name] for run in runs if table.name in run.durations), None)
        if took is not None:
            yield Sample("optimize_duration_seconds", {"table": table.name}, took)


def _of_job(job: JobWatch, store: MarkStore, now: datetime) -> Iterator[Sample]:
    runs, labels = tuple(store.runs(job.name, RUNS_COUNTED)), {"job": job.name}
    yield Sample("pipeline_start_count", labels, len(runs))
    yield Sample("pipeline_error_count", labels, sum(run.status == "failed" for run in runs))
    yield Sample("pipeline_retry_count", labels, sum(run.recovered for run in runs))
    facts = JobFacts(store.read(job.name), runs, store.last_looked(job.name))
    sign, last = facts.last_sign(), facts.last_of("done")
    if sign is not None:
        yield Sample("mark_lag_seconds", labels, (now - sign).total_seconds())
    if last is not None:
        yield from _of_run(last, labels)


def _of_run(last: Receipt, labels: Mapping[str, str]) -> Iterator[Sample]:
    yield Sample("pipeline_duration_seconds", labels, last.seconds)
    yield Sample("pipeline_records_processed", labels, last.rows_read)
    yield Sample("rows_held_back", labels, last.rows_held_back)
    yield Sample("dead_letter_count", labels, last.rows_dead)
    for rule in last.rules:
        yield Sample("validation_failure_count", {**labels, "rule": rule.name, "action": rule.action}, rule.failed)


def _labels(labels: Mapping[str, str]) -> str:
    pairs = (f'{name}="{_escape(value)}"' for name, value in labels.items())
    return f"{{{','.join(pairs)}}}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
