"""Lint: what can be said about a project offline, without a connection, a JVM or running the user's code.

Beside findings it says what each job guarantees for each of its sinks, and in `LIMITS` what it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from floodmark.errors import ConfigError
from floodmark.jobs.job import as_transform
from floodmark.locations import local_path, missing_part
from floodmark.project.findings import Finding, Guarantee
from floodmark.project.findings import Report as Report
from floodmark.project.folder import gather
from floodmark.project.kinds import (
    ConsoleSink,
    DeltaSink,
    DeltaSource,
    FilesSink,
    PythonSource,
    SinkModel,
    Site,
    SourceModel,
)
from floodmark.project.kinds.medallion import DimensionMembers, FactSource
from floodmark.project.kinds.servers import DecodedMessages, KafkaSource, PostgresSink
from floodmark.project.lint.parts import (
    lint_cursor,
    lint_expression,
    lint_frozen,
    lint_rules,
    lint_safety,
    lint_sql,
)
from floodmark.project.loading import examine
from floodmark.project.models import JobModel, Project
from floodmark.project.python_jobs import GivenJob, Unseen, setup_finding
from floodmark.rules import RuleSet
from floodmark.spark.session import is_local
from floodmark.step.transform import Function, Identity, Sql
from floodmark.step.work import why_spooled

if TYPE_CHECKING:
    from floodmark.project.file import Document, Place
    from floodmark.project.kinds.rules import RuleModel
    from floodmark.step.transform import Transform


TABLES = ("postgres", "jdbc", "sqlite")
SHARED_STORES = ("postgresql:", "postgres:")
WithPython: TypeAlias = "Callable[[Project], tuple[Project, list[Unseen]]]"
WHOLE_BATCH = ("unique", "references", "row_count", "fresh")
IMMUTABLE = ("files", "delta", "fact", "kafka")
HISTORY = (
    "each event exactly once: it is added to the log, then its key is rebuilt; both commits carry the batch number, "
    "so a repeat changes nothing"
)
WRITTEN = {
    "append": "added",
    "merge": "merged by its key",
    "replace": "put in place of the old ones",
    "dates": "put in place of the old ones of its date",
    "dimension": "merged by its surrogate key",
}
PROMISES = {
    "files": "each row exactly once: a batch is published by one rename, so a repeat finds it there and adds nothing",
    "kafka": "each row exactly once for consumers with isolation.level=read_committed: number and rows are one "
    "transaction per partition and chunk",
    "postgres": "each row exactly once: rows and batch number are one transaction",
}


def lint(document: Document, with_python: WithPython = lambda project: (project, [])) -> Report:
    """Look at the whole file; a file that is wrong gets its mistakes and nothing else.

    `with_python` adds the jobs that Python gives: their modules are imported there, and nothing else is.
    """
    try:
        document = gather(document)
    except ConfigError as error:
        return Report((_mistake(error, document),))
    project, wrong = examine(document)
    if project is None:
        return Report(tuple(_mistake(error, document) for error in wrong))
    project, unseen = with_python(project)
    jobs = [JobLint(job, ("jobs", position), document, project) for position, job in project.placed_jobs()]
    findings = [*setup_finding(project, document), *(each.finding(document) for each in unseen)]
    findings += [finding for job in jobs for finding in job.findings()]
    guarantees = [guarantee for job in jobs for guarantee in job.guarantees()]
    limited = [limit for job in jobs for limit in limits(job.job, document.where(job.place))]
    return Report(tuple(findings), tuple(guarantees), tuple(limited))


def _mistake(error: ConfigError, document: Document) -> Finding:
    where = str(getattr(error, "where", document.file.name))
    return Finding("FM100", where, None, error.message.removeprefix(f"{where}: "), error.hint)


@dataclass(frozen=True)
class JobLint:
    """One job of the file, part by part."""

    job: JobModel
    place: Place
    document: Document
    project: Project

    def findings(self) -> Iterator[Finding]:
        """Everything, in the order of the file."""
        yield from self._source()
        yield from self._transform()
        if not isinstance(self.job, GivenJob):  # rules that Python made have been judged by making them
            yield from lint_rules(self.job, Site(self.document.folder), self._on_rule)
        for position, sink in enumerate(self.job.sinks):
            yield from self._sink(sink, ("sinks", position))
        yield from self._places()
        yield from self._spool()
        yield from self._disks()

    def guarantees(self) -> Iterator[Guarantee]:
        """What the job promises for each of its sinks, in plain words."""
        for sink in self.job.sinks:
            yield Guarantee(
                self.job.name, self.job.source.type, sink.ledger_name(), sink.guarantee, guarantee_text(sink)
            )

    def _finding(self, place: Place, rule: str, message: str, hint: str) -> Finding:
        return Finding(rule, self.document.where((*self.place, *place)), self.job.name, message, hint)

    def _on_rule(self, position: int, rule: str, message: str, hint: str) -> Finding:
        return self._finding(("rules", position), rule, message, hint)

    def _source(self) -> Iterator[Finding]:
        source = self.job.source
        if isinstance(source, PythonSource):
            yield from self._python(source.object, ("source", "object"))
        elif isinstance(source, KafkaSource) and isinstance(source.value, DecodedMessages):
            yield from self._python(source.value.python, ("source", "value", "python"))
        else:
            yield from self._build_errors(source, ("source",))
            yield from lint_frozen(self.job, self.project, self._finding)
        yield from lint_safety(self.job, self._finding)
        yield from lint_cursor(self.job, self._finding)

    def _transform(self) -> Iterator[Finding]:
        transform = self.job.transform
        if transform is None:
            return
        if transform.python is not None:
            yield from self._python(transform.python, ("transform", "python"))
        if transform.sql is not None:
            place, sources = ("transform", "sql"), _sources(self.job)
            yield from lint_sql(transform.sql, lambda rule, said, hint: self._finding(place, rule, said, hint), sources)
        if transform.dimension is not None:
            yield from self._members(transform.dimension)

    def _members(self, dimension: DimensionMembers) -> Iterator[Finding]:
        place = ("transform", "dimension", "columns")
        for name, sql in dimension.columns.items():
            yield from lint_expression(sql, partial(self._finding, (*place, name)))

    def _python(self, name: str, place: Place) -> Iterator[Finding]:
        if isinstance(self.job, GivenJob):
            return  # it is there: Python gave the job
        missing = missing_part(name, self.document.folder)
        if missing is not None:
            yield self._finding(place, "FM110", f"{name}: {missing}", "write it, or fix the name")

    def _sink(self, sink: SinkModel, place: Place) -> Iterator[Finding]:
        wrong = list(self._delta(sink, place)) if isinstance(sink, DeltaSink) else []
        yield from wrong
        if not any(finding.severity == "error" for finding in wrong):
            yield from self._build_errors(sink, place)
        if isinstance(sink, ConsoleSink):
            yield self._finding(
                place, "FM302", "after a crash the console may show rows again", "read it with that in mind"
            )

    def _delta(self, sink: DeltaSink, place: Place) -> Iterator[Finding]:
        if sink.mode in ("merge", "scd1", "scd2", "dimension") and not sink.key:
            said = f"{sink.mode} needs to know which rows are the same"
            yield self._finding(place, "FM201", said, "add key: [id]")
        if sink.mode == "replace" and not sink.by:
            said = "every batch would replace the whole table, and a batch holds only what is new"
            yield self._finding(place, "FM202", said, "add by: [column], or use merge")
        for name in sink.idle_options():
            yield self._finding((*place, name), "FM203", f"{name} does nothing with mode {sink.mode}", "take it out")
        if (sink.path or "").startswith("s3a:"):
            said = "two drivers on one table may overwrite each other's commits here"
            yield self._finding(place, "FM205", said, "run one at a time, or configure a multi-writer log store")

    def _build_errors(self, part: SourceModel | SinkModel, place: Place) -> Iterator[Finding]:
        """What the source or sink itself says to its options; building it connects to nothing."""
        try:
            part.build(Site(self.document.folder))
        except ConfigError as error:
            yield self._finding(place, "FM206", error.message, error.hint)

    def _places(self) -> Iterator[Finding]:
        """Two sinks on one target would each take the other's rows for somebody else's."""
        seen: dict[str, str] = {}
        for position, sink in enumerate(self.job.sinks):
            target = getattr(sink, "path", None) or getattr(sink, "table", None)
            if target is None:
                continue
            if target.rstrip("/") in seen:
                said = f"sinks '{seen[target.rstrip('/')]}' and '{sink.ledger_name()}' write to one place"
                yield self._finding(("sinks", position), "FM204", said, "give each a place of its own")
            seen[target.rstrip("/")] = sink.ledger_name()

    def _spool(self) -> Iterator[Finding]:
        reason = self._why_spooled()
        if reason is not None:
            said = f"each batch is written to {self.job.spool} first, since {reason}"
            yield self._finding((), "FM301", said, "nothing to do; it costs one more write of the batch")
        stores = (self.project.store,) if isinstance(self.project.store, str) else self.project.store
        shared = [store for store in stores if store.startswith(SHARED_STORES)]
        if reason is not None and shared and local_path(self.job.spool) is not None:
            said = (
                f"every host that uses the store may finish a batch, and only one of them has {self.job.spool}: on "
                "another the run stops (exit 5) where a sink has the batch"
            )
            yield self._finding((), "FM303", said, "run the job on one host, or put spool on a disk that all share")

    def _disks(self) -> Iterator[Finding]:
        """What tasks write to a disk of their own, the driver never sees."""
        if is_local(self.project.master):
            return
        sinks = [(("sinks", n), sink.path) for n, sink in enumerate(self.job.sinks) if isinstance(sink, FilesSink)]
        spool: list[tuple[Place, str]] = [((), self.job.spool)] if self._why_spooled() else []
        for place, path in (*sinks, *spool):
            if local_path(path) is not None:
                said = f"Spark runs at {self.project.master}, and executors on other machines may not see {path}"
                hint = "a disk that all of them share (`floodmark check` asks them), or a URL"
                yield self._finding(place, "FM207", said, hint)

    def _why_spooled(self) -> str | None:
        """The step's own reason; none, where a sink cannot be built and FM206 says so."""
        try:
            sinks = [sink.build(Site(self.document.folder)) for sink in self.job.sinks]
        except ConfigError:
            return None
        is_immutable = self.job.source.type in IMMUTABLE
        given = self.job.job if isinstance(self.job, GivenJob) else None
        rules = RuleSet(tuple(given.rules)) if given else DeclaredRules(self.job.rules)
        return why_spooled(sinks, _transform(self.job), rules, is_immutable=is_immutable)


