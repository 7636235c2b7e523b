"""How a table is polled: the interval of `generate`, the mark from a cache, and the query that it is put into."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp
from sqlglot.errors import SqlglotError

from floodmark.inputs import parse_sql
from floodmark.project.connect.configuration import Component, Configuration, assignment, duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floodmark.inputs.yaml import Place

ASSIGNMENT = re.compile(r"\s*root\.(?P<field>\w+)\s*=\s*(?P<value>-?\d+|\"[^\"]*\")\s*")
ARGUMENTS = re.compile(r"\s*root\s*=\s*\[(?P<items>.*)\]\s*", re.DOTALL)
FIELD = re.compile(r"this\.(\w+)|json\(\"(\w+)\"\)|this\[\"(\w+)\"\]")
LITERAL = re.compile(r"-?\d+(\.\d+)?|\"[^\"]*\"|true|false|null")
PLACEHOLDER = re.compile(r"('(?:[^']|'')*'|\"[^\"]*\")|\$(\d+)|@p(\d+)|(?<!:):(\d+)|(\?)")
NO_ROWS = {
    "log": "the log tells at every batch what was read and where the mark stands",
    "metric": "`floodmark run --metrics-addr` has counts, durations and marks",
    "sleep": "`every` says how often the table is looked at",
}
DIALECTS = {"postgres": "postgres", "sqlite": "sqlite", "mysql": "mysql", "mssql": "tsql", "oracle": "oracle"}
SAVED_EARLY = "there the mark was saved before the rows were delivered; here after all sinks have them"


@dataclass(frozen=True)
class Polling:
    """A table, read above a mark, again and again; `transform` is what the query does with its rows."""

    source: dict[str, Any]
    column: str
    field: str
    cache: str
    key: str
    every: str | None = None
    transform: str | None = None

    @property
    def job_name(self) -> str:
        """The key of the mark, as far as it can be a name."""
        return re.sub(r"[^A-Za-z0-9_.\-]", "_", self.key).lstrip(".-") or "table_cursor"


def polling_of(configuration: Configuration) -> Polling:
    """What the input and the pipeline do together; raises ConfigError for another shape."""
    every = _interval(configuration)
    pipeline = configuration.fields(configuration.values.get("pipeline"), ("pipeline",))
    found = [
        *configuration.components(configuration.values["input"].get("processors"), ("input", "processors")),
        *configuration.components(pipeline.get("processors"), ("pipeline", "processors")),
    ]
    cache = _one(configuration, [each for each in found if _is_get(each)], "cache with `operator: get`")
    query = _one(
        configuration, [each for each in found if each.type in ("sql_raw", "sql_select")], "sql_raw or sql_select"
    )
    start = _start(configuration, found)
    for each in found:
        _note_processor(configuration, each, is_row=found.index(each) > found.index(query))
    for name in pipeline.keys() - {"processors"}:
        configuration.note(("pipeline", name), f"pipeline.{name}: Spark's cores are given by spark.master")
    polling = _query(configuration, query, None if start is None else start[0])
    if start is not None:
        polling.source["cursor"]["start"] = start[1]
    key, resource = configuration.text(cache, "key"), configuration.text(cache, "resource")
    return replace(polling, every=every, cache=resource, key=key)


def _interval(configuration: Configuration) -> str | None:
    generate = configuration.component(configuration.values["input"], ("input",))
    if generate.type != "generate":
        raise configuration.error(
            generate.at(),
            f"the input is '{generate.type}', and what is translated are pipelines that poll a table",
            hint="an input `generate` whose pipeline runs sql_raw or sql_select",
        )
    configuration.note_settings(
        generate,
        {"interval": None, "mapping": None, "count": "a run by itself, without --loop, reads once", "batch_size": None},
    )
    interval = str(generate.setting("interval", "1s")).strip()
    if found := duration(interval.removeprefix("@every").strip()):
        return found
    configuration.note(
        generate.at("interval"),
        f"interval '{interval}': a schedule is not taken over; `floodmark run --loop --every`, cron or a workflow does",
    )
    return None


def _one(configuration: Configuration, found: Sequence[Component], words: str) -> Component:
    if len(found) == 1:
        return found[0]
    place: Place = found[1].place if found else ("pipeline", "processors")
    raise configuration.error(
        place,
        f"there has to be one {words} among the processors, and there are {len(found)}",
        hint="one mark and one query make one job: give each its own file",
    )


def _is_get(component: Component) -> bool:
    return component.type == "cache" and component.setting("operator") == "get"


def _start(configuration: Configuration, found: Sequence[Component]) -> tuple[str, int | str] | None:
    """What stands in for a mark that is not there yet: its field, and from where on rows are read."""
    for catch in [each for each in found if each.type == "catch"]:
        for inner in configuration.components(catch.settings, catch.at()):
            assigned = (
                ASSIGNMENT.fullmatch(assignment(inner.settings)) if inner.type in ("mapping", "bloblang") else None
            )
            if assigned:
                return assigned["field"], _first_value(configuration, inner, assigned["value"])
            if inner.type not in NO_ROWS:
                configuration.note(inner.at(), f"catch: {inner.type} is left out; without a mark all rows are read")
    return None


def _first_value(configuration: Configuration, inner: Component, text: str) -> int | str:
    """A row above the value is read there, and the row at `start` too here."""
    if text.startswith('"'):
        configuration.note(inner.at(), f"catch: the first run reads rows at {text} too, not only those above it")
        return text.strip('"')
    if text == "-1":
        configuration.note(
            inner.at(), "catch: -1 stands for the beginning; here the first run reads from the earliest row"
        )
        return "earliest"
    return int(text) + 1


def _note_processor(configuration: Configuration, processor: Component, *, is_row: bool) -> None:
    kind = processor.type
    if kind in NO_ROWS:
        configuration.note(processor.at(), f"{kind}: {NO_ROWS[kind]}")
    elif kind == "unarchive" and processor.setting("format") != "json_array":
        raise configuration.error(
            processor.at("format"), "rows are taken apart as something else than json_array", hint="format: json_array"
        )
    elif kind == "cache" and not _is_get(processor):
        configuration.note(processor.at(), f"cache: {SAVED_EARLY}")
    elif kind in ("mapping", "bloblang", "mutation") and str(processor.settings).strip() == "root = this":
        return
    elif kind not in ("catch", "cache", "unarchive", "sql_raw", "sql_select"):
        act = "rows arrive as the query gives them: write it as `transform: {sql: select … from source}`"
        configuration.note(processor.at(), f"{kind}: {act if is_row else 'it has no counterpart and is left out'}")


def _query(configuration: Configuration, component: Component, start_field: str | None) -> Polling:
    driver = configuration.text(component, "driver")
    known = ("driver", "dsn", "query", "args_mapping", "table", "columns", "where", "suffix", "prefix")
    configuration.note_settings(component, dict.fromkeys(known))
    sql = configuration.text(component, "query") if component.type == "sql_raw" else _select(configuration, component)
    arguments = _arguments(configuration, component)
    reading = _Reading(configuration, component, DIALECTS.get(driver), arguments)
    column, field, rest, transform = reading.take_out_mark(sql)
    if start_field not in (None, field):
        raise configuration.error(
            component.at("args_mapping"),
            f"the query is given the field '{field}', and without a mark the field '{start_field}' is set",
            hint="name the same field in both places",
        )
    source = {**_connection(configuration, component, driver), **rest}
    return Polling(source, column, field, "", "", transform=transform)


def _select(configuration: Configuration, component: Component) -> str:
    columns = ", ".join(configuration.texts(component, "columns"))
    where = configuration.text(component, "where")
    prefix, suffix = component.setting("prefix") or "", component.setting("suffix") or ""
    table = configuration.text(component, "table")
    return f"select {prefix} {columns} from {table} where {where} {suffix}"


def _arguments(configuration: Configuration, component: Component) -> list[str]:
    given = configuration.text(component, "args_mapping")
    found = ARGUMENTS.fullmatch(given) or re.fullmatch(r"\s*\[(?P<items>.*)\]\s*", given, re.DOTALL)
    if not found:
        raise configuration.error(
            component.at("args_mapping"), "args_mapping is no plain list", hint="args_mapping: root = [ this.seq ]"
        )
    return [item.strip() for item in found["items"].split(",") if item.strip()]


def _connection(configuration: Configuration, component: Component, driver: str) -> dict[str, Any]:
    dsn = configuration.text(component, "dsn")
    if driver == "postgres":
        if "${" not in dsn and re.search(r":[^:/@]+@", dsn):
            configuration.note(
                component.at("dsn"), "dsn: the password stands in the file, as it did; `url: ${PG_URL}` takes it out"
            )
        return {"type": "postgres", "url": dsn}
    if driver == "sqlite":
        return {"type": "sqlite", "path": dsn.removeprefix("file:").partition("?")[0]}
    configuration.note(
        component.at("dsn"), f"dsn: a DSN of Go for {driver}; set JDBC_URL to where it is for JDBC, and add the driver"
    )
    return {"type": "jdbc", "url": "${JDBC_URL}"}


@dataclass(frozen=True)
class _Reading:
    """A query whose arguments are known: the comparison with the mark is taken out, since a run puts in its own."""

    configuration: Configuration
    component: Component
    dialect: str | None
    arguments: Sequence[str]

    def take_out_mark(self, sql: str) -> tuple[str, str, dict[str, Any], str | None]:
        """The column that is compared, the field of the mark, and what is left: a table or a query, and a transform."""
        tree = self._parsed(self._with_named_arguments(sql))
        where = tree.args.get("where")
        conditions = list(where.this.flatten() if isinstance(where.this, exp.And) else [where.this]) if where else []
        marks = [condition for condition in conditions if self._mark_in(condition)]
        if len(marks) != 1:
            raise self._error("the query does not compare one column with the mark", hint="where seq > $1")
        column, field = self._comparison(marks[0])
        rest = [condition.copy() for condition in conditions if condition is not marks[0]]
        tree.set("where", exp.Where(this=exp.and_(*rest)) if rest else None)
        if any(name.name.startswith("_argument_") for name in tree.find_all(exp.Column)):
            raise self._error("an argument of the query is neither the mark nor a constant", hint="[ this.seq, 10 ]")
        return column.name, field, *self._table_or_query(tree, column)

    def _with_named_arguments(self, sql: str) -> str:
        """Every placeholder as a name that any dialect parses, or as the constant it stands for."""
        count = iter(range(1, 1000))

        def replacement(found: re.Match[str]) -> str:
            if found[1] or (found[5] and self.dialect == "postgres" and self.component.type == "sql_raw"):
                return found[0]  # a text, or an operator of jsonb
            number = next(count) if found[5] else int(found[2] or found[3] or found[4])
            if not 0 < number <= len(self.arguments):
                raise self._error(f"the query has an argument {number}, and args_mapping has not", hint="add it there")
            value = self.arguments[number - 1]
            return value.replace('"', "'") if LITERAL.fullmatch(value) else f"_argument_{number}"

        return PLACEHOLDER.sub(replacement, sql)

    def _parsed(self, sql: str) -> exp.Select:
        try:
            tree = parse_sql(sql, read=self.dialect)
        except SqlglotError as error:
            raise self._error(f"the query cannot be read: {str(error).splitlines()[0]}", hint="fix it") from error
        if not isinstance(tree, exp.Select):
            raise self._error("the query is no plain select", hint="select … from … where seq > $1")
        return tree

    def _mark_in(self, condition: exp.Expression) -> bool:
        names = [each.name for each in condition.find_all(exp.Column)]
        return any(name.startswith("_argument_") and FIELD.fullmatch(self._argument(name)) for name in names)

    def _comparison(self, condition: exp.Expression) -> tuple[exp.Column, str]:
        sides = (condition.this, condition.args.get("expression"))
        left, right = sides[::-1] if isinstance(condition, (exp.LT, exp.LTE)) else sides
        is_above = isinstance(condition, (exp.GT, exp.GTE, exp.LT, exp.LTE))
        if not is_above or not isinstance(left, exp.Column) or not isinstance(right, exp.Column):
            raise self._error("the mark is not compared with a column by `>`", hint="where seq > $1")
        if not right.name.startswith("_argument_"):
            raise self._error("the query reads below the mark", hint="where seq > $1")
        if isinstance(condition, (exp.GTE, exp.LTE)):
            self.configuration.note(self._place, "`>=`: rows at the mark come once here, and there with every look")
        found = FIELD.fullmatch(self._argument(right.name))
        return left, next(filter(None, found.groups())) if found else ""

    def _table_or_query(self, tree: exp.Select, column: exp.Column) -> tuple[dict[str, Any], str | None]:
        """A table where the query reads one: its catalog tells which rows share a value of the cursor."""
        rest: dict[str, Any] = {"cursor": {"column": column.name}}
        if (limit := tree.args.get("limit")) and limit.expression.is_int:
            rest["read"] = {"max_rows": int(limit.expression.name)}
        for part in ("limit", "order"):
            tree.set(part, None)  # a batch has its own end, and is read in the order of its cursor
        if (table := _only_table(tree)) is not None:
            is_whole = tree.is_star and tree.args.get("where") is None
            return {"table": table.sql(dialect=self.dialect), **rest}, None if is_whole else _over_source(tree)
        self.configuration.note(
            self._place,
            f"query: no catalog tells whether {column.name} is unique, and `unique: true` says that it is, as there: "
            f"if two rows can share a value, name more columns, `cursor: [{column.name}, id]`, or one may be missed",
        )
        rest["cursor"]["unique"] = True
        return {"query": tree.sql(dialect=self.dialect), **rest}, None

    def _argument(self, name: str) -> str:
        return self.arguments[int(name.removeprefix("_argument_")) - 1]

    def _error(self, message: str, *, hint: str) -> Exception:
        return self.configuration.error(self._place, message, hint=hint)

    @property
    def _place(self) -> Place:
        return self.component.at("query" if self.component.type == "sql_raw" else "where")


PLAIN = (
    *(exp.Select, exp.From, exp.Table, exp.Where, exp.Column, exp.Star, exp.Identifier, exp.Literal, exp.Boolean),
    *(exp.Null, exp.Neg, exp.Paren, exp.And, exp.Or, exp.Not, exp.Is, exp.In, exp.EQ, exp.NEQ),
)
ORDERED = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between)
"""What a query may be made of that says the same to Spark as to any database; these only where numbers are compared,
since texts have a collation and times a zone."""


def _only_table(tree: exp.Select) -> exp.Table | None:
    """The table of a query that does nothing but choose rows and columns of it."""
    tables = list(tree.find_all(exp.Table))
    has_other_parts = {name for name, part in tree.args.items() if part} - {"expressions", "from_", "from", "where"}
    is_plain = not has_other_parts and all(map(_says_the_same, tree.walk()))
    return tables[0] if is_plain and len(tables) == 1 and not tables[0].alias else None


def _says_the_same(node: exp.Expr) -> bool:
    if isinstance(node, ORDERED):
        sides = [each for each in node.iter_expressions() if not isinstance(each, exp.Column)]
        return all(isinstance(each, (exp.Literal, exp.Neg)) and each.is_number for each in sides)
    is_time = isinstance(node, exp.Literal) and node.is_string and node.name[:1].isdigit()
    return isinstance(node, PLAIN) and not is_time


def _over_source(tree: exp.Select) -> str:
    """The query as a transform, which is given the rows of the table as `source`."""
    plain = tree.copy()
    for column in plain.find_all(exp.Column):
        for qualifier in ("table", "db", "catalog"):
            column.set(qualifier, None)
    return plain.from_("source").sql(dialect="spark")
