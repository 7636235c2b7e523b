"""`floodmark marks copy | export | import`: marks that go to another job or to a file, and marks that come from one.

They come from a file of ours, or as others store them: Redpanda Connect's cache, a consumer group, onETL's files, a
checkpoint of Structured Streaming.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import DryRun, Yes, counted, one_job, print_json, print_line
from floodmark.errors import ConfigError, JobNotFound, MarkError, UnknownKind
from floodmark.hwm.mark import mark_text
from floodmark.inputs import parse_json, read_text
from floodmark.locations import quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from floodmark.hwm import HWM
    from floodmark.jobs.job import Job
    from floodmark.sources import Kafka
    from floodmark.stores.record import JobRecord


KIND, FORMAT = "floodmark-marks", 1
VERSION = re.compile("[0-9]{1,9}")
EXPORT = "floodmark marks export FILE writes one"
KINDS = ("rpcn:TABLE/KEY", "kafka-group:ID", "hwm-yaml:FOLDER", "checkpoint:FOLDER")


def copy(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="FROM", help="The job whose marks are taken.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The job of this project that gets them.")],
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Give a job the marks of another, as after a job was renamed."""
    invocation: Invocation = ctx.obj
    record = invocation.store().read(source)
    if record is None:
        raise JobNotFound(source, known=invocation.store().jobs())
    if record.intent is not None:
        raise ConfigError(
            f"batch {record.intent.number} of job '{source}' is not finished: its sinks may have it, and the other job "
            "would deliver its rows again.",
            hint=f"`floodmark run --select {source}` finishes it (give the job its old name for that), then copy",
        )
    take_over(invocation, [replace(record, job=target)], yes=yes, dry_run=dry_run)


def export(
    ctx: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="Where to; stdout if left out.")] = None,
) -> None:
    """Write all marks of the namespace as JSON."""
    invocation: Invocation = ctx.obj
    store = invocation.store()
    found = [record for job in store.jobs() if (record := store.read(job)) is not None]
    for record in found:
        if record.intent is not None:  # on stderr: stdout may be the document
            message = f"{record.job}: batch {record.intent.number} is open, and not exported: its rows may come twice"
            typer.echo(f"{message} where these marks are taken over; floodmark run finishes it", err=True)
    records = [record.without_intent().serialize() for record in found]
    document = {"format": f"{KIND}/{FORMAT}", "namespace": store.namespace, "records": records}
    if file is None:
        print_json(document)
        return
    file.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print_line(f"{counted(len(records), 'job')} written to {file}")


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
        take_over(invocation, _from_export(file, select or ()), yes=yes, dry_run=dry_run)
        return
    if offsets not in ("last", "next"):
        raise UnknownKind("--offsets", offsets, known=("last", "next"))
    kind, _, rest = (origin or "").partition(":")
    if kind == "rpcn":
        records = [_from_cache(invocation, _one(invocation, select), rest, url, field)]
    elif kind == "kafka-group":
        records = [_from_group(invocation, _one(invocation, select), rest, bootstrap, topic or (), offsets)]
    elif kind == "checkpoint":
        records = [_from_checkpoint(invocation, _one(invocation, select), rest)]
    elif kind == "hwm-yaml":
        records = _from_yaml(invocation, Path(rest), select or (), mark, offsets)
    else:
        raise UnknownKind("system", kind, known=KINDS)
    take_over(invocation, records, yes=yes, dry_run=dry_run)


def take_over(invocation: Invocation, records: Sequence[JobRecord], *, yes: bool, dry_run: bool) -> None:
    """Put the records' marks into the jobs of this project, each above every number its sinks have recorded."""
    jobs = {job.name: job for job in invocation.jobs([record.job for record in records])} if records else {}
    for record in records:
        before = invocation.store().read(record.job)
        print_line(f"{record.job}: mark {_values(before)} becomes {_values(record)}")
    if dry_run or not records:
        return
    if not yes:
        typer.confirm("go on?", abort=True)
    from floodmark.jobs.marks import take_marks

    for record in records:
        take_marks(jobs[record.job], record, invocation.session(), invocation.store())


