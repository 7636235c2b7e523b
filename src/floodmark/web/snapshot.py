"""Everything that a report or a page shows, gathered without a JVM: health, marks, runs, lineage, rows put aside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, FloodmarkError, SourceUnreadable
from floodmark.health.checks import is_a_program
from floodmark.health.report import SEVERITY, worst
from floodmark.health.tables import TableLooks
from floodmark.hwm.mark import short_mark
from floodmark.jobs.workflow.memory import WorkflowState, last_run_in
from floodmark.lineage import Lineage, lineage_of
from floodmark.lineage.datasets import folder
from floodmark.lineage.flows import Parts
from floodmark.lineage.graph import Columns
from floodmark.probes.set_aside import Kind, SetAsideRow, rows_set_aside
from floodmark.project.health import examine_project, watch_of
from floodmark.stores.opening import STREAMS_FOLDER, folder_beside
from floodmark.stores.record import UPKEEP, JobRecord, Receipt
from floodmark.stores.run_index import RunEnd, run_ends
from floodmark.web.graph import Graph, graph_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from floodmark.health.report import Finding, Report, Status, Watch
    from floodmark.lineage import Dataset
    from floodmark.project.kinds import Site
    from floodmark.project.models import JobModel, Project
    from floodmark.stores.contract import MarkStore
    from floodmark.streams.healer.dead_letters import DeadLetters


RUNS_OF_A_JOB = 30
RUNS_IN_ALL_JOBS = 3_000
"""A project of very many jobs shows fewer runs of each, but never fewer than the next number."""
FEWEST_RUNS = 5
RUNS_OF_ALL = 300
ROWS_SHOWN = 20
PAUSE_BETWEEN_RUNS = 30.0
"""Seconds: receipts that follow each other more closely are of one call of `floodmark run`."""


@dataclass(frozen=True)
class MarkView:
    """How far one source of a job was read."""

    source: str
    kind: str
    text: str


@dataclass(frozen=True)
class AsideView:
    """What a job put aside of one kind: how many rows are open, for which reasons, and some of them.

    `error`: it could not be looked at, which is not the same as nothing.
    """

    job: str
    kind: Kind
    path: str
    open_rows: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    samples: tuple[SetAsideRow, ...] = ()
    error: str | None = None

    @property
    def needs_somebody(self) -> bool:
        return self.error is not None or self.open_rows > 0


@dataclass(frozen=True)
class JobView:
    """One job as it stands now."""

    name: str
    status: Status
    findings: tuple[Finding, ...]
    marks: tuple[MarkView, ...] = ()
    number: int = 0
    open_batch: int | None = None
    changed: datetime | None = None
    runs: tuple[Receipt, ...] = ()
    ends: tuple[RunEnd, ...] = ()
    """Of at least as many runs as `runs`, how they ended."""
    is_program: bool = False
    """A stream or a mill: a program of the user's runs it, so no page does."""

    @property
    def last(self) -> Receipt | None:
        return self.runs[0] if self.runs else None

    @property
    def last_judged(self) -> Receipt | None:
        """The last batch that rules have judged."""
        return next((run for run in self.runs if run.status == "done" and run.rules), None)

    @property
    def broke_rules(self) -> bool:
        """Whether that batch had rows which broke one."""
        return self.last_judged is not None and any(rule.failed for rule in self.last_judged.rules)

    @property
    def has_history(self) -> bool:
        """Whether there are batches to compare."""
        return sum(run.status == "done" for run in self.runs) > 1

    @property
    def lag(self) -> Finding | None:
        """What health says of its mark."""
        return next((each for each in self.findings if each.check == "processing_offsets"), None)


