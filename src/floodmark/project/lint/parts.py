"""What lint can say of a job's parts: the cursor of a table and its safety, a transform's SQL, quality rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from floodmark.errors import ConfigError, SourceUnreadable
from floodmark.inputs import parse_mistake, parse_sql, sql_tokens
from floodmark.locations import local_path, path_in_marks
from floodmark.probes.delta import DeltaProbe
from floodmark.probes.tables.databases import KnownDatabase, database_behind
from floodmark.probes.tables.relation import Relation
from floodmark.project.findings import Finding
from floodmark.project.kinds import DeltaSink, DeltaSource
from floodmark.project.kinds.medallion import FactSource
from floodmark.project.kinds.servers import (
    CatalogSource,
    CursorModel,
    JdbcSource,
    PostgresSink,
    PostgresSource,
    SqliteSource,
    TableOrQuery,
)
from floodmark.project.lint.columns import row_columns
from floodmark.project.lint.queries import is_unit, missing_column, query_mistakes, statements_of
from floodmark.step.repeatable import table_name, tables_read, volatile_calls

if TYPE_CHECKING:
    from floodmark.inputs.yaml import Place
    from floodmark.project.kinds import PathOrTable, SinkModel, Site
    from floodmark.project.kinds.rules import RuleModel
    from floodmark.project.models import JobModel, Project


FindingAt = Callable[["Place", str, str, str], Finding]
"""Makes a finding of a place in the job, an id, a message and a hint."""


class FindingInSql(Protocol):
    """Makes a finding of an id, a message, a hint, and the line of the query, where it is known."""

    def __call__(self, rule: str, message: str, hint: str, line: int = 1, /) -> Finding: ...


FindingInRule = Callable[[int, str, str, str], Finding]
"""Makes a finding of a rule's position in the job, an id, a message and a hint."""
CURSOR = ("source", "cursor")
CHANGE_FEED = "change_feed: true"
WITH_FEED = ("scd1", "scd2", "dimension")
"""Modes whose tables always have a change feed."""
CHOICES = "key: [id], or column: [{}, id], or unique: true if no two rows ever have the same"
INSTEAD = "leave safety out: then a fence waits for whoever may still write"
ELSEWHERE = "safety: {delay: 30s}, or safety: {lag: 1h} into a merge"
SLOWER = "nothing, or a column with an index that grows"
VOLATILE_CALLS = {
    "clock": ("{} is another moment when a batch is repeated", "use :batch_time, which is not"),
    "chance": ("{} gives other values when a batch is repeated", "derive it from the row, as with md5"),
    "partition": ("{} depends on how Spark splits the rows", "number rows by a column of theirs"),
}


def lint_cursor(job: JobModel, finding: FindingAt) -> Iterator[Finding]:
    """The findings on the cursor of a job."""
    source, cursor = job.source, _cursor_of(job)
    if cursor is None or not isinstance(source, TableOrQuery | CatalogSource):
        return
    if not _is_told_apart(source, cursor):
        name = (cursor.column or cursor.coalesce)[0]
        said = f"several rows may have the same {name}, and nothing tells them apart: the run will refuse"
        yield finding(CURSOR, "FM417", said, CHOICES.format(name))
    if cursor.on_null == "include":
        for position, sink in enumerate(job.sinks):
            if not isinstance(sink, DeltaSink | PostgresSink) or sink.mode != "merge":
                said = f"sink '{sink.ledger_name()}' would keep a row twice: without its cursor, and once it has one"
                yield finding(("sinks", position), "FM416", said, "mode: merge, or on_null: exclude, or coalesce")


def lint_frozen(job: JobModel, project: Project, finding: FindingAt) -> Iterator[Finding]:
    """A fact that is not restated needs the keys that it was built with, for ever."""
    if not isinstance(job.source, FactSource):
        return
    for position, lookup in enumerate(job.source.lookups):
        place = lookup.path or lookup.table
        if lookup.when_moved == "freeze" and place in _dropping_dimensions(project):
            said = f"{place} drops versions that a late event moves, and this fact would keep their keys"
            yield finding(("source", "lookups", position), "FM208", said, "keep_superseded: true in that dimension")


