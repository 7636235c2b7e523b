"""What is known of a job's columns before Spark starts: declared in the file, or in the log of the table that is read.

Only what is certain is said: a query that joins, or a source whose columns only a server knows, is left to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

from floodmark.errors import FloodmarkError
from floodmark.errors.configuration import did_you_mean, nearest_names
from floodmark.inputs import parse_sql
from floodmark.locations import local_path
from floodmark.project.kinds import DeltaSink, DeltaSource, FilesSource, Site
from floodmark.project.kinds.servers import DecodedMessages, JsonMessages, KafkaSource, PostgresSink, TableOrQuery

if TYPE_CHECKING:
    from floodmark.inputs.yaml import Place
    from floodmark.project.kinds import SinkModel
    from floodmark.project.models import JobModel


ColumnNames: TypeAlias = "frozenset[str]"
"""In lower case, since Spark does not tell cases apart."""
SIMPLE_TYPES = frozenset(
    re.findall(
        r"\w+",
        "boolean tinyint byte smallint short int integer bigint long float real double date timestamp "
        "timestamp_ntz timestamp_ltz time string binary void variant ",
    )
)
SIZED_TYPES = frozenset(["decimal", "dec", "numeric", "char", "character", "varchar", "time", "geography", "geometry"])
NESTED_TYPES = {"array": 1, "map": 2}
NOT_COLUMNS = frozenset(
    re.findall(
        r"\w+",
        "current_catalog current_database current_date current_schema current_time current_timestamp "
        "current_timezone current_user grouping__id localtimestamp now session_user user _metadata ",
    )
)
"""Names that Spark knows without a source: functions that need no brackets, and what it adds to files."""
UNITS = frozenset(["year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond"])
BEHIND_TYPE = re.compile(r"\s+(?:not\s+null|comment\b|default\b|collate\b|generated\b)", re.IGNORECASE)
ROW_FIELDS = ("key", "sequence", "by", "track", "untracked")
LAYOUT_FIELDS = ("partition_by", "cluster_by", "zorder")
"""Fields of a sink that name columns: of the rows that it gets, and of the table that it makes of them."""
WIDEST_DECIMAL = 38
SHOWN = 12
"""So many columns are listed where one is missing; a wide table would fill the screen."""


@dataclass(frozen=True)
class ColumnMistake:
    """A column or a type that is not there, and what it may be."""

    message: str
    hint: str


def schema_mistakes(ddl: str) -> Iterator[ColumnMistake]:
    """What Spark would refuse in a schema of the file: a type that is none, a column without one, one that is twice."""
    if ddl.strip().lower().startswith("struct<"):
        return
    seen: set[str] = set()
    for name, kind in declared_fields(ddl):
        wrong = type_mistake(kind) if kind else "it has no type"
        if wrong:
            yield ColumnMistake(f"column '{name}': {wrong}", _type_hint(name, kind))
        if name.lower() in seen:
            yield ColumnMistake(f"column '{name}' stands there twice", "take one of them out")
        seen.add(name.lower())


def _type_hint(name: str, kind: str) -> str:
    known = SIMPLE_TYPES | SIZED_TYPES | NESTED_TYPES.keys()
    near = nearest_names(_word(kind), known, likeness=0.5) if kind and _word(kind) not in known else []
    return did_you_mean(near) or f"a type of Spark's DDL, as in {name} long, or string, decimal(10,2), timestamp"


def declared_fields(ddl: str) -> list[tuple[str, str]]:
    """Each column of Spark's DDL with its type, which is empty where none is written."""
    fields = [re.match(r"\s*(`(?:[^`]|``)*`|[^\s:]+)\s*:?\s*(.*)", part, re.DOTALL) for part in _parts(ddl)]
    return [(each[1].strip("`"), _type_text(each[2])) for each in fields if each]


def declared_columns(ddl: str) -> ColumnNames:
    """The names alone."""
    return frozenset(name.lower() for name, _ in declared_fields(ddl))


def _type_text(text: str) -> str:
    """The type without what may follow it: NOT NULL, a comment, a default, a collation."""
    return re.split(r"\s+(?:not\s+null|comment\b|default\b|collate\b|generated\b)", text, flags=re.IGNORECASE)[
        0
    ].strip()