@dataclass(frozen=True)
class Snapshot:
    """A project at one moment.

    >>> from pathlib import Path
    >>> from floodmark.project import Project, Site
    >>> site, store = Site(Path(folder)), fm.stores.open("memory")
    >>> snapshot = take_snapshot(Project(), site, store, datetime.now(timezone.utc))
    >>> snapshot.jobs, snapshot.job("orders")
    ((), None)
    """

    title: str
    namespace: str
    store: str
    taken: datetime
    report: Report
    jobs: tuple[JobView, ...]
    graph: Graph
    lineage: Lineage
    runs: tuple[Receipt, ...] = ()
    """Of all jobs, newest first."""
    workflows: Mapping[str, WorkflowState] = field(default_factory=dict)
    """The last run of each."""
    asides: tuple[AsideView, ...] = ()
    alerts: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    """Of the project: paths are shown from here."""

    def job(self, name: str) -> JobView | None:
        return next((job for job in self.jobs if job.name == name), None)

    def worst_first(self) -> list[JobView]:
        """The jobs, those that need somebody before the others, each group in the order of the project."""
        return sorted(self.jobs, key=lambda job: -SEVERITY.index(job.status))

    def troubles(self) -> list[str]:
        """How many jobs are not healthy, the worst first: 1 critical, 2 warning."""
        found = Counter(job.status for job in self.jobs)
        return [f"{found[status]} {status.lower()}" for status in reversed(SEVERITY[1:]) if found[status]]

    def state(self) -> str:
        """A word that is another one as soon as a page would show something else."""
        seen = [(job.name, job.status, job.number, job.open_batch, job.last and job.last.started) for job in self.jobs]
        aside = [(each.job, each.kind, each.open_rows, each.error) for each in self.asides]
        return sha256(repr((seen, sorted(self.alerts), aside)).encode()).hexdigest()[:16]

    def newest_runs(self) -> tuple[Receipt, ...]:
        """As many as a page shows."""
        return self.runs[:RUNS_OF_ALL]

    def last_call(self) -> list[Receipt]:
        """The runs of the last call of `floodmark run`, the earliest first."""
        return call_of(self.runs)[::-1]


def call_of(newest_first: Sequence[Receipt]) -> list[Receipt]:
    """The runs that followed each other without a pause, up to the newest: a job that comes again ends the call."""
    found: list[Receipt] = []
    jobs: set[str] = set()
    for receipt in newest_first:
        pause = (found[-1].started - receipt.started).total_seconds() - receipt.seconds if found else 0.0
        if receipt.job in jobs or pause > PAUSE_BETWEEN_RUNS:
            break
        found.append(receipt)
        jobs.add(receipt.job)
    return found