Filled: TypeAlias = "Mapping[str, Sequence[tuple[JobModel, DeltaSink]]]"
"""By a Delta table's name or folder, the sinks of the project that fill it, each with its job."""


def tables_filled(project: Project, site: Site) -> Filled:
    """The Delta tables that the project fills: found once, since each job asks for those that it reads."""
    filled: dict[str, list[tuple[JobModel, DeltaSink]]] = {}
    for job in project.jobs:
        for sink in job.sinks:
            if isinstance(sink, DeltaSink):
                filled.setdefault(_where(sink, site), []).append((job, sink))
    return filled


def lint_followed(job: JobModel, filled: Filled, site: Site, finding: FindingAt) -> Iterator[Finding]:
    """A table that another job of the project fills in a way that this one cannot follow."""
    for field, read in _tables_followed(job):
        takes_added_rows = isinstance(read, DeltaSource) and read.changes == "append"
        for writer, sink in filled.get(_where(read, site), ()):
            has_feed = sink.change_feed or sink.mode in WITH_FEED or _has_feed(sink, site)
            name, turn_on = f"sink '{sink.ledger_name()}' of job '{writer.name}'", f"{CHANGE_FEED} at that sink"
            if takes_added_rows and sink.mode != "append":
                said = f"{name} changes rows of the table, and the first change stops this job (exit 5)"
                yield finding(field, "FM210", said, "changes: feed" if has_feed else f"changes: feed, and {turn_on}")
            elif not takes_added_rows and not has_feed:
                said = f"{name} gives the table no change feed, which this job needs"
                yield finding(field, "FM210", said, turn_on)


def _tables_followed(job: JobModel) -> Iterator[tuple[Place, PathOrTable]]:
    """The Delta tables whose changes a job reads."""
    if isinstance(job.source, DeltaSource):
        yield ("source",), job.source
    if isinstance(job.source, FactSource):
        yield ("source", "rows"), job.source.rows
        yield from ((("source", "lookups", n), each) for n, each in enumerate(job.source.lookups))


def _where(table: PathOrTable, site: Site) -> str:
    """The table's name or its folder, however that is spelled."""
    return table.table or path_in_marks(str(table.place(site)))


def _has_feed(sink: DeltaSink, site: Site) -> bool:
    """Whether the table is there already, on this machine, and somebody has switched its feed on."""
    place = sink.place(site)
    probe = None if place is None or local_path(place) is None else DeltaProbe(place)
    try:
        return probe is not None and probe.refresh() and probe.feed_is_on()
    except SourceUnreadable:
        return False


def _dropping_dimensions(project: Project) -> set[str | None]:
    """Where dimensions with versions are that keep only those which still hold."""
    members = [(job, job.transform.dimension) for job in project.jobs if job.transform and job.transform.dimension]
    dropping = [job for job, dimension in members if dimension.versions and not dimension.keep_superseded]
    return {sink.path or sink.table for job in dropping for sink in job.sinks if isinstance(sink, DeltaSink)}


def _cursor_of(job: JobModel) -> CursorModel | None:
    """The cursor that a job's source is read by, if it is."""
    return job.source.cursor if isinstance(job.source, TableOrQuery | CatalogSource) else None


def _is_told_apart(source: TableOrQuery | CatalogSource, cursor: CursorModel) -> bool:
    """Whether a run can tell rows of one value apart, as far as the file says; of a table the catalog may know more."""
    if cursor.unique or len(cursor.column) > 1 or "xmin" in cursor.column:
        return True
    if isinstance(source, CatalogSource):
        return bool(source.key)
    if source.query is not None:
        return bool(source.key) and not is_bounded(source.query)
    if not isinstance(source, JdbcSource) or source.url.startswith("jdbc:postgresql:"):
        return True
    return isinstance(database_behind(source.url), KnownDatabase)