def _parts(text: str) -> list[str]:
    """The text at its commas, but for those within brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "`'\"":
            quote = sign
        else:
            depth += (sign in "(<") - (sign in ")>")
        if sign == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += sign
    return [part for part in parts if part.strip()]


def type_mistake(kind: str) -> str | None:
    """What is wrong with a type of Spark's DDL; None if all is well."""
    word, inner = _word(kind), re.fullmatch(r"\w+\s*[(<](.*)[)>]", kind, re.DOTALL)
    if word == "interval" or kind.lower() in SIMPLE_TYPES or (word in SIZED_TYPES and word == kind.lower()):
        return None
    if word in SIZED_TYPES and inner:
        return _size_mistake(kind, inner[1]) if word in ("decimal", "dec", "numeric") else None
    if word == "struct" and inner:
        fields = [(name, type_mistake(each) if each else "it has no type") for name, each in declared_fields(inner[1])]
        return next((f"field '{name}': {wrong}" for name, wrong in fields if wrong), None)
    if word in NESTED_TYPES and inner and len(parts := _parts(inner[1])) == NESTED_TYPES[word]:
        return next((wrong for part in parts if (wrong := type_mistake(_type_text(part.strip())))), None)
    return f"'{kind}' is no type of Spark's"


def _size_mistake(kind: str, sizes: str) -> str | None:
    numbers = [int(each) for each in sizes.split(",") if each.strip().isdigit()]
    if not numbers or numbers[0] > WIDEST_DECIMAL:
        return f"'{kind}' has more digits than the {WIDEST_DECIMAL} that a decimal holds"
    return f"'{kind}' has more digits behind the point than at all" if max(numbers) > numbers[0] else None


def _word(kind: str) -> str:
    return re.split(r"[\s(<]", kind.strip(), maxsplit=1)[0].lower()


def declared_schemas(job: JobModel) -> Iterator[tuple[Place, str]]:
    """Where the job's source declares columns as DDL, with the text; types of single columns are such a text too."""
    source = job.source
    if isinstance(source, FilesSource) and source.schema_:
        yield ("source", "schema"), source.schema_
    if isinstance(source, KafkaSource) and isinstance(source.value, (JsonMessages, DecodedMessages)):
        yield ("source", "value", "schema"), source.value.schema_
    if isinstance(source, TableOrQuery):
        for name, kind in source.types.items():
            yield ("source", "types", name), f"`{name}` {kind}"


def source_columns(job: JobModel, site: Site) -> ColumnNames | None:
    """The columns of the job's source, where the file or the log of a table on this machine tells them."""
    source = job.source
    if isinstance(source, FilesSource):
        return declared_columns(source.schema_) if source.schema_ else None
    if isinstance(source, DeltaSource) and source.changes == "append":
        return _logged_columns(source.place(site))
    return None


def _logged_columns(place: str | None) -> ColumnNames | None:
    """What the table's log says; None where it is elsewhere, not there yet, or cannot be read: the look tells of it."""
    local = local_path(place) if place else None
    if local is None or not (local / "_delta_log").is_dir():
        return None
    from floodmark.probes.delta import DeltaProbe

    probe = DeltaProbe(str(local))
    try:
        return frozenset(map(str.lower, probe.columns())) if probe.refresh() else None
    except FloodmarkError:
        return None


def row_columns(job: JobModel, site: Site) -> ColumnNames | None:
    """The columns of the rows that rules and sinks get; None where only Spark knows."""
    source = source_columns(job, site)
    if job.transform is None:
        return source
    return selected_columns(job.transform.sql, source) if job.transform.sql is not None else None


def selected_columns(sql: str, source: ColumnNames | None) -> ColumnNames | None:
    """What a query gives, if its list says so; a bare `*` stands for the columns of the source."""
    try:
        tree = parse_sql(sql)
    except SqlglotError:
        return None
    stars = [each for each in tree.expressions if isinstance(each, exp.Star)] if isinstance(tree, exp.Select) else []
    if not isinstance(tree, exp.Select) or tree.args.get("joins") or tree.args.get("laterals") or len(stars) > 1:
        return None
    names = [each.alias_or_name.lower() for each in tree.expressions if not isinstance(each, exp.Star)]
    plain_star = stars and source is not None and not stars[0].args.get("except_") and _reads_source(tree)
    if not all(names) or "*" in names or (stars and not plain_star):
        return None
    return frozenset(names) | (source if stars and source is not None else frozenset())