@dataclass(frozen=True)
class DeclaredRules:
    """What is known of rules that stand in a file, whether or not they could be built."""

    rules: Sequence[RuleModel]

    def __bool__(self) -> bool:
        return bool(self.rules)

    def needs_whole_batch(self) -> bool:
        return any(rule.action == "fail" or rule.conditions()[0] in WHOLE_BATCH for rule in self.rules)

    def quarantines(self) -> bool:
        return any(rule.action == "quarantine" for rule in self.rules)

    def conditions(self) -> tuple[str, ...]:
        return tuple(rule.check for rule in self.rules if rule.check is not None)


def _sources(job: JobModel) -> list[str]:
    """What the transform's SQL reads, the rows first; where there is one table only, it is called `source`."""
    names = job.source.names() if isinstance(job.source, FactSource) else []
    return names if len(names) > 1 else ["source"]


def _transform(job: JobModel) -> Transform:
    """The transform as the step knows it, without importing the user's code."""
    model = job.transform
    if isinstance(job, GivenJob):
        return as_transform(job.job.transform)
    if model is None:
        return Identity()
    if model.sql is None:
        return Function(lambda rows: rows) if model.dimension is None else model.dimension.build()
    try:
        Sql(model.sql).is_deterministic()
    except ConfigError:
        return Identity()  # it cannot be parsed, and FM101 says so
    return Sql(model.sql).over(_sources(job))


