"""A job's part of the work without Spark: look, ask the database what Spark would be told to read, raise the mark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg

from floodmark.hwm import HWM, Span
from floodmark.probes.tables.dialects import Postgres as Dialect
from floodmark.sources import Postgres
from floodmark.sources.contract import Request, Sight
from floodmark.sources.tables.postgres import select_columns
from floodmark.sources.tables.reading import JdbcTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def no_session() -> SparkSession:
    raise AssertionError("a look needs no Spark")


def run(database: str, *statements: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("; ".join(statements).encode())


class Reader:
    """One job on one table, whose record goes through JSON as it does in a store."""

    def __init__(self, source: Postgres, max_rows: int | None = None) -> None:
        self.source, self.max_rows = source, max_rows
        self.mark: HWM[Any] | None = None
        self.extras: dict[str, Any] = {}

    def look(self) -> Sight:
        return self.source.look(self.mark, Request(max_rows=self.max_rows, extras=self.extras), no_session)

    def batch(self) -> list[Any]:
        """The ids that one batch delivers."""
        sight = self.look()
        if sight.span is None:
            return []
        delivered = ids(self.source, sight.span)
        self.mark, self.extras = sight.span.upto, json.loads(json.dumps(dict(sight.extras)))
        return delivered


def ids(source: Postgres, span: Span) -> list[Any]:
    """The ids of a span's rows."""
    return sorted(row[0] for row in source.probe().fetch(statement(source, span)))


def statement(source: Postgres, span: Span) -> str:
    """What Spark asks for a span, with the conditions of all its tasks; the span goes through JSON, as in a record."""
    probe = source.probe()
    table = JdbcTable("", {}, Dialect(), source.relation, probe.cursor(), select_columns(probe.columns(), {}, "o"))
    again = Span.deserialize(json.loads(json.dumps(span.serialize())))
    return f"SELECT id FROM {table._statement(again)} WHERE ({') OR ('.join(table._predicates(again, 1))})"
