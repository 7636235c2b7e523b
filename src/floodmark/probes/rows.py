"""Rows of tables for people to look at, read by the tables' own clients: Delta's log and Parquet, files, PostgreSQL."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from floodmark.errors import ConfigError, DeltaTableMissing, SourceUnreadable
from floodmark.errors.configuration import did_you_mean, nearest_names
from floodmark.inputs import parse_mistake
from floodmark.locations import native_uri, quote

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable, Field
    from sqlglot import exp


FileFormat = Literal["json", "jsonl", "csv", "parquet"]
SPARK_INSTEAD = "--spark asks Spark, which knows more"
MISSING_COLUMN = re.compile(r"No field named (\S+?)\.(?:\s|$)")
NOT_FOR_PEOPLE = re.compile(r"^(?:Schema error|Error during planning|DataFusion error): |datafusion\.public\.")
COLUMNS_LISTED = 12
ONE_TABLE = "shown"
MANY_ROWS = 1_000_000


@dataclass(frozen=True)
class Rows:
    """Some rows, with the names of their columns in order."""

    columns: tuple[str, ...]
    values: tuple[Mapping[str, Any], ...]

    @classmethod
    def of(cls, table: pa.Table) -> Rows:
        return cls(tuple(table.column_names), tuple(table.to_pylist()))

    def texts(self) -> list[tuple[str, ...]]:
        """The rows as the cells of a table; NULL is empty."""
        return [tuple(cell(row[name]) for name in self.columns) for row in self.values]


def cell(value: object) -> str:
    """A value as people read it, in one line."""
    return "" if value is None else " ".join(str(value).split())


@dataclass(frozen=True)
class Filter:
    """Which rows of one table are wanted."""

    where: str | None = None
    limit: int = 20
    columns: Sequence[str] = ()

    def sql(self, table: str, mark: str = '"') -> str:
        """The query over a table, as its database takes it."""
        names = ", ".join(quote(name, mark) for name in self.columns) or "*"
        condition = f" where {self.where}" if self.where else ""
        return f"select {names} from {table}{condition} limit {self.limit}"


def delta_rows(path: str, wanted: Filter, version: int | None = None) -> Rows:
    """Rows of a Delta table as it is, or was. Raises SourceUnreadable where only Spark can read it."""
    table = open_delta(path, version)
    return query({ONE_TABLE: table}, wanted.sql(ONE_TABLE, "`"))


def open_delta(path: str, version: int | None = None) -> DeltaTable:
    """The table as it is, or as a version was. Raises SourceUnreadable, or ConfigError for a version nobody has."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return DeltaTable(native_uri(path), version=version)
    except TableNotFoundError as error:
        raise DeltaTableMissing(path) from error
    except (DeltaError, OSError) as error:
        if version is None:
            raise SourceUnreadable(f"delta table {path}", reason=str(error).splitlines()[0]) from error
        newest = open_delta(path).version()  # an older one that is gone was cleaned away with its part of the log
        raise ConfigError(f"{path} has no version {version}; the newest is {newest}.", hint=f"--at {newest}") from error