def _values(record: JobRecord | None) -> str:
    return ", ".join(mark_text(mark.show()) for mark in record.marks.values()) if record and record.marks else "none"


def read_export(file: Path) -> list[JobRecord]:
    """The records in the file. Raises ConfigError if it is not an export."""
    from floodmark.formats import require_known

    try:
        document = parse_json(read_text(file, hint=EXPORT))
    except ValueError as error:
        raise ConfigError(f"{file} cannot be read: {error}.", hint=EXPORT) from error
    kind, _, version = str(document.get("format") if isinstance(document, dict) else None).partition("/")
    if kind != KIND or not VERSION.fullmatch(version) or not isinstance(document.get("records"), list):
        raise ConfigError(f"{file} is not an export of marks.", hint=EXPORT)
    require_known(version, "the export of marks", where=str(file), known=FORMAT)
    return [_stored_record(each, f"{file}, record {place}") for place, each in enumerate(document["records"], 1)]


def _stored_record(stored: object, where: str) -> JobRecord:
    from floodmark.stores.record import JobRecord

    try:
        return JobRecord.deserialize(stored, where=where)  # type: ignore[arg-type]
    except (MarkError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{where} is no record of a job: {reason}.", hint=EXPORT) from error


def _from_export(file: Path, select: Sequence[str]) -> list[JobRecord]:
    records = read_export(file)
    known = [record.job for record in records]
    for name in select:
        if name not in known:
            raise JobNotFound(name, known=known)
    return [record for record in records if not select or record.job in select]


def _one(invocation: Invocation, select: Sequence[str] | None) -> Job:
    if select is None or len(select) != 1:
        raise ConfigError("such a mark is for one job.", hint="name it with --select JOB")
    return one_job(invocation, select)


def _from_cache(invocation: Invocation, job: Job, place: str, url: str | None, field: str | None) -> JobRecord:
    from floodmark.jobs.marks import record_of

    table, _, key = place.partition("/")
    if not table or not key:
        raise ConfigError(f"'rpcn:{place}' names no table and key.", hint="rpcn:rpcn_connect_state/table_cursor")
    cache = CacheTable(url or _store_url(invocation), table, key, field)
    return record_of(job, cache.value(), invocation.session())


def _store_url(invocation: Invocation) -> str:
    from floodmark.project.file import store_settings

    store = store_settings(invocation.document()).store
    truth = store if isinstance(store, str) else store[-1]
    if not truth.startswith(("postgresql:", "postgres:")):
        raise ConfigError("the store is no PostgreSQL database.", hint="name the cache's with --url")
    return truth.partition("?")[0]


def _from_group(
    invocation: Invocation, job: Job, group: str, bootstrap: str | None, topics: Sequence[str], offsets: str
) -> JobRecord:
    from floodmark.jobs.marks import only_source, record_of
    from floodmark.sources import Kafka

    source = only_source(job)
    if not isinstance(source, Kafka):
        raise ConfigError(f"job '{job.name}' does not read from Kafka.", hint="name one that does with --select JOB")
    value = Group(group, source, bootstrap, topics).value(added=1 if offsets == "last" else 0)
    return record_of(job, value, invocation.session())


def _from_checkpoint(invocation: Invocation, job: Job, folder: str) -> JobRecord:
    from floodmark.cli.marks.checkpoint import FINISH, Checkpoint
    from floodmark.jobs.marks import only_source, record_of
    from floodmark.locations import is_remote

    checkpoint = Checkpoint(folder if is_remote(folder) else str(Path(folder).expanduser()))
    value = checkpoint.value_for(only_source(job), invocation.session())
    begun = checkpoint.uncommitted()
    if begun is not None:
        typer.echo(f"batch {begun} of the stream was begun and not committed, and is not counted: {FINISH}", err=True)
    return record_of(job, value, invocation.session())


def _from_yaml(
    invocation: Invocation, folder: Path, select: Sequence[str], mark: str | None, offsets: str
) -> list[JobRecord]:
    from floodmark.jobs.marks import record_of

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


@dataclass(frozen=True)
class CacheTable:
    """A cache table of Redpanda Connect: columns `key` and `val`, with JSON like {"seq": 123} in the second."""

    url: str
    table: str
    key: str
    field: str | None = None

    def value(self) -> object:
        """The mark's value, exactly. Raises ConfigError if there is none or nobody can tell which field it is."""
        fields = self._fields()
        if self.field is None and len(fields) == 1:
            return next(iter(fields.values()))
        if self.field is None or self.field not in fields:
            raise ConfigError(
                f"key '{self.key}' in {self.table} has the fields {', '.join(fields) or '(none)'}.",
                hint="name the one that is the mark with --field",
            )
        return fields[self.field]

    def _fields(self) -> Mapping[str, object]:
        stored = self._stored_value()
        try:
            text = bytes(stored).decode() if isinstance(stored, bytes | memoryview) else stored
            fields = parse_json(text, parse_float=Decimal) if isinstance(text, str) else text
        except ValueError:
            fields = None
        if not isinstance(fields, dict):
            raise ConfigError(f"key '{self.key}' in {self.table} holds no JSON object.", hint='such as {"seq": 123}')
        return fields

    def _stored_value(self) -> object:
        from floodmark.postgres import Address
        from floodmark.probes.postgres import connect_read_only, failing_as_unreadable

        address = Address.parse(self.url)
        with (
            failing_as_unreadable(f"table {self.table} of postgres {address}"),
            connect_read_only(address, "floodmark/import") as connection,
        ):
            table = ".".join(quote(part, '"') for part in self.table.split("."))
            row = connection.execute(f"select val from {table} where key = %s", [self.key]).fetchone()
        if row is None:
            raise ConfigError(f"{self.table} has no key '{self.key}'.", hint="rpcn:TABLE/KEY, as the cache names it")
        return row[0]


@dataclass(frozen=True)
class Group:
    """A consumer group of Kafka; its committed offsets are the next ones to read."""

    name: str
    source: Kafka
    bootstrap: str | None = None
    topics: Sequence[str] = ()

    def value(self, added: int = 0) -> object:
        """The next offsets of the source's topics. Raises ConfigError if the group has committed nothing there."""
        from floodmark.probes.kafka import KafkaProbe
        from floodmark.probes.kafka.client import KafkaOptions
        from floodmark.sources.kafka.offsets import by_topic

        names = tuple(self.topics) or self.source.topics
        if unknown := sorted(set(names) - set(self.source.topics)):
            known = ", ".join(self.source.topics)
            raise ConfigError(f"the job does not read topic '{unknown[0]}'.", hint=f"one of: {known}")
        probe = KafkaProbe(KafkaOptions(self.bootstrap or self.source.bootstrap, self.source.options))
        committed = probe.group_offsets(self.name, probe.topics(names).values())
        if not committed:
            raise ConfigError(f"group '{self.name}' has no offsets of {', '.join(names)}.", hint="check its name")
        nested = by_topic({place: offset + added for place, offset in committed.items()})
        return nested[names[0]] if len(self.source.topics) == 1 else nested


def yaml_marks(folder: Path) -> dict[str, HWM[Any]]:
    """The newest mark of every file that onETL's YAMLHWMStore wrote there, by the mark's name."""
    files = sorted(folder.glob("*.yml"))
    if not files:
        raise ConfigError(f"there is no .yml file in {folder}.", hint="the folder of onETL's YAMLHWMStore")
    found = [_newest(file) for file in files]
    return {mark.name: mark for mark in found}


def _newest(file: Path) -> HWM[Any]:
    from floodmark.hwm import deserialize
    from floodmark.inputs.yaml import plain_values

    entries = plain_values(read_text(file, hint="the folder of onETL's YAMLHWMStore"), file.name)
    try:
        return deserialize(_in_utc(max(entries, key=lambda entry: str(entry["modified_time"]))))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{file} holds no mark that can be read: {type(error).__name__}: {error}.",
            hint="marks of onETL below 0.10 are older than this format: open them there once and save them again",
        ) from error


def _in_utc(entry: Mapping[str, Any]) -> dict[str, Any]:
    """etl-entities writes local times without a zone."""
    moment = entry["modified_time"]
    parsed = moment if isinstance(moment, datetime) else datetime.fromisoformat(str(moment))
    return {**entry, "modified_time": parsed.astimezone(timezone.utc).isoformat()}
