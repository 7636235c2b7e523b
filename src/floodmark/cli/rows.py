"""`floodmark show | query`: the rows of a project's tables, without a JVM wherever their own clients can read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.cli.invocation import Invocation
from floodmark.cli.output import AsJson, complete_jobs, counted, print_json, print_line, print_table
from floodmark.cli.progress import showing
from floodmark.errors import ConfigError, SourceUnreadable
from floodmark.errors.configuration import did_you_mean, nearest_names
from floodmark.logs import get_logger
from floodmark.phases import phase
from floodmark.probes.rows import (
    SPARK_INSTEAD,
    Filter,
    Rows,
    delta_rows,
    file_rows,
    open_delta,
    parse_query,
    postgres_rows,
    query,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.project.kinds import SinkModel, Site
    from floodmark.project.models import Project


log = get_logger(__name__)
NO_TABLE = "there is no such table"
show_app = typer.Typer(add_completion=False)
Name = Annotated[
    str,
    typer.Argument(
        metavar="TABLE", help="A table's name or folder, a job, or JOB.SINK of several.", autocompletion=complete_jobs
    ),
]
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="How many rows.")]
Where = Annotated[str | None, typer.Option("--where", "-w", metavar="SQL", help="Only rows for which this holds.")]
At = Annotated[int | None, typer.Option(metavar="VERSION", help="As a version of the Delta table was.")]
Columns = Annotated[str | None, typer.Option(metavar="A,B", help="Only these columns.")]
BySpark = Annotated[bool, typer.Option("--spark", help="Read with Spark.")]


@show_app.command()
def show(
    ctx: typer.Context,
    table: Name,
    limit: Limit = 20,
    where: Where = None,
    at: At = None,
    columns: Columns = None,
    by_spark: BySpark = False,
    as_json: AsJson = False,
) -> None:
    """Show rows of a table that a job fills; nothing is changed."""
    invocation: Invocation = ctx.obj
    place = place_named(invocation.loaded_project(), invocation.site(), table)
    names = [name.strip() for name in columns.split(",")] if columns else []
    wanted = Filter(where, limit, names)
    if not by_spark:
        try:
            print_rows(place.rows(wanted, at), as_json=as_json)
            return
        except NeedsSpark as reason:
            log.info("Spark is asked", table=table, reason=str(reason))
    with showing(invocation, as_json=as_json), phase("reading", table):
        rows = place.rows_by_spark(invocation.session()(), wanted, at)
    print_rows(rows, as_json=as_json)


query_app = typer.Typer(add_completion=False)


@query_app.command("query")
def query_(
    ctx: typer.Context,
    sql: Annotated[str, typer.Argument(metavar="SELECT", help="One SELECT over tables by their names.")],
    limit: Limit = 1000,
    by_spark: BySpark = False,
    as_json: AsJson = False,
) -> None:
    """Ask the project's Delta tables in SQL; nothing is changed. Without a name of a table, `show` lists them."""
    invocation: Invocation = ctx.obj
    project, site = invocation.loaded_project(), invocation.site()
    named = {name: place_named(project, site, name) for name in tables_in(sql)}
    if by_spark or any(place.path is None for place in named.values()):
        with showing(invocation, as_json=as_json), phase("reading"):
            answer = query_by_spark(invocation.session()(), named, sql, limit)
        print_rows(answer, as_json=as_json)
        return
    tables = {name: place.opened() for name, place in named.items()}
    try:
        rows = query(tables, sql, limit)
    except SourceUnreadable as error:
        raise ConfigError(error.message, hint=f"{SPARK_INSTEAD}: floodmark query --spark …") from error
    print_rows(rows, as_json=as_json)


def tables_in(sql: str) -> list[str]:
    """The tables that a query names, but those that it defines itself."""
    from sqlglot import exp

    tree = parse_query(sql)
    own = {each.alias for each in tree.find_all(exp.CTE)}
    return list(dict.fromkeys(each.name for each in tree.find_all(exp.Table) if each.name not in own))


def query_by_spark(session: SparkSession, named: dict[str, TablePlace], sql: str, limit: int) -> Rows:
    """The same on Spark, in whose own words the query is."""
    for name, place in named.items():
        place.frame(session, None).createOrReplaceTempView(name)
    try:
        return _rows_of(session.sql(sql).limit(limit))
    finally:
        for name in named:
            session.catalog.dropTempView(name)


class NeedsSpark(Exception):
    """A table that no client but Spark can read."""