def is_bounded(query: str) -> bool:
    """Whether the query names its bounds; FM206 tells of one that names them wrongly."""
    try:
        return Relation(query=query).is_bounded
    except ConfigError:
        return False


def lint_safety(job: JobModel, finding: FindingAt) -> Iterator[Finding]:
    """The findings on the safety of a job's cursor."""
    source, cursor = job.source, _cursor_of(job)
    if cursor is None or not isinstance(source, TableOrQuery | CatalogSource):
        return
    if "xmin" in cursor.column:
        yield finding(CURSOR, "FM415", "no index knows xmin: every look and every read scans the table", SLOWER)
        return
    way = _way(cursor, "fence" if isinstance(source, PostgresSource) else "none")
    if way == "none" and not isinstance(source, SqliteSource):
        said = "a row that commits late, at or below a value that was read, is never read"
        yield finding(CURSOR, "FM410", said, INSTEAD if isinstance(source, PostgresSource) else ELSEWHERE)
    if way == "delay":
        said = "rows of a transaction that is open for longer than the delay are never read"
        yield finding(CURSOR, "FM413", said, "make it longer than any transaction, or use safety: fence")
    if way == "lag":
        yield from _lag(job, source, finding)


def _lag(job: JobModel, source: TableOrQuery | CatalogSource, finding: FindingAt) -> Iterator[Finding]:
    if not source.key:
        yield finding(
            CURSOR, "FM414", "safety: lag reads some rows again, and nothing tells them apart", "add key: [id]"
        )
    for position, sink in enumerate(job.sinks):
        if not _knows_again(sink):
            said = f"sink '{sink.ledger_name()}' would write rows twice that safety: lag reads again"
            yield finding(("sinks", position), "FM414", said, "a Delta table with append or merge, or mode: merge")


def _knows_again(sink: SinkModel) -> bool:
    """As the sinks themselves answer `without_repeats`."""
    if isinstance(sink, DeltaSink):
        return sink.mode in ("append", "merge")
    return isinstance(sink, PostgresSink) and sink.mode == "merge"


def _way(cursor: CursorModel, otherwise: str) -> str | None:
    """The chosen way, else the source's own; None where the choice itself is wrong, and FM206 says so."""
    from floodmark.sources.tables.safety import Safety

    try:
        return Safety.of(cursor.safety or otherwise).way
    except ConfigError:
        return None


def lint_sql(
    sql: str, finding: FindingInSql, sources: Sequence[str] = ("source",), columns: frozenset[str] | None = None
) -> Iterator[Finding]:
    """The findings on one query over these sources; `columns` are those of a single one, where they are known."""
    try:
        statements = statements_of(sql)
    except SqlglotError as error:
        yield finding("FM101", parse_mistake(error), "fix the SQL; it is Spark's dialect", _mistake_line(error))
        return
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        yield finding("FM104", "the transform has to be one SELECT", f"write one query over {_name_list(sources)}")
        return
    yield from _names_without_quotes(sql, finding)
    try:
        yield from [*_tables(statements[0], finding, sources), *_functions(sql, finding)]
        mistakes = query_mistakes(sql, columns)
    except RecursionError:
        yield finding("FM101", "the SQL has too many parts in each other", "split the query")
        return
    for mistake in mistakes:
        yield finding("FM106", mistake.message, mistake.hint, mistake.line)


def lint_expression(sql: str, finding: FindingInSql) -> Iterator[Finding]:
    """The findings on one expression over a row."""
    try:
        parse_sql(sql)
    except SqlglotError as error:
        yield finding("FM101", parse_mistake(error), "fix the SQL; it is Spark's dialect")
        return
    yield from _names_without_quotes(sql, finding)
    yield from _functions(f"select {sql}", finding)