def query(tables: Mapping[str, DeltaTable], sql: str, limit: int = MANY_ROWS) -> Rows:
    """The first rows that a query over Delta tables gives, by `deltalake`'s own engine.

    Raises SourceUnreadable where a table has what the engine does not know, and ConfigError for a wrong query.
    """
    import pyarrow as pa
    from deltalake import QueryBuilder
    from deltalake.exceptions import DeltaError

    builder = QueryBuilder()
    types = [(field.name, _type_name(field)) for table in tables.values() for field in table.schema().fields]
    text = _in_its_dialect(sql, types)
    try:
        for name, table in tables.items():
            builder = builder.register(name, table)
        return Rows.of(_first_rows(pa.RecordBatchReader.from_stream(builder.execute(text)), limit))
    except (DeltaError, pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        if "not supported" in reason.lower() or "unsupported" in reason.lower():
            raise SourceUnreadable("the table", reason=reason) from error
        raise _query_mistake(reason, [name for name, _ in types]) from error


def _query_mistake(reason: str, columns: Sequence[str]) -> ConfigError:
    """What is wrong with a query, of which the engine gave this reason."""
    missing = MISSING_COLUMN.search(reason)
    if missing:
        name = missing[1].rpartition(".")[2].strip('"')
        near = did_you_mean(nearest_names(name.lower(), columns))
        there = ", ".join(columns[:COLUMNS_LISTED]) + (", …" if len(columns) > COLUMNS_LISTED else "")
        return ConfigError(f"there is no column '{name}'.", hint=near or f"one of {there}")
    said = NOT_FOR_PEOPLE.sub("", reason).rstrip("?. ")
    return ConfigError(f"the query failed: {said}.", hint=f"fix it; {SPARK_INSTEAD}")


def _first_rows(reader: pa.RecordBatchReader, limit: int) -> pa.Table:
    """As many batches as that takes: a whole table may not fit into memory."""
    import pyarrow as pa

    batches, count = [], 0
    for batch in reader:
        batches.append(batch)
        count += batch.num_rows
        if count >= limit:
            break
    return pa.Table.from_batches(batches, reader.schema).slice(0, limit)


def _type_name(field: Field) -> str:
    return str(getattr(field.type, "type", ""))  # a struct, a list and a map have none


def _in_its_dialect(sql: str, types: Sequence[tuple[str, str]]) -> str:
    """Spark's SQL in the words of the engine, which takes names that are not quoted for lower case."""
    from sqlglot import exp

    from floodmark.probes.dialect import in_engine_words

    spelled = {name.lower(): name for name, _ in types}
    tree = in_engine_words(parse_query(sql), types)
    for column in tree.find_all(exp.Column):
        known = spelled.get(column.name.lower())
        if known is not None:
            column.this.replace(exp.to_identifier(known, quoted=True))
    for table in tree.find_all(exp.Table):
        table.this.replace(exp.to_identifier(table.name, quoted=True))
    return tree.sql(dialect="postgres")


def parse_query(sql: str, dialect: str = "spark") -> exp.Query:
    """One SELECT, so that nothing can be changed by it. Raises ConfigError."""
    import sqlglot
    from sqlglot import exp

    try:
        trees = sqlglot.parse(sql, read=dialect)
    except sqlglot.errors.SqlglotError as error:
        said = parse_mistake(error).replace("cannot be parsed", "is wrong", 1)
        raise ConfigError(f"{said}.", hint="write one SELECT, in Spark's dialect") from error
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise ConfigError("the SQL has to be one SELECT.", hint="nothing is changed by looking")
    return trees[0]


def file_rows(folders: Sequence[Path], file_format: FileFormat, wanted: Filter) -> Rows:
    """Rows of files in folders. Raises SourceUnreadable."""
    import pyarrow as pa

    files = sorted(file for folder in folders for file in folder.rglob("*") if _holds_rows(file))
    try:
        tables = [file_table(file, file_format) for file in files]
        found = pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})
    except (pa.ArrowException, OSError, ValueError) as error:
        said = str(error).splitlines()[0]
        raise SourceUnreadable(f"the files of {folders[0]}", reason=said) from error
    return arrow_rows(found, wanted)


def _holds_rows(file: Path) -> bool:
    return file.is_file() and not file.name.startswith((".", "_"))


def file_table(file: Path, file_format: FileFormat) -> pa.Table:
    """The rows of one file, types as they were found. Raises what pyarrow and `json` raise."""
    import json

    import pyarrow as pa

    if file_format == "parquet":
        import pyarrow.parquet as pq

        table: pa.Table = pq.read_table(file)
        return table
    if file_format == "csv":
        from pyarrow import csv

        return csv.read_csv(file)
    text = file.read_text(encoding="utf-8")
    values = json.loads(text or "[]") if file_format == "json" else [json.loads(line) for line in text.splitlines()]
    return pa.Table.from_pylist(values if isinstance(values, list) else [values])


def arrow_rows(table: pa.Table, wanted: Filter) -> Rows:
    """The wanted ones of rows that were read already."""
    if not table.num_columns:
        return Rows((), ())
    if wanted.where is None:
        return Rows.of(table.select(list(wanted.columns) or table.column_names).slice(0, wanted.limit))
    from deltalake import write_deltalake

    with tempfile.TemporaryDirectory(prefix="floodmark-rows-") as folder:
        write_deltalake(folder, table)
        return delta_rows(folder, wanted)


def postgres_rows(url: str, table: str, wanted: Filter) -> Rows:
    """Rows of a table of PostgreSQL. Raises SourceUnreadable, or ConfigError for a condition that it refuses."""
    import psycopg

    from floodmark.postgres import Address
    from floodmark.probes.postgres import connect_read_only

    sql = wanted.sql(".".join(quote(part, '"') for part in table.split(".")))
    parse_query(sql, "postgres")
    try:
        with connect_read_only(Address.parse(url), "floodmark show") as connection, connection.cursor() as cursor:
            cursor.execute(sql.encode())
            columns = tuple(each.name for each in cursor.description or ())
            return Rows(columns, tuple(dict(zip(columns, row, strict=True)) for row in cursor.fetchall()))
    except (psycopg.errors.SyntaxError, psycopg.errors.UndefinedColumn) as error:
        said = str(error).splitlines()[0]
        raise ConfigError(f"the condition is wrong: {said}.", hint="fix --where") from error
    except psycopg.Error as error:
        raise SourceUnreadable(f"table {table}", reason=str(error).splitlines()[0]) from error
