"""`floodmark marks init | prune`: the store's tables made beforehand, and its past cut to what the project keeps."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import AsJson, DryRun, Yes, print_json, print_line
from floodmark.errors import ConfigError

if TYPE_CHECKING:
    from floodmark.jobs.project import Retention
    from floodmark.stores.contract import MarkStore

OWN = {"workflow", "health", "healing"}
"""What records hold that are no job's: how a workflow's tasks ended, which alerts are open, where a stream stands.

No project file names those, so nobody can tell from it whether they are still needed: they are never forgotten.
"""


def init(
    ctx: typer.Context,
    only_print: Annotated[bool, typer.Option("--print", help="Print the statements, and connect to nothing.")] = False,
) -> None:
    """Make the tables of the store, or print the statements for somebody who may."""
    from floodmark.stores.contract import Prepared

    invocation: Invocation = ctx.obj
    store = invocation.store()
    if not isinstance(store, Prepared):
        if only_print:
            raise ConfigError(f"store {store.describe()} has no statements to print.", hint="the first run makes it")
        print_line(f"{store.describe()}: nothing to prepare; the first run makes it")
    elif only_print:
        print_line(store.ddl().rstrip())
    else:
        store.prepare()
        print_line(f"{store.describe()}: ready")


def prune(
    ctx: typer.Context,
    orphans: Annotated[
        bool, typer.Option("--orphans", help="Also forget jobs that the project no longer has, marks and all.")
    ] = False,
    as_json: AsJson = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Drop history and receipts that are older than the project's `retention`; never a job's mark or open batch."""
    invocation: Invocation = ctx.obj
    store, project = invocation.store(), invocation.loaded_project()
    declared = {job.name for job in project.jobs}
    forgotten, kept = _orphans(store, declared) if orphans else ([], [])
    jobs = [job for job in store.jobs() if job not in forgotten]
    limits = Limits(project.retention, datetime.now(timezone.utc))
    counts = {job: limits.surplus(store, job) for job in jobs}
    if not as_json:
        _announce(counts, forgotten, kept)
    has_work = bool(forgotten) or any(sum(each) for each in counts.values())
    if has_work and not dry_run and (yes or typer.confirm("drop them?", abort=True)):
        counts = {job: limits.prune(store, job) for job in jobs}
        for job in forgotten:
            _forget(store, job)
    if as_json:
        pruned = [{"job": job, "history": history, "runs": runs} for job, (history, runs) in counts.items()]
        print_json({"pruned": pruned, "forgotten": forgotten, "open": kept, "dry_run": dry_run})


class Limits:
    """The project's retention, counted from one moment."""

    def __init__(self, retention: Retention, now: datetime) -> None:
        from floodmark.probes.durations import seconds_in

        self._history = now - timedelta(seconds=seconds_in(retention.history, field="retention.history"))
        self._runs = now - timedelta(seconds=seconds_in(retention.runs, field="retention.runs"))
        self._at_least = retention.keep_at_least

    def surplus(self, store: MarkStore, job: str) -> tuple[int, int]:
        """How many records of history and receipts would go."""
        from floodmark.stores.pruning import surplus

        found = surplus(store, job, history_before=self._history, keep_at_least=self._at_least, runs_before=self._runs)
        return found.history, found.runs

    def prune(self, store: MarkStore, job: str) -> tuple[int, int]:
        """How many went."""
        gone = store.prune(job, history_before=self._history, keep_at_least=self._at_least, runs_before=self._runs)
        return gone.history, gone.runs


def _orphans(store: MarkStore, declared: set[str]) -> tuple[list[str], list[str]]:
    """Jobs that the project no longer has; those with an open batch apart, since rows of it may be half written."""
    records = {job: store.read(job) for job in store.jobs() if job not in declared}
    strangers = {job: record for job, record in records.items() if record is None or not OWN & set(record.extras)}
    is_open = [job for job, record in strangers.items() if record is not None and record.intent is not None]
    return [job for job in strangers if job not in is_open], is_open


def _announce(counts: dict[str, tuple[int, int]], forgotten: list[str], kept: list[str]) -> None:
    for job, (history, runs) in counts.items():
        if history or runs:
            print_line(f"{job}: {history} of its history, {runs} of its runs")
    for job in forgotten:
        print_line(f"{job}: everything; the project has no such job")
    for job in kept:
        print_line(f"{job}: stays, although the project has no such job: a batch of it is open")
    if not forgotten and not any(history or runs for history, runs in counts.values()):
        print_line("nothing to prune")


def _forget(store: MarkStore, job: str) -> None:
    from floodmark.stores.lease import hold

    with hold(store, job) as held:
        store.forget(job, lease=held.lease)
