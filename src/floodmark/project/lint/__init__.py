"""Lint: what can be said about a project offline, without a connection, a JVM or running the user's code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from floodmark.errors import ConfigError
from floodmark.errors.known_causes import jdbc_hint
from floodmark.jobs.job import as_transform
from floodmark.locations import line_without_return, local_path, missing_part
from floodmark.project.file import store_settings
from floodmark.project.findings import Finding, Guarantee
from floodmark.project.findings import Report as Report
from floodmark.project.folder import gather, without
from floodmark.project.kinds import (
    ConsoleSink,
    DeltaSink,
    FilesSink,
    PythonSource,
    SinkModel,
    Site,
    SourceModel,
)
from floodmark.project.kinds.medallion import DimensionMembers, FactSource
from floodmark.project.kinds.servers import DecodedMessages, JdbcSource, KafkaSource
from floodmark.project.lint.circles import Circles, circles
from floodmark.project.lint.columns import (
    declared_schemas,
    row_columns,
    schema_mistakes,
    sink_mistakes,
    source_columns,
    unfit_name,
)
from floodmark.project.lint.parts import (
    Filled,
    lint_cursor,
    lint_expression,
    lint_followed,
    lint_frozen,
    lint_rules,
    lint_safety,
    lint_sql,
    tables_filled,
)
from floodmark.project.lint.promises import guarantee_text, limits
from floodmark.project.loading import examine_places
from floodmark.project.models import JobModel, Project
from floodmark.project.python_jobs import GivenJob, Unseen, setup_finding
from floodmark.rules import RuleSet
from floodmark.spark.masters import master_mistake
from floodmark.spark.session import full_names, is_local
from floodmark.step.transform import Function, Identity, Sql
from floodmark.step.work import why_spooled
from floodmark.stores.opening import LOADERS, unknown_store

if TYPE_CHECKING:
    from floodmark.inputs.yaml import Place
    from floodmark.project.file import Document
    from floodmark.project.kinds.rules import RuleModel
    from floodmark.step.transform import Transform


SHARED_STORES = ("postgresql:", "postgres:")
WithPython: TypeAlias = "Callable[[Project], tuple[Project, list[Unseen]]]"
WHOLE_BATCH = ("unique", "references", "row_count", "fresh")
BRINGING = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")
IMMUTABLE = ("files", "delta", "fact", "kafka")


def lint(document: Document, with_python: WithPython = lambda project: (project, [])) -> Report:
    """Look at the whole project; what is wrong with its files hides nothing in the jobs that can be read.

    `with_python` adds the jobs that Python gives: their modules are imported there, and nothing else is.
    """
    document, project, mistakes, names = _readable_part(gather(document))
    if project is None:
        return Report(tuple(mistakes))
    try:
        project, unseen = with_python(project)
    except ConfigError as error:
        mistakes, unseen = [*mistakes, _mistake(error, document)], []
    site = Site(document.folder)
    filled, around = tables_filled(project, site), circles(project, site)
    jobs = [JobLint(job, ("jobs", at), document, project, filled, around) for at, job in project.placed_jobs()]
    findings = [*mistakes, *_store(document), *_master(project, document), *setup_finding(project, document)]
    findings += [*(each.finding(document) for each in unseen), *(each for job in jobs for each in job.findings())]
    findings = [replace(each, job=names.get(each.job or "", each.job)) for each in findings]
    if mistakes:
        return Report(tuple(findings))
    guarantees = [guarantee for job in jobs for guarantee in job.guarantees()]
    limited = [limit for job in jobs for limit in limits(job.job, document.where(job.place))]
    return Report(tuple(findings), tuple(guarantees), tuple(limited))


def _readable_part(document: Document) -> tuple[Document, Project | None, list[Finding], dict[str, str]]:
    """The project without what is wrong with its files, which is said; and the names in the file of renamed jobs."""
    project, wrong = examine_places(document)
    mistakes = [_mistake(error, document) for _, error in wrong]
    if project is not None:
        return document, project, mistakes, {}
    rest, names = without(document, [place for place, _ in wrong])
    return rest, examine_places(rest)[0], mistakes, names


def _store(document: Document) -> Iterator[Finding]:
    """A kind of store that nobody knows; the rest of its text may hold a password, and is not shown."""
    store = store_settings(document).store
    for text in (store,) if isinstance(store, str) else store:
        if text.partition(":")[0] not in LOADERS:
            yield _mistake(unknown_store(text, document.where(("store",))), document)


def _master(project: Project, document: Document) -> Iterator[Finding]:
    wrong = master_mistake(project.master)
    if wrong is not None:
        yield Finding("FM108", document.where(("spark", "master")), None, wrong.message, wrong.hint)


def _mistake(error: ConfigError, document: Document) -> Finding:
    where, message = getattr(error, "where", None), error.message
    begun = re.match(r"(\S+:\d+)(:?) ", message)  # of a file that is no YAML, or holds no job
    if where is None and begun:
        where, message = begun[1], ("" if begun[2] else "the file ") + message[begun.end() :]
    where = where or document.file.name
    message = message.removeprefix(f"{where}: ").replace(f" at {where}.", ".").replace(f" ({where}).", ".")
    return Finding("FM100", where, None, message, error.hint)


@dataclass(frozen=True)
class JobLint:
    """One job of the file, part by part."""

    job: JobModel
    place: Place
    document: Document
    project: Project
    filled: Filled
    circles: Circles

    @property
    def _site(self) -> Site:
        return Site(self.document.folder)

    def findings(self) -> Iterator[Finding]:
        """Everything, in the order of the file."""
        yield from self._source()
        yield from self._transform()
        if not isinstance(self.job, GivenJob):  # rules that Python made have been judged by making them
            yield from lint_rules(self.job, self._site, self._on_rule)
        for position, sink in enumerate(self.job.sinks):
            yield from self._sink(sink, ("sinks", position))
        yield from self._sink_columns()
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
            yield from lint_followed(self.job, self.filled, self._site, self._finding)
        yield from self._circle()
        yield from self._schemas()
        yield from self._driver()
        yield from lint_safety(self.job, self._finding)
        yield from lint_cursor(self.job, self._finding)

    def _circle(self) -> Iterator[Finding]:
        others = self.circles.get(self.job.name, ())[:-1]
        if self.job.name in self.circles:
            through = f", through {' and '.join(others)}" if others else ""
            said = f"the job reads what it fills{through}: what one run writes, the next one finds as new rows"
            yield self._finding(("source",), "FM211", said, "read from another place, or write to another one")

    def _schemas(self) -> Iterator[Finding]:
        """A wrong type, which Spark would find while it reads: by then it looks like a fault of the sink."""
        for place, ddl in declared_schemas(self.job):
            for mistake in schema_mistakes(ddl):
                yield self._finding(place, "FM107", mistake.message, mistake.hint)

    def _driver(self) -> Iterator[Finding]:
        """A JDBC driver that nothing in the file brings; Spark may have it for all that, so it is a warning."""
        source, settings = self.job.source, full_names(self.project.spark_settings())
        if not isinstance(source, JdbcSource) or source.url.startswith("jdbc:postgresql:"):
            return
        if is_local(self.project.master) and not any(name in settings for name in BRINGING):
            said = "nothing in `spark:` brings the driver of this jdbc: URL"
            yield self._finding(("source", "url"), "FM209", said, jdbc_hint(source.url))

    def _transform(self) -> Iterator[Finding]:
        transform = self.job.transform
        if transform is None:
            return
        if transform.python is not None:
            wrong = list(self._python(transform.python, ("transform", "python")))
            yield from wrong or self._without_return(transform.python)
        if transform.sql is not None:
            yield from lint_sql(
                transform.sql, self._finding_in_query, _sources(self.job), source_columns(self.job, self._site)
            )
        if transform.dimension is not None:
            yield from self._members(transform.dimension)

    def _finding_in_query(self, rule: str, message: str, hint: str, line: int = 1) -> Finding:
        """In a file of SQL at its own line; in YAML, whose blocks may fold lines, where the query begins."""
        place = (*self.place, "transform", "sql")
        where = f"{self.document.file_of(place)}:{line}" if place in self.document.homes else self.document.where(place)
        return Finding(rule, where, self.job.name, message, hint)

    def _members(self, dimension: DimensionMembers) -> Iterator[Finding]:
        place = ("transform", "dimension", "columns")
        for name, sql in dimension.columns.items():
            yield from lint_expression(sql, lambda *said, at=name: self._finding((*place, at), *said[:3]))

    def _python(self, name: str, place: Place) -> Iterator[Finding]:
        if isinstance(self.job, GivenJob):
            return  # it is there: Python gave the job
        missing = missing_part(name, self.document.folder)
        if missing is not None:
            yield self._finding(place, "FM110", f"{name}: {missing}", "write it, or fix the name")

    def _without_return(self, name: str) -> Iterator[Finding]:
        line = line_without_return(name, self.document.folder)
        if line is not None:
            said = f"{name} gives nothing back ({line}): it has no `return`"
            yield self._finding(("transform", "python"), "FM111", said, "end it with `return rows`")

    def _sink(self, sink: SinkModel, place: Place) -> Iterator[Finding]:
        wrong = list(self._delta(sink, place)) if isinstance(sink, DeltaSink) else []
        yield from wrong
        if not any(finding.severity == "error" for finding in wrong):
            yield from self._build_errors(sink, place)
        if isinstance(sink, ConsoleSink):
            yield self._finding(
                place, "FM302", "after a crash the console may show rows again", "read it with that in mind"
            )

    def _sink_columns(self) -> Iterator[Finding]:
        """Columns that sinks are told to use, where it is known which there are."""
        columns = row_columns(self.job, self._site)
        for position, sink in enumerate(self.job.sinks) if columns is not None else ():
            for field, mistake in sink_mistakes(sink, columns or frozenset()):
                yield self._finding(("sinks", position, *field), "FM124", mistake.message, mistake.hint)
            unfit = unfit_name(sink, columns or frozenset(), self._site) if self.job.transform is None else None
            if unfit:
                yield self._finding(("sinks", position), "FM125", unfit.message, unfit.hint)

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
            part.build(self._site)
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
        own = [(n, sink) for n, sink in enumerate(self.job.sinks) if isinstance(sink, FilesSink | DeltaSink)]
        sinks: list[tuple[Place, str]] = [(("sinks", n), sink.path) for n, sink in own if sink.path is not None]
        spool: list[tuple[Place, str]] = [((), self.job.spool)] if self._why_spooled() else []
        for place, path in (*sinks, *spool):
            if local_path(path) is not None:
                said = f"Spark runs at {self.project.master}, and executors on other machines may not see {path}"
                hint = "a disk that all of them share (`floodmark check` asks them), or a URL"
                yield self._finding(place, "FM207", said, hint)

    def _why_spooled(self) -> str | None:
        """The step's own reason; none, where a sink cannot be built and FM206 says so."""
        try:
            sinks = [sink.build(self._site) for sink in self.job.sinks]
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