def _reads_source(tree: exp.Select) -> bool:
    """Whether its FROM is the source itself, and not a query whose columns would have to be followed."""
    read = tree.args.get("from_")
    return isinstance(read, exp.From) and isinstance(read.this, exp.Table) and read.this.name.lower() == "source"


def query_mistakes(sql: str, columns: ColumnNames) -> Iterator[ColumnMistake]:
    """Columns of `source` that a query names and that are not there."""
    try:
        scopes = traverse_scope(parse_sql(sql))
    except SqlglotError:
        return  # FM101 says so
    missing = (column.parts[0].name for scope in scopes if _is_plain(scope) for column in _missing(scope, columns))
    for name in dict.fromkeys(missing):
        yield missing_column(name, columns, "the source has")


def missing_column(name: str, columns: Iterable[str], owner: str) -> ColumnMistake:
    """A name that is not among the columns, with the nearest one, or with what there is."""
    known = sorted(columns)
    listed = ", ".join(known[:SHOWN]) + (f" and {len(known) - SHOWN} more" if len(known) > SHOWN else "")
    near = did_you_mean(nearest_names(name.lower(), known))
    return ColumnMistake(f"there is no column '{name}': {owner} {listed}", near or "fix the name")


def _is_plain(scope: Scope) -> bool:
    """A SELECT from `source` alone, that is not inside an expression: there a name may be of the query around it."""
    select = scope.expression
    if not isinstance(select, exp.Select) or scope.is_subquery or len(scope.sources) != 1:
        return False
    if any(select.args.get(part) for part in ("joins", "laterals", "pivots", "match", "hint")):
        return False
    [read] = scope.sources.values()
    return isinstance(read, exp.Table) and read.name.lower() == "source" and not read.args.get("pivots")


def _missing(scope: Scope, columns: ColumnNames) -> Iterator[exp.Column]:
    select = scope.expression
    aliases = {each.alias.lower() for each in select.expressions if each.alias}
    tables = {name.lower() for name in scope.sources}
    windows = {each.name.lower() for each in select.args.get("windows") or ()}
    known = columns | aliases | NOT_COLUMNS | windows
    for column in select.find_all(exp.Column):
        first = column.parts[0].name.lower()
        is_qualified = len(column.parts) > 1 and first in tables
        name = column.parts[1].name.lower() if is_qualified else first
        if isinstance(column.this, exp.Star) or _is_inside_query(column, select) or is_unit(column):
            continue
        if name not in known and not _is_parameter(column, name):
            yield exp.column(column.parts[1].name) if is_qualified else column


def _is_inside_query(column: exp.Column, select: exp.Expr) -> bool:
    return column.find_ancestor(exp.Select) is not select


def _is_parameter(column: exp.Column, name: str) -> bool:
    """Whether it is what a lambda calls its argument, or the name of an argument."""
    around = column.find_ancestor(exp.Lambda)
    while around is not None:
        if name in {each.name.lower() for each in around.expressions}:
            return True
        around = around.find_ancestor(exp.Lambda)
    return isinstance(column.parent, exp.Kwarg | exp.PropertyEQ) and column.arg_key == "this"


def is_unit(column: exp.Column) -> bool:
    """Whether it is the DAY of timestampdiff(DAY, …), which stands where a column could."""
    return isinstance(column.parent, exp.Func) and column.name.lower() in UNITS


def sink_mistakes(sink: SinkModel, columns: ColumnNames) -> Iterator[tuple[Place, ColumnMistake]]:
    """Columns that a sink is told to use and that its rows do not have, each with its field."""
    has_columns_of_its_own = getattr(sink, "mode", "") not in ("append", "merge", "replace")  # is_current, valid_from
    for field in ROW_FIELDS if has_columns_of_its_own else (*ROW_FIELDS, *LAYOUT_FIELDS):
        named: Sequence[str] = getattr(sink, field, ()) if isinstance(sink, DeltaSink | PostgresSink) else ()
        for name in named:
            if name.split(".")[0].lower() not in columns:
                found = missing_column(name, columns, "the rows have")
                yield (field,), ColumnMistake(f"{field} names '{name}': {found.message}", found.hint)