def guarantee_text(sink: SinkModel) -> str:
    """The guarantee of a sink in plain words."""
    if isinstance(sink, ConsoleSink):
        return "each row at least once: a batch that is repeated after a crash is printed again"
    if isinstance(sink, DeltaSink) and sink.mode in ("scd1", "scd2"):
        return HISTORY
    if isinstance(sink, DeltaSink):
        how = WRITTEN[sink.mode]
        return f"each row is {how} exactly once: the batch number is part of the commit, so a repeat changes nothing"
    return PROMISES[sink.type]


@dataclass(frozen=True)
class Limit:
    """Something that a job with such a source or sink cannot do; the words may name {job}, {cursor} and {sink}."""

    rule: str
    holds: Callable[[JobModel, SinkModel], bool]
    message: str
    hint: str


def of_source(*kinds: str) -> Callable[[JobModel, SinkModel], bool]:
    """Holds for jobs that read one of these."""
    return lambda job, sink: job.source.type in kinds


def of_mode(*modes: str) -> Callable[[JobModel, SinkModel], bool]:
    """Holds for sinks that write in one of these ways."""
    return lambda job, sink: isinstance(sink, DeltaSink | PostgresSink) and sink.mode in modes


def _merges_by_position(job: JobModel, sink: SinkModel) -> bool:
    return isinstance(sink, DeltaSink | PostgresSink) and sink.mode == "merge" and not sink.sequence


