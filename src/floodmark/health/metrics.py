"""The numbers of a project for Prometheus: of what is stored, and of a loop while it runs.

What nobody recorded is absent, and not 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from floodmark.errors import FloodmarkError
from floodmark.health.checks import JobFacts
from floodmark.health.report import HOUR
from floodmark.health.tables import TableFacts, TableLooks
from floodmark.logs import get_logger
from floodmark.stores.paged import utc_now
from floodmark.stores.record import UPKEEP
from floodmark.stores.run_index import run_ends, runs_since_done

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from floodmark.health.report import JobWatch, TableWatch, Watch
    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import Receipt
    from floodmark.stores.run_index import RunEnd


log = get_logger(__name__)
UPKEEPS_READ = 100
SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
"""The buckets of a run's duration."""
RESOURCES = ("cpu_seconds", "peak_memory_bytes", "shuffle_bytes", "spill_bytes")
HELP = {
    "pipeline_start_count": "runs whose receipts are kept",
    "pipeline_error_count": "failed runs whose receipts are kept",
    "pipeline_retry_count": "runs, among those kept, after a failed one, or that finished its batch",
    "pipeline_duration_seconds": "how long the last run took",
    "pipeline_records_processed": "rows that the last run read",
    "rows_held_back": "rows that the last run left for later",
    "dead_letter_count": "records that the last run could not parse or gave up",
    "validation_failure_count": "rows of the last batch that broke a rule",
    "mark_lag_seconds": "since the job last knew that it was up to date",
    "mark_lag_rows": "rows above the mark that the source has now, as it tells them",
    "step_cpu_seconds": "CPU time of Spark's tasks in the last run",
    "step_peak_memory_bytes": "the highest execution memory of one of its stages",
    "step_shuffle_bytes": "what its tasks read and wrote for shuffles",
    "step_spill_bytes": "what they spilled, in memory and on disk",
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
    watch: Watch,
    store: MarkStore,
    now: datetime,
    rows_behind: Mapping[str, int] | None = None,
    tables: TableLooks | None = None,
) -> list[Sample]:
    """Everything that the store and the tables' logs tell, sorted by name. Raises StoreUnreachable.

    `rows_behind` says of jobs whose source was asked how many rows it has above the mark. Who is asked again and again
    keeps `tables`.
    """
    looks = (tables or TableLooks()).look_at_all(watch.tables)
    of_tables = (sample for facts in looks for sample in _of_table(facts, now))
    of_jobs = (sample for job in watch.jobs for sample in _of_job(job, store, now))
    found = [*of_tables, *of_jobs, *_behind(rows_behind or {}), *_of_upkeep(watch, store)]
    return sorted(found, key=_place)


def _place(sample: Sample) -> tuple[str, list[tuple[str, str]]]:
    return sample.name, sorted(sample.labels.items())


def _behind(rows_behind: Mapping[str, int]) -> list[Sample]:
    return [Sample("mark_lag_rows", {"job": job}, rows) for job, rows in rows_behind.items()]


@dataclass(frozen=True, eq=False)
class Samples(Collector):
    """Numbers that are there already, each name a gauge: receipts are cleaned up, so their counts may sink."""

    samples: tuple[Sample, ...]

    def collect(self) -> Iterator[Metric]:
        for name, alike in groupby(self.samples, lambda sample: sample.name):
            values = list(alike)
            family = GaugeMetricFamily(name, HELP[name], labels=list(values[0].labels))
            for each in values:
                family.add_metric(list(each.labels.values()), each.value)
            yield family


def exposition(samples: Iterable[Sample]) -> str:
    """The samples, already sorted, in the text form that Prometheus reads."""
    registry = CollectorRegistry()
    registry.register(Samples(tuple(samples)))
    return generate_latest(registry).decode()