def take_snapshot(
    project: Project,
    site: Site,
    store: MarkStore,
    now: datetime,
    scrub: Callable[[str], str] = str,
    known: KnownProject | None = None,
    *,
    runs_of_a_job: int | None = None,
) -> Snapshot:
    """Look at everything once. Raises StoreUnreachable: what could not be read is not shown as empty.

    A caller that looks repeatedly gives what is `known` from before.

    >>> from pathlib import Path
    >>> from floodmark.project import Project, Site
    >>> project, site, store = Project(), Site(Path(folder)), fm.stores.open("memory")
    >>> take_snapshot(project, site, store, datetime.now(timezone.utc)).report.overall  # nothing to look at
    'WARNING'
    """
    known = known or KnownProject()
    report, memory = examine_project(project, site, store, now, known.tables)
    names = [job.name for job in project.jobs]
    records = {name: store.read(name) for name in [*names, *store.jobs()]}
    streams = [name for name, record in records.items() if name not in names and is_a_program(record)]
    about = _findings_by_job(report)
    statuses = {name: worst([each.status for each in about.get(name, ())]) for name in [*names, *streams]}
    lineage, unread = known.lineage(project, site)

    shown = max(FEWEST_RUNS, min(RUNS_OF_A_JOB, RUNS_IN_ALL_JOBS // max(1, len(names))))

    def view(name: str) -> JobView:
        job = _job(name, records[name], about.get(name, ()), statuses[name])
        return replace(
            job, runs=tuple(store.runs(name, runs_of_a_job or shown)), ends=tuple(run_ends(store, name, shown))
        )

    return Snapshot(
        title=site.folder.name,
        namespace=store.namespace,
        store=scrub(store.describe()).replace(f"{site.folder}/", ""),
        taken=now,
        report=report,
        jobs=tuple(view(name) for name in [*names, *streams]),
        graph=graph_of(
            lineage, statuses, str(site.folder), unread, _findings_by_table(report, watch_of(project, site))
        ),
        lineage=lineage,
        runs=newest_runs(store),
        workflows={name: run for name, record in records.items() if (run := last_run_in(record)) is not None},
        asides=(*_asides(project, site), *letters_of_streams(folder_beside(store) / STREAMS_FOLDER)),
        alerts=memory.alerts,
        folder=str(site.folder),
    )


def newest_runs(store: MarkStore) -> tuple[Receipt, ...]:
    """The newest runs of all jobs, as far back as the last call goes and the run that was before it."""
    limit = RUNS_OF_ALL
    while True:
        found = store.runs(None, limit)
        runs = tuple(run for run in found if run.job != UPKEEP)
        if len(found) < limit or any(run.run for run in runs[len(call_of(runs)) :]):
            return runs
        limit *= 2


@dataclass
class KnownProject:
    """What stays the same between two looks at a project: tables whose logs did not grow, and the lineage while no
    table has other columns. Of one project: who loads another one begins anew."""

    tables: TableLooks = field(default_factory=TableLooks)
    _columns: dict[Dataset, list[str] | None] = field(default_factory=dict)
    _lineage: tuple[Lineage, dict[str, str]] | None = None

    def lineage(self, project: Project, site: Site) -> tuple[Lineage, dict[str, str]]:
        """The lineage of the jobs whose SQL can be read, and of the others why not."""
        if self._lineage is None or any(self._read(dataset) != names for dataset, names in self._columns.items()):
            columns = Columns(read=self.tables.columns)
            self._lineage = lineage_as_far_as_known([Parts.of_model(model, site) for model in project.jobs], columns)
            self._columns = columns.stored
        return self._lineage

    def _read(self, dataset: Dataset) -> list[str] | None:
        return self.tables.columns(dataset.name) if dataset.namespace == "file" else None


def lineage_as_far_as_known(parts: Sequence[Parts], columns: Columns) -> tuple[Lineage, dict[str, str]]:
    """The lineage of the jobs whose SQL can be read, and of the others why not."""
    try:
        return lineage_of(parts, columns), {}
    except ConfigError:
        reasons = {part.name: _reason_against(part) for part in parts}
        unread = {name: reason for name, reason in reasons.items() if reason is not None}
        columns.filled.clear()
        return lineage_of((part for part in parts if part.name not in unread), columns), unread


def _reason_against(part: Parts) -> str | None:
    try:
        lineage_of([part])
    except ConfigError as error:
        return str(error)
    return None


def _job(
    name: str,
    record: JobRecord | None,
    findings: Sequence[Finding],
    status: Status,
) -> JobView:
    return JobView(
        name=name,
        status=status,
        findings=tuple(findings),
        marks=_marks(record),
        number=record.number if record else 0,
        open_batch=record.intent.number if record and record.intent else None,
        changed=record.modified_time if record else None,
        is_program=is_a_program(record),
    )


def _findings_by_job(report: Report) -> dict[str, list[Finding]]:
    """By the job that each is about, which its subject names: NAME, `job NAME` or `job NAME, sink SINK`.

    Those about tables are under the tables' names.
    """
    found: dict[str, list[Finding]] = {}
    for finding in report.findings:
        found.setdefault(finding.subject.removeprefix("job ").partition(",")[0], []).append(finding)
    return found


def _findings_by_table(report: Report, watch: Watch) -> dict[str, list[Finding]]:
    """By the dataset that each watched table is."""
    about = _findings_by_job(report)
    return {str(folder(table.where)): about.get(table.name, []) for table in watch.tables}


def _marks(record: JobRecord | None) -> tuple[MarkView, ...]:
    marks = record.marks if record else {}
    return tuple(MarkView(source, mark.kind, short_mark(mark.show())) for source, mark in marks.items())


def _asides(project: Project, site: Site) -> list[AsideView]:
    return [look_aside(job.name, kind, path) for job in project.jobs for kind, path in _places(job, site)]


def _places(job: JobModel, site: Site) -> list[tuple[Kind, str]]:
    kinds: dict[str, Kind] = {"quarantine": "quarantine", "dead_letters": "dead_letter"}
    places = {kinds[name]: site.path(path) for name, path in job.places_aside().items()}
    return [(kind, path) for kind, path in places.items() if kind != "quarantine" or job.rules]


def look_aside(job: str, kind: Kind, path: str) -> AsideView:
    """What waits there; whatever goes wrong is said."""
    try:
        return _aside(job, kind, path, rows_set_aside(path, job, kind))
    except SourceUnreadable as error:
        return AsideView(job, kind, path, error=str(error))


def letters_of_streams(folder: Path) -> list[AsideView]:
    """The dead letters of the streams whose state is in this folder; whatever goes wrong is said."""
    if not folder.is_dir():
        return []
    from floodmark.streams.healer.dead_letters import letters_below  # only now: projects without a stream need none

    return [_look_at_letters(letters) for letters in letters_below(folder)]


def _look_at_letters(letters: DeadLetters) -> AsideView:
    from floodmark.streams.healer.dead_letters import text_of

    stream, path = letters.stream, str(letters.folder)
    try:
        rows = [replace(each.row(stream), record=text_of(each.value)) for each in letters.all()]
    except (FloodmarkError, OSError, ValueError, KeyError) as error:
        return AsideView(stream, "dead_letter", path, error=str(error))
    return _aside(stream, "dead_letter", path, rows)


def _aside(job: str, kind: Kind, path: str, rows: Iterable[SetAsideRow]) -> AsideView:
    waiting = [row for row in rows if row.status == "open"]
    reasons = Counter(reason for row in waiting for reason in row.reasons)
    return AsideView(job, kind, path, len(waiting), reasons, tuple(waiting[-ROWS_SHOWN:]))