@dataclass(frozen=True)
class TablePlace:
    """Where the rows of a sink lie."""

    name: str
    sink: SinkModel | None
    path: str | None
    """The folder of a Delta table."""

    def rows(self, wanted: Filter, at: int | None) -> Rows:
        """By the table's own client. Raises NeedsSpark."""
        from floodmark.project.kinds import FilesSink
        from floodmark.project.kinds.servers import PostgresSink

        if at is not None and self.path is None and not getattr(self.sink, "table", None):
            raise ConfigError("--at is a version of a Delta table.", hint=f"leave it out for {self.name}")
        if isinstance(self.sink, PostgresSink):
            return postgres_rows(self.sink.url, self.sink.table, wanted)
        if isinstance(self.sink, FilesSink):
            return self._of_files(self.sink, wanted)
        if self.path is None:
            raise NeedsSpark("it is known by its name in Spark's catalog")
        try:
            return delta_rows(self.path, wanted, at)
        except SourceUnreadable as error:
            if NO_TABLE in error.message:
                raise self.not_there() from error
            raise NeedsSpark(error.message) from error

    def opened(self) -> DeltaTable:
        """The Delta table, in its own client's hands. Raises SourceUnreadable."""
        try:
            return open_delta(str(self.path))
        except SourceUnreadable as error:
            if NO_TABLE in error.message:
                raise self.not_there() from error
            raise ConfigError(error.message, hint=f"{SPARK_INSTEAD}: floodmark query --spark …") from error

    def not_there(self) -> SourceUnreadable:
        """A table that nobody has written to is no mistake in the project file."""
        reason, hint = "no run has written to it yet", "floodmark run; `floodmark plan` says what it would read"
        return SourceUnreadable(f"table {self.name}", reason=reason, hint=hint)

    def _of_files(self, sink: SinkModel, wanted: Filter) -> Rows:
        from floodmark.locations import local_path
        from floodmark.sinks.files.folders import batch_folder, batch_numbers

        folder = local_path(str(sink.path))  # type: ignore[attr-defined]
        if folder is None:
            raise NeedsSpark("its files are not on this machine")
        batches = [batch_folder(folder, number) for number in batch_numbers(folder)]
        return file_rows(batches, sink.format, wanted) if batches else Rows((), ())  # type: ignore[attr-defined]

    def rows_by_spark(self, session: SparkSession, wanted: Filter, at: int | None) -> Rows:
        """By Spark."""
        rows = self.frame(session, at)
        chosen = rows.where(wanted.where) if wanted.where else rows
        return _rows_of((chosen.select(*wanted.columns) if wanted.columns else chosen).limit(wanted.limit))

    def frame(self, session: SparkSession, at: int | None) -> DataFrame:
        """The whole table, in Spark's hands."""
        reader = session.read.format("delta")
        reader = reader if at is None else reader.option("versionAsOf", at)
        if self.path is not None:
            return reader.load(self.path)
        table = getattr(self.sink, "table", None)
        if table is None or not hasattr(self.sink, "change_feed"):
            raise ConfigError(f"{self.name} is no table that Spark can be asked for.", hint="leave out --spark")
        return reader.table(table)


def place_named(project: Project, site: Site, name: str) -> TablePlace:
    """What a person means by a name: a table, a job, one of a job's sinks, or a folder. Raises ConfigError."""
    from floodmark.locations import is_url
    from floodmark.project.health import tables_of

    tables = tables_of(project, site)
    if name in tables:
        return TablePlace(name, tables[name], tables[name].place(site))
    for job in project.jobs:
        sinks = {sink.ledger_name(): sink for sink in job.sinks}
        if name == job.name or (name.startswith(f"{job.name}.") and name[len(job.name) + 1 :] in sinks):
            chosen = next(iter(sinks.values())) if name == job.name else sinks[name[len(job.name) + 1 :]]
            return _place_of(name, chosen, site)
    if "/" in name and (is_url(name) or (site.folder / name / "_delta_log").is_dir()):
        return TablePlace(name, None, site.path(name))
    raise no_table(f"no table '{name}'.", name, list(dict.fromkeys([*tables, *_names_of_sinks(project)])))


def no_table(message: str, name: str, known: Sequence[str]) -> ConfigError:
    """A name that no table has, with the nearest one that there is."""
    near = did_you_mean(nearest_names(name, known))
    listed = f"one of: {', '.join(known) or '(no job fills one)'}"
    return ConfigError(message, hint=f"{near} {listed}".strip())


def _names_of_sinks(project: Project) -> Iterator[str]:
    for job in project.jobs:
        yield from (job.name,) if len(job.sinks) == 1 else (f"{job.name}.{sink.ledger_name()}" for sink in job.sinks)


def _place_of(name: str, sink: SinkModel, site: Site) -> TablePlace:
    from floodmark.project.kinds import DeltaSink, FilesSink
    from floodmark.project.kinds.servers import PostgresSink

    if isinstance(sink, DeltaSink):
        return TablePlace(name, sink, sink.place(site))
    if isinstance(sink, FilesSink):
        return TablePlace(name, sink.model_copy(update={"path": site.path(sink.path)}), None)
    if isinstance(sink, PostgresSink):
        return TablePlace(name, sink, None)
    raise ConfigError(f"{name} goes to a {sink.type} sink, which keeps no table.", hint="name another sink: JOB.SINK")


def _rows_of(frame: DataFrame) -> Rows:
    return Rows(tuple(frame.columns), tuple(row.asDict() for row in frame.collect()))


def print_rows(rows: Rows, *, as_json: bool) -> None:
    """The rows as one document, or as a table with their count."""
    if as_json:
        print_json({"columns": list(rows.columns), "rows": list(rows.values)})
        return
    if rows.columns:
        print_table(rows.columns, rows.texts())
    print_line(counted(len(rows.values), "row"))
