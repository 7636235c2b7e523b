"""What changed between two runs: of every job that ran since the first and up to the second.

Told by their receipts, and of Delta tables by their logs; no session is started for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING

from floodmark.errors import RunNotFound, SourceUnreadable
from floodmark.hwm import Json
from floodmark.probes.delta import DeltaProbe, TableState, state_at
from floodmark.sinks.contract import OnDelta, Sink, ledger_id
from floodmark.spark.tables import DeltaPlace
from floodmark.stores.record import UPKEEP, VIEWS, Receipt, RuleOutcome
from floodmark.stores.run_index import names_in, runs_named

if TYPE_CHECKING:
    from floodmark.probes.delta import Commit
    from floodmark.sinks import Delta
    from floodmark.stores.contract import MarkStore


RUNS_OFFERED = 1_000
"""Of so many runs those are named whose ids are like one that is not there."""
RUNS_READ_FIRST = 4


@dataclass(frozen=True)
class RowChange:
    """Rows that commits brought, changed and took; None where the log does not say."""

    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None


@dataclass(frozen=True)
class FileChange:
    """Files that only one of two versions has, and the size of both."""

    added: int | None = None
    removed: int | None = None
    bytes_before: int | None = None
    bytes_after: int | None = None


@dataclass(frozen=True)
class ColumnChange:
    """Columns by name with their types; of those that changed, the type before and after."""

    added: Mapping[str, str] = field(default_factory=dict)
    removed: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class TableChange:
    """From one version (None: before the first) to another, with the commits by operation.

    `unknown` says why something, or everything, is not known.
    """

    table: str
    from_version: int | None = None
    to_version: int | None = None
    commits: Mapping[str, int] = field(default_factory=dict)
    rows: RowChange = RowChange()
    files: FileChange = FileChange()
    columns: ColumnChange = ColumnChange()
    unknown: str | None = None

    def serialize(self) -> dict[str, Json]:
        return asdict(self)


@dataclass(frozen=True)
class RuleChange:
    """How often a rule was broken in these runs, and in the last run before them; None: it was not asked then."""

    name: str
    action: str
    failed: int
    checked: int
    failed_before: int | None = None
    checked_before: int | None = None


@dataclass(frozen=True)
class JobChange:
    """What the runs of one job did together."""

    job: str
    runs: int
    failed_runs: int
    mark_before: Json
    mark_after: Json
    rows_read: int
    rows_written: Mapping[str, int]
    rows_refused: int
    rows_quarantined: int
    rows_dropped: int
    rows_dead: int
    rows_held_back: int
    seconds: float
    rules: tuple[RuleChange, ...] = ()
    tables: tuple[TableChange, ...] = ()

    def serialize(self) -> dict[str, Json]:
        rules: list[Json] = [asdict(rule) for rule in self.rules]
        tables: list[Json] = [table.serialize() for table in self.tables]
        return {**asdict(self), "rules": rules, "tables": tables}


@dataclass(frozen=True)
class Diff:
    """Two runs, the earlier one first, and what jobs did after the one and up to the end of the other."""

    first: Receipt
    last: Receipt
    jobs: tuple[JobChange, ...] = ()


def diff(store: MarkStore, earlier: str, later: str, sinks: Mapping[str, Sequence[Sink]]) -> Diff:
    """What lies between two runs, whichever is named first; `sinks` are those of the jobs that are asked about.

    A job may have none here: of one that stands in no project file, only the receipts are known.

    Raises RunNotFound.
    """
    return diff_of(store, find_run(store, earlier), find_run(store, later), sinks)


def diff_of(store: MarkStore, earlier: Receipt, later: Receipt, sinks: Mapping[str, Sequence[Sink]]) -> Diff:
    """What lies between two runs whose receipts are there."""
    first, last = sorted((earlier, later), key=end_time)
    changes = [_job_change(_runs_since(store, job, first), first, last, job) for job in sinks]
    found = [(change, ran) for change, ran in changes if change is not None]
    with_tables = (_with_tables(change, ran, sinks[change.job], store.namespace) for change, ran in found)
    return Diff(first, last, tuple(with_tables))


def jobs_that_ran(store: MarkStore) -> list[str]:
    """The jobs and streams that receipts may be kept of; upkeep shows in the tables that it was done to."""
    return sorted(set(names_in(store)) - {UPKEEP, VIEWS})


def find_run(store: MarkStore, run_id: str, job: str | None = None) -> Receipt:
    """The run of that id, or the only one whose id begins so. Raises RunNotFound."""
    found = runs_named(store, run_id, job) if run_id else ()
    exact = [each for each in found if each.run == run_id]
    if len(exact or found) != 1:
        known = found or store.runs(job, RUNS_OFFERED)
        raise RunNotFound(run_id, known=[each.run for each in reversed(known) if each.run])
    return (exact or found)[0]


def end_time(receipt: Receipt) -> datetime:
    """When the run was over."""
    return receipt.started + timedelta(seconds=receipt.seconds)


@dataclass(frozen=True)
class JobRuns:
    """The receipts of a job between two runs, and the last one before them that did something."""

    between: tuple[Receipt, ...] = ()
    before: Receipt | None = None

    @property
    def successes(self) -> list[Receipt]:
        return [each for each in self.between if each.status == "done"]


def _runs_since(store: MarkStore, job: str, first: Receipt) -> list[Receipt]:
    """The receipts of a job, the oldest first, from its last batch that was done by the end of this run."""
    limit = RUNS_READ_FIRST
    while True:
        found = store.runs(job, limit)
        is_enough = any(each.status == "done" and end_time(each) <= end_time(first) for each in found)
        if is_enough or len(found) < limit:
            return sorted(found, key=end_time)
        limit *= 4


def _job_change(
    receipts: Sequence[Receipt], first: Receipt, last: Receipt, job: str
) -> tuple[JobChange | None, JobRuns]:
    between = tuple(each for each in receipts if end_time(first) < end_time(each) <= end_time(last))
    earlier = [each for each in receipts if end_time(each) <= end_time(first) and each.status == "done"]
    ran = JobRuns(between, earlier[-1] if earlier else None)
    return (_sum(job, ran) if between else None), ran


def _sum(job: str, ran: JobRuns) -> JobChange:
    stood = ran.before.mark_after if ran.before else None
    nothing = Receipt(job, "", "nothing_new", ran.between[0].started, mark_before=stood, mark_after=stood)
    total = reduce(lambda one, other: one.followed_by(other), ran.successes) if ran.successes else nothing
    return JobChange(
        job=job,
        runs=len(ran.between),
        failed_runs=sum(each.status == "failed" for each in ran.between),
        mark_before=total.mark_before,
        mark_after=total.mark_after,
        rows_read=total.rows_read,
        rows_written=dict(total.rows_written),
        rows_refused=total.rows_refused,
        rows_quarantined=total.rows_quarantined,
        rows_dropped=total.rows_dropped,
        rows_dead=total.rows_dead,
        rows_held_back=ran.between[-1].rows_held_back,
        seconds=round(sum(each.seconds for each in ran.between), 3),
        rules=_rules(total.rules, ran.before.rules if ran.before else ()),
    )


def _rules(now: Iterable[RuleOutcome], before: Iterable[RuleOutcome]) -> tuple[RuleChange, ...]:
    known = {each.name: each for each in before}
    return tuple(
        RuleChange(
            rule.name,
            rule.action,
            rule.failed,
            rule.checked,
            known[rule.name].failed if rule.name in known else None,
            known[rule.name].checked if rule.name in known else None,
        )
        for rule in now
    )


def _with_tables(change: JobChange, ran: JobRuns, sinks: Sequence[Sink], namespace: str) -> JobChange:
    """With every Delta table that the job fills; other sinks keep no versions that could be compared."""
    if not ran.successes:
        return change
    after, upto = (ran.before.number if ran.before else 0), max(each.number for each in ran.successes)
    tables = tuple(
        table_change(
            _name(table), _location(table), ledger_id(namespace, change.job, sink.name), after=after, upto=upto
        )
        for sink in sinks
        if isinstance(sink, OnDelta)
        for table in sink.tables()
    )
    return replace(change, tables=tables)


def _name(table: Delta) -> str:
    return str(DeltaPlace(table.path, table.table))


def _location(table: Delta) -> str | None:
    """Its folder; a name in the catalog stays one, since no session is started for this."""
    return str(DeltaPlace(table.path, None)) if table.path is not None else None


def table_change(name: str, where: str | None, ledger: str, *, after: int, upto: int) -> TableChange:
    """The table from how batch `after` left it (0: as it was before the first) to how batch `upto` did."""
    if where is None:
        return TableChange(name, unknown="it is known by its name in a catalog, which only a session can ask")
    probe = DeltaProbe(where)
    try:
        own = probe.commits_of(ledger, after) if probe.refresh() else ()
        wrote = [commit for commit in own if after < (commit.number or 0) <= upto]
        if not wrote:
            return TableChange(name, unknown="its log has no commit of these runs")
        first = own[0].version if own[0].number == after else wrote[0].version - 1
        return _between(name, where, first, probe.commits(first, wrote[-1].version))
    except SourceUnreadable as error:
        return TableChange(name, unknown=error.reason)


def _between(name: str, where: str, first: int, commits: Sequence[Commit]) -> TableChange:
    last = commits[-1].version
    before, after = state_at(where, first), state_at(where, last)
    operations = dict(Counter(commit.operation for commit in commits))
    change = TableChange(name, first if first >= 0 else None, last, operations, _rows(commits))
    if before is None or after is None:
        return replace(change, unknown="its log no longer has all versions: files and columns are not known")
    return replace(change, files=_files(before, after), columns=_columns(before, after))


def _rows(commits: Iterable[Commit]) -> RowChange:
    """Upkeep moves rows between files, and counts as nothing."""
    changing = [commit for commit in commits if commit.changes_rows]
    inserts = [commit.inserted_rows for commit in changing if commit.inserted_rows is not None]
    inserted = sum(inserts) if len(inserts) == len(changing) else None
    if not all(commit.counts_rows for commit in changing):
        return RowChange(inserted)
    updated, deleted = sum(each.updated_rows for each in changing), sum(each.deleted_rows for each in changing)
    return RowChange(sum(inserts), updated, deleted)


def _files(before: TableState, after: TableState) -> FileChange:
    added, removed = after.files.keys() - before.files.keys(), before.files.keys() - after.files.keys()
    return FileChange(len(added), len(removed), sum(before.files.values()), sum(after.files.values()))


def _columns(before: TableState, after: TableState) -> ColumnChange:
    old, new = before.columns, after.columns
    return ColumnChange(
        added={name: kind for name, kind in new.items() if name not in old},
        removed={name: kind for name, kind in old.items() if name not in new},
        changed={name: (old[name], kind) for name, kind in new.items() if old.get(name, kind) != kind},
    )