def _takes_added_rows(job: JobModel, sink: SinkModel) -> bool:
    return isinstance(job.source, DeltaSource) and job.source.changes == "append"


LIMITS = (
    Limit(
        "FM311",
        of_source(*TABLES),
        "updates without a new {cursor} are not seen, and deletes never",
        "floodmark reconcile {job} finds them, --repair puts them right",
    ),
    Limit(
        "FM312",
        _merges_by_position,
        "{sink} has no sequence: between two batches the later one wins, whichever row is newer",
        "sequence: [the column that says which row is newer]",
    ),
    Limit(
        "FM313",
        of_mode("append"),
        "{sink} appends: a backfill, or a run after `marks reset`, adds rows a second time",
        "mode: merge with a key, where rows may be delivered again",
    ),
    Limit(
        "FM314",
        _takes_added_rows,
        "an update or a delete in the source table stops the job (exit 5)",
        "changes: feed delivers all three kinds",
    ),
    Limit(
        "FM315",
        of_source("kafka"),
        "messages that retention or compaction takes away before they are read are lost; the job stops (exit 5)",
        "floodmark check says how near the mark is to the oldest message",
    ),
    Limit(
        "FM315",
        of_source("delta", "fact"),
        "what vacuum or the cleanup of its log takes from the table before it is read is lost; the job stops (exit 5)",
        "floodmark optimize sets how long the table keeps both, floodmark check says how long that is",
    ),
    Limit(
        "FM316",
        of_source("files"),
        "what is changed in a file after it was read is not delivered; the job stops (exit 5)",
        "on_rewritten: reread",
    ),
    Limit(
        "FM317",
        lambda job, sink: sink.type == "kafka",
        "consumers of {sink} without isolation.level=read_committed see messages of aborted attempts",
        "set it in every consumer",
    ),
)


def limits(job: JobModel, where: str) -> Iterator[Finding]:
    """Everything that the job does not promise, each once: what is about its source does not depend on the sink."""
    seen: set[str] = set()
    for limit in LIMITS:
        for sink in (sink for sink in job.sinks if limit.holds(job, sink)):
            words = {"job": job.name, "cursor": cursor_of(job), "sink": f"sink '{sink.ledger_name()}'"}
            message = limit.message.format(**words)
            if message not in seen:
                seen.add(message)
                yield Finding(limit.rule, where, job.name, message, limit.hint.format(**words))


def cursor_of(job: JobModel) -> str:
    """The cursor's columns; empty where there is none."""
    return ", ".join(getattr(getattr(job.source, "cursor", None), "column", ()))