@dataclass(eq=False)
class StoredNumbers(Collector):
    """What the store and the tables tell beside a loop, as its last commits left them.

    A table is looked at once its job has committed: a sink has the rows of a batch before the mark has moved.
    """

    watch: Watch
    store: MarkStore
    tables_of: Mapping[str, Sequence[TableWatch]]
    """By job, the tables that it fills; those that no job fills are looked at with any."""
    rows_behind: Callable[[], Mapping[str, int]] = dict
    now: Callable[[], datetime] = utc_now
    _looks: TableLooks = field(default_factory=TableLooks)
    _tables: dict[str, TableFacts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._look_at(self.watch.tables)

    def committed(self, job: str) -> None:
        """A batch of the job is committed."""
        filled = {table.name for tables in self.tables_of.values() for table in tables}
        nobodys = [table for table in self.watch.tables if table.name not in filled]
        self._look_at([*self.tables_of.get(job, ()), *nobodys])

    def collect(self) -> Iterator[Metric]:
        """For a scraper; a store that cannot be reached has no numbers, and the loop shows its own all the same."""
        try:
            samples = sorted(self._samples(), key=_place)
        except FloodmarkError as error:
            log.warning("a loop shows its own numbers only", reason=error.message)
            return
        yield from Samples(tuple(samples)).collect()

    def _samples(self) -> list[Sample]:
        now = self.now()
        of_tables = [sample for facts in list(self._tables.values()) for sample in _of_table(facts, now)]
        lags = [sample for job in self.watch.jobs for sample in _lag(self._facts(job.name), job.name, now)]
        return [*of_tables, *lags, *_behind(self.rows_behind()), *_of_upkeep(self.watch, self.store)]

    def _facts(self, job: str) -> JobFacts:
        return JobFacts(self.store.read(job), (), self.store.last_looked(job))

    def _look_at(self, tables: Sequence[TableWatch]) -> None:
        self._tables |= {facts.name: facts for facts in self._looks.look_at_all(tables)}


class LoopMetrics:
    """What a loop counts while it runs; a number moves only once its batch is committed, or its run has failed."""

    def __init__(self, stored: StoredNumbers | None = None) -> None:
        self.registry = CollectorRegistry()
        self._stored = stored
        if stored is not None:
            self.registry.register(stored)
        job = ["job"]
        self._runs = Counter("pipeline_start_count", "runs of this process", job, registry=self.registry)
        self._errors = Counter("pipeline_error_count", "of them, those that failed", job, registry=self.registry)
        self._retries = Counter(
            "pipeline_retry_count",
            "runs after a failed one, or that finished its batch",
            job,
            registry=self.registry,
        )
        self._rows = Counter("pipeline_records_processed", "rows read and committed", job, registry=self.registry)
        self._dead = Counter("dead_letter_count", "records given up", job, registry=self.registry)
        self._broken = Counter(
            "validation_failure_count", "rows that broke a rule", ["job", "rule", "action"], registry=self.registry
        )
        self._seconds = Histogram(
            "pipeline_duration_seconds", "how long runs took", job, buckets=SECONDS, registry=self.registry
        )
        self._held = Gauge("rows_held_back", "rows that the last look left for later", job, registry=self.registry)
        self._last_good = Gauge(
            "pipeline_last_success_timestamp_seconds", "when the job last was up to date", job, registry=self.registry
        )
        self._used = {
            name: Gauge(f"step_{name}", HELP[f"step_{name}"], job, registry=self.registry) for name in RESOURCES
        }
        self._failed: set[str] = set()

    def count(self, receipt: Receipt) -> None:
        """A run that has ended; a look that found nothing is no run."""
        job = receipt.job
        self._held.labels(job).set(receipt.rows_held_back)
        if receipt.status != "failed":
            self._last_good.labels(job).set(receipt.started.timestamp() + receipt.seconds)
        if receipt.status == "nothing_new":
            return
        self._runs.labels(job).inc()
        self._errors.labels(job).inc(receipt.status == "failed")
        self._retries.labels(job).inc(receipt.recovered or job in self._failed)
        (self._failed.add if receipt.status == "failed" else self._failed.discard)(job)
        if receipt.status == "done":
            self._count_batch(receipt)
            if self._stored is not None:
                self._stored.committed(job)

    def _count_batch(self, receipt: Receipt) -> None:
        job = receipt.job
        self._rows.labels(job).inc(receipt.rows_read)
        self._dead.labels(job).inc(receipt.rows_dead)
        self._seconds.labels(job).observe(receipt.seconds)
        for name, used in receipt.resources.items():
            if name in self._used:
                self._used[name].labels(job).set(used)
        for rule in receipt.rules:
            self._broken.labels(job, rule.name, rule.action).inc(rule.failed)


def _of_table(facts: TableFacts, now: datetime) -> Iterator[Sample]:
    labels = {"table": facts.name}
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
    ends, labels = run_ends(store, job.name), {"job": job.name}
    yield Sample("pipeline_start_count", labels, len(ends))
    yield Sample("pipeline_error_count", labels, sum(end.status == "failed" for end in ends))
    yield Sample("pipeline_retry_count", labels, count_retries(ends))
    facts = JobFacts(store.read(job.name), runs_since_done(store, job.name, ends), store.last_looked(job.name))
    yield from _lag(facts, job.name, now)
    last = facts.last_of("done")
    if last is not None:
        yield from _of_run(last, labels)


def _lag(facts: JobFacts, job: str, now: datetime) -> Iterator[Sample]:
    sign = facts.last_sign()
    if sign is not None:
        yield Sample("mark_lag_seconds", {"job": job}, (now - sign).total_seconds())


def count_retries(runs: Sequence[Receipt | RunEnd]) -> int:
    """Of runs, newest first: those that come after a failed one, or finished a batch that an earlier one had begun."""
    after_failure = sum(earlier.status == "failed" and not run.recovered for run, earlier in pairwise(runs))
    return after_failure + sum(run.recovered for run in runs)


def _of_run(last: Receipt, labels: Mapping[str, str]) -> Iterator[Sample]:
    yield from (Sample(f"step_{name}", labels, used) for name, used in last.resources.items() if f"step_{name}" in HELP)
    yield Sample("pipeline_duration_seconds", labels, last.seconds)
    yield Sample("pipeline_records_processed", labels, last.rows_read)
    yield Sample("rows_held_back", labels, last.rows_held_back)
    yield Sample("dead_letter_count", labels, last.rows_dead)
    for rule in last.rules:
        yield Sample("validation_failure_count", {**labels, "rule": rule.name, "action": rule.action}, rule.failed)