def _names_without_quotes(sql: str, finding: FindingInSql) -> Iterator[Finding]:
    """Names that sqlglot takes as they are, and Spark only in backquotes."""
    for token in sql_tokens(sql):
        if token.token_type is TokenType.VAR and not token.text.isascii():
            said = f"the name {token.text} stands without backquotes"
            yield finding("FM101", said, f"write `{token.text}`", token.line)


def _tables(query: exp.Query, finding: FindingInSql, sources: Sequence[str]) -> Iterator[Finding]:
    lines = {table_name(table): line_of(table) for table in reversed(list(tables_read(query)))}
    others = sorted(name for name in lines if name.lower() not in {each.lower() for each in sources})
    if sources[0].lower() not in {name.lower() for name in lines}:
        yield finding("FM102", f"the SQL does not read `{sources[0]}`", f"select … from {sources[0]}")
    for name in others:
        yield finding(
            "FM105",
            f"{name} is read as it is at that moment: no mark covers it, and a repeat may see other rows",
            "make it a job of its own, or know that late changes of it are not delivered again",
            lines[name],
        )


def _functions(query: str, finding: FindingInSql) -> Iterator[Finding]:
    calls = volatile_calls(query)
    for kind, (message, hint) in VOLATILE_CALLS.items():
        for call in sorted(call for call, why in calls.items() if why == kind):
            yield finding("FM103", message.format(call), hint, _line_of_word(call, query))


def line_of(part: exp.Expr) -> int:
    """The line of the query in which a part of it begins, as far as its names tell."""
    return min((each.meta["line"] for each in part.find_all(exp.Identifier) if "line" in each.meta), default=1)


def _mistake_line(error: SqlglotError) -> int:
    """The line of the query that cannot be parsed."""
    listed = getattr(error, "errors", None)
    return int((listed[0] if listed else {}).get("line") or 1)


def _line_of_word(word: str, query: str) -> int:
    return next((token.line for token in sql_tokens(query) if token.text.lower() == word.strip("()").lower()), 1)


def repeated_calls(condition: str) -> list[str]:
    """Calls in a condition that may answer otherwise the second time."""
    return sorted(call for call, why in volatile_calls(f"select {condition}").items() if why in VOLATILE_CALLS)


def _name_list(sources: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in sources)


def lint_rules(job: JobModel, site: Site, finding: FindingInRule) -> Iterator[Finding]:
    """The findings on all rules of a job, in the order of the file."""
    columns = row_columns(job, site)
    names: set[str] = set()
    for position, model in enumerate(job.rules):
        try:
            name = model.build(site).name
        except ConfigError as error:
            yield finding(position, "FM206", error.message, error.hint)
            continue
        if name in names:
            yield finding(position, "FM206", f"two rules are called '{name}'", "give each rule a name")
        names.add(name)
        yield from lint_rule(model, name, columns, lambda *said, at=position: finding(at, *said))


def lint_rule(model: RuleModel, name: str, columns: frozenset[str] | None, finding: FindingInSql) -> Iterator[Finding]:
    """One rule: whether its SQL can be read and repeated, and whether its columns are there."""
    named = list(model.columns())
    if model.check is not None:
        try:
            condition = parse_sql(model.check, into=exp.Condition)
        except SqlglotError as error:
            yield finding(
                "FM121", f"rule '{name}': {parse_mistake(error)}", "fix the SQL; it is a condition on one row"
            )
            return
        for call in repeated_calls(model.check):
            yield finding(
                "FM122", f"rule '{name}' asks {call}: a repeated batch may be judged otherwise", "ask the row"
            )
        named += [column.parts[0].name for column in condition.find_all(exp.Column) if not is_unit(column)]
    if columns is None:
        return
    for missing in sorted({each for each in named if each.split(".")[0].lower() not in columns}):
        mistake = missing_column(missing, columns, "the rows have")
        yield finding("FM123", f"rule '{name}': {mistake.message}", mistake.hint)
