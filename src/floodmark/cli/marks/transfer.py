"""`floodmark marks import`: marks from a file of ours, or from the systems that people come from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.marks_transfer import read_export, take_over
from floodmark.cli.output import DryRun, Yes
from floodmark.errors import ConfigError, JobNotFound, UnknownKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floodmark.hwm import HWM
    from floodmark.jobs.job import Job
    from floodmark.stores.record import JobRecord

KINDS = ("rpcn:TABLE/KEY", "kafka-group:ID", "hwm-yaml:FOLDER")


def import_(
    ctx: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="What `marks export` wrote.")] = None,
    origin: Annotated[
        str | None, typer.Option("--from", metavar="SYSTEM", help=f"Take marks from {', '.join(KINDS)}.")
    ] = None,
    select: Annotated[list[str] | None, typer.Option("--select", metavar="JOB", help="Only this job.")] = None,
    url: Annotated[
        str | None, typer.Option(envvar="FLOODMARK_IMPORT_URL", help="rpcn: the database, if it is not the store's.")
    ] = None,
    field: Annotated[str | None, typer.Option(help="rpcn: which field of the value is the mark.")] = None,
    bootstrap: Annotated[str | None, typer.Option(help="kafka-group: the brokers, if not the job's.")] = None,
    topic: Annotated[list[str] | None, typer.Option(help="kafka-group: only this topic of the job.")] = None,
    mark: Annotated[str | None, typer.Option(help="hwm-yaml: the mark's name, if it is not the job's.")] = None,
    offsets: Annotated[str, typer.Option(help="Whether stored offsets are the last ones read, or the next.")] = "next",
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Take marks over; the numbers of this project's sinks stay valid."""
    if (file is None) == (origin is None):
        raise ConfigError("give a file or --from, and not both.", hint=f"--from {' | '.join(KINDS)}")
    invocation: Invocation = ctx.obj
    if file is not None:
        take_over(invocation, _exported(file, select or ()), yes=yes, dry_run=dry_run)
        return
    if offsets not in ("last", "next"):
        raise UnknownKind("--offsets", offsets, known=("last", "next"))
    kind, _, rest = (origin or "").partition(":")
    if kind == "rpcn":
        records = [_from_cache(invocation, _one(invocation, select), rest, url, field)]
    elif kind == "kafka-group":
        records = [_from_group(invocation, _one(invocation, select), rest, bootstrap, topic or (), offsets)]
    elif kind == "hwm-yaml":
        records = _from_yaml(invocation, Path(rest), select or (), mark, offsets)
    else:
        raise UnknownKind("system", kind, known=KINDS)
    take_over(invocation, records, yes=yes, dry_run=dry_run)


def _exported(file: Path, select: Sequence[str]) -> list[JobRecord]:
    records = read_export(file)
    known = [record.job for record in records]
    for name in select:
        if name not in known:
            raise JobNotFound(name, known=known)
    return [record for record in records if not select or record.job in select]


def _one(invocation: Invocation, select: Sequence[str] | None) -> Job:
    if select is None or len(select) != 1:
        raise ConfigError("such a mark is for one job.", hint="name it with --select JOB")
    [job] = invocation.jobs(select)
    return job


def _from_cache(invocation: Invocation, job: Job, place: str, url: str | None, field: str | None) -> JobRecord:
    from floodmark.cli.marks_foreign import CacheTable
    from floodmark.jobs.taking_over import record_of

    table, _, key = place.partition("/")
    if not table or not key:
        raise ConfigError(f"'rpcn:{place}' names no table and key.", hint="rpcn:rpcn_connect_state/table_cursor")
    cache = CacheTable(url or _store_url(invocation), table, key, field)
    return record_of(job, cache.value(), invocation.session())


def _store_url(invocation: Invocation) -> str:
    from floodmark.jobs.project_file import store_settings

    store = store_settings(invocation.document()).store
    truth = store if isinstance(store, str) else store[-1]
    if not truth.startswith(("postgresql:", "postgres:")):
        raise ConfigError("the store is no PostgreSQL database.", hint="name the cache's with --url")
    return truth.partition("?")[0]


def _from_group(
    invocation: Invocation, job: Job, group: str, bootstrap: str | None, topics: Sequence[str], offsets: str
) -> JobRecord:
    from floodmark.cli.marks_foreign import Group
    from floodmark.jobs.taking_over import only_source, record_of
    from floodmark.sources import Kafka

    source = only_source(job)
    if not isinstance(source, Kafka):
        raise ConfigError(f"job '{job.name}' does not read from Kafka.", hint="name one that does with --select JOB")
    value = Group(group, source, bootstrap, topics).value(added=1 if offsets == "last" else 0)
    return record_of(job, value, invocation.session())


def _from_yaml(
    invocation: Invocation, folder: Path, select: Sequence[str], mark: str | None, offsets: str
) -> list[JobRecord]:
    from floodmark.cli.marks_foreign import yaml_marks
    from floodmark.jobs.taking_over import record_of

    found = yaml_marks(folder.expanduser())
    wanted = {name: name for name in select or [job.name for job in invocation.jobs() if job.name in found]}
    if mark is not None:
        wanted = {_one(invocation, select).name: mark}
    missing = sorted(set(wanted.values()) - set(found))
    if missing or not wanted:
        known = ", ".join(sorted(found))
        raise ConfigError(
            f"no mark '{missing[0]}' in {folder}." if missing else f"no job is called as a mark in {folder} is.",
            hint=f"--select JOB --mark NAME, with one of: {known}",
        )
    jobs = {job.name: job for job in invocation.jobs(list(wanted))}
    session = invocation.session()
    return [record_of(jobs[job], _next(found[name], offsets), session) for job, name in wanted.items()]


def _next(mark: HWM[Any], offsets: str) -> HWM[Any]:
    """The mark with offsets that are the next to read."""
    from floodmark.hwm import KeyValueIntHWM

    if offsets == "next":
        return mark
    if not isinstance(mark, KeyValueIntHWM):
        raise ConfigError(f"mark '{mark.name}' holds no offsets.", hint="leave --offsets out")
    return mark.set_value({key: value + 1 for key, value in mark.value.items()})
