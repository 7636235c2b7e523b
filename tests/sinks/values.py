"""Sinks for the laws of values, each with a reader that shares no code with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql.types import VariantVal

from floodmark.sinks.contract import Sink
from floodmark.testing.laws.values import Arrow, Form, ValueLaw
from tests.sinks.kafka.messages import committed

Values = Mapping[str, object]


@dataclass(frozen=True)
class Target:
    """A sink, what it writes, and how somebody else reads the one row that was written."""

    form: Form
    sink: Sink
    read: Callable[[], Values]


def json_values(text: str) -> Values:
    """Numbers keep their digits."""
    values: Values = json.loads(text, parse_float=Decimal)
    return values


def json_file(folder: Path) -> Values:
    """The one record of the one file, be it a line or the element of a list."""
    [text] = [file.read_text(encoding="utf-8") for file in folder.glob("batch=*/part-*")]
    return json_values(text.strip().removeprefix("[").removesuffix("]"))


def csv_file(folder: Path) -> Values:
    """As Arrow reads it: what is quoted is no NULL."""
    [file] = folder.glob("batch=*/part-*")
    names = file.read_text(encoding="utf-8").splitlines()[0].split(",")
    options = pc.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )
    table = pc.read_csv(file, parse_options=pc.ParseOptions(newlines_in_values=True), convert_options=options)
    return dict(table.to_pylist()[0])


def parquet_file(folder: Path) -> Values:
    [file] = folder.glob("batch=*/part-*")
    return arrow_values(pq.read_table(file))


def delta_table(folder: Path) -> Values:
    """By the log and its files: deltalake makes Python's dates of statistics, and those begin with the year 1."""
    table = DeltaTable(str(folder))
    [file] = table.file_uris()
    never_set = {field.name: Arrow("null", None) for field in table.schema().fields}  # a file may lack a column
    return {**never_set, **arrow_values(pq.read_table(file))}


def message_headers(bootstrap: str, topic: str) -> Values:
    [message] = committed(bootstrap, topic)
    return dict(message.headers)


def message_value(bootstrap: str, topic: str) -> Values:
    [message] = committed(bootstrap, topic)
    return json_values((message.value or b"").decode("utf-8"))


def postgres_row(database: str, table: str) -> Values:
    """Every column in PostgreSQL's own text."""
    with psycopg.connect(database, options="-c timezone=UTC") as connection:
        names = [str(column.name) for column in connection.execute(f"SELECT * FROM {table} LIMIT 0").description or ()]
        texts = ", ".join(f'"{name}"::text' for name in names)
        row = connection.execute(f"SELECT {texts} FROM {table}".encode()).fetchone()
    return dict(zip(names, row or (), strict=True))


def arrow_values(table: pa.Table) -> dict[str, Arrow]:
    """Every column with its type, in a form that can hold each of its values."""
    return {name: arrow_value(table.column(name).combine_chunks()) for name in table.column_names}


def arrow_value(column: pa.Array) -> Arrow:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return Arrow(str(kind), column.cast(pa.int64())[0].as_py())
    if pa.types.is_date(kind):
        return Arrow(str(kind), column.cast(pa.int32())[0].as_py())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return Arrow(str(kind), column.view(pa.binary())[0].as_py())
    if pa.types.is_struct(kind) and {field.name for field in kind} == {"value", "metadata"}:
        return Arrow("struct", VariantVal(**column[0].as_py()).toPython())
    return Arrow(str(kind).split("<")[0], column[0].as_py())


def held(law: ValueLaw, form: Form) -> object:
    """What the law expects, as the readers above give it."""
    expected = law.expected(form)
    if form == "json":
        return json.loads(str(expected), parse_float=Decimal)
    if form == "message" and isinstance(expected, str):
        return expected.encode()
    if isinstance(expected, Arrow) and isinstance(expected.value, str):
        plain: dict[str, Callable[[str], Any]] = {"string": str.encode, "double": float}
        return Arrow(expected.type, plain.get(expected.type, Decimal)(expected.value))
    return expected
