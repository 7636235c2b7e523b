"""What holds for a table behind a cursor, whichever source reads it: PostgreSQL, JDBC, SQLite, Spark's own catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.hwm import HWM, Json, Span
from floodmark.sources import Postgres, Sqlite
from floodmark.sources.contract import Request, Source
from floodmark.sources.tables.cursor import Cursor
from tests.sources.tables import test_catalog, test_jdbc, test_sqlite
from tests.sources.tables.databases import DATABASES, h2, maria

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ABOVE_2_53 = 2**53 + 1
"""The first whole number that a double does not hold."""


class Table:
    """A table `o` with a cursor `c`, to be filled by SQL and read by a source."""

    def __init__(self, spark: SparkSession, run: Callable[[str], None], source: Callable[[Cursor], Source]) -> None:
        self.spark, self.run, self.source = spark, run, source
        self.mark: HWM[Any] | None = None
        self.extras: Mapping[str, Json] = {}

    def made(self, kind: str, *values: str) -> Table:
        self.run(f"create table o (c {kind} primary key)")
        return self.with_rows(*values)

    def with_rows(self, *values: str) -> Table:
        for value in values:
            self.run(f"insert into o values ({value})")
        return self

    def span(self, after: Span | None = None, start: str | int = "earliest") -> Span | None:
        mark = after.upto if after else None
        return self.source(Cursor("c", start=start)).look(mark, Request(), lambda: self.spark).span

    def values(self, span: Span | None) -> list[Any]:
        assert span is not None
        return sorted(row.c for row in self.source(Cursor("c")).read(self.spark, span).rows.collect())

    def batch(self, cursor: Cursor, max_rows: int | None = None) -> list[Any]:
        """The ids of the next batch, whose mark and memory are kept."""
        sight = self.source(cursor).look(self.mark, Request(max_rows=max_rows, extras=self.extras), lambda: self.spark)
        if sight.span is None:
            return []
        read = self.source(cursor).read(self.spark, Span.deserialize(sight.span.serialize())).rows
        self.mark, self.extras = sight.span.upto, sight.extras
        return sorted(row.id for row in read.collect())

    def two_spans(self, first: Sequence[str], then: Sequence[str], kind: str) -> tuple[list[Any], list[Any]]:
        """The rows of a first batch, and of the one after more rows came."""
        before = self.made(kind, *first).span()
        read = self.values(before)
        return read, self.values(self.with_rows(*then).span(before))


@pytest.fixture(params=["postgres", "jdbc", "sqlite", "catalog", *DATABASES])
def table(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Table]:
    """The database is taken only where it is asked for."""
    if request.param == "catalog":
        yield test_catalog.law_table(spark, Table)
        spark.sql("drop table if exists o")
    else:
        yield database_table(request, spark, tmp_path)


def database_table(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Table:
    """The table in the database that the test asks for."""
    if request.param in ("h2", "mariadb"):
        shop = h2(spark) if request.param == "h2" else maria(request.getfixturevalue("mariadb"))
        return Table(spark, shop.execute, lambda cursor: shop.source(table="o", cursor=cursor))
    if request.param == "sqlite":
        path = tmp_path / "shop.db"
        return Table(spark, lambda sql: test_sqlite.run(path, sql), lambda cursor: Sqlite(path, "o", cursor=cursor))
    database = request.getfixturevalue("database")
    sources: dict[str, Callable[[Cursor], Source]] = {
        "postgres": lambda cursor: Postgres(database, "o", cursor=cursor),
        "jdbc": lambda cursor: test_jdbc.jdbc(database, table="o", cursor=cursor),
    }
    return Table(spark, lambda sql: test_jdbc.run(database, sql), sources[request.param])


@pytest.mark.parametrize("table", ["postgres", "jdbc", "sqlite"], indirect=True)
def test_text_with_quotes_and_comments_is_a_mark_like_others(table: Table) -> None:
    """Bound or quoted, never pasted; of other databases only their own order is known (test_databases)."""
    messages = table.two_spans(["'a'", "'o''brien; --'"], ["'o''brien; --x'"], "text")
    assert messages == (["a", "o'brien; --"], ["o'brien; --x"])


def test_numbers_that_a_double_cannot_tell_apart_are_two(table: Table) -> None:
    """The row above the mark is read, and the mark's own row is not read again."""
    messages = table.two_spans([str(ABOVE_2_53 - 1)], [str(ABOVE_2_53)], "bigint")
    assert messages == ([ABOVE_2_53 - 1], [ABOVE_2_53])


def test_an_empty_table_has_no_span_and_negative_numbers_are_rows_like_others(table: Table) -> None:
    """No mark is a state of its own, so -7 does not lie below it."""
    assert table.made("bigint").span() is None
    assert table.values(table.with_rows("-7", "-1").span()) == [-7, -1]


def test_latest_takes_nothing_that_is_there_and_all_that_comes(table: Table) -> None:
    """The first batch has no rows, and puts the mark at the end."""
    end = table.made("bigint", "1", "2").span(start="latest")
    assert table.values(end) == []
    assert table.values(table.with_rows("3").span(end)) == [3]


def test_a_start_value_is_read_too(table: Table) -> None:
    """And what lies below it is not."""
    assert table.values(table.made("bigint", "1", "2", "3").span(start=2)) == [2, 3]


def test_several_columns_are_read_from_left_to_right(table: Table) -> None:
    """Two rows at a time, also within one day: the mark tells rows of a day apart."""
    table.run("create table o (id int not null, due date not null, primary key (due, id))")
    table.run("insert into o values (1, '2024-01-02'), (2, '2024-01-01'), (3, '2024-01-01'), (4, '2024-01-01')")
    cursor = Cursor(["due", "id"])
    assert [table.batch(cursor, 2), table.batch(cursor, 2), table.batch(cursor)] == [[2, 3], [1, 4], []]


def test_rows_that_share_the_marks_value_and_rows_without_one_come_once(table: Table) -> None:
    """Told apart by a key of two columns, with quotes in it."""
    table.run("create table o (id int not null, name varchar(9) not null, due date, primary key (id, name))")
    table.run("insert into o values (1, 'o''br', '2024-01-01'), (2, 'a', null)")
    cursor = Cursor("due", on_null="include")
    first = table.batch(cursor)
    table.run("insert into o values (1, 'o''b', '2024-01-01'), (3, 'a', null)")
    assert (first, table.batch(cursor), table.batch(cursor)) == ([1, 2], [1, 3], [])


@pytest.mark.parametrize("table", ["postgres", "jdbc", "catalog", *DATABASES], indirect=True)
def test_numbers_of_38_digits_are_told_apart(table: Table) -> None:
    """SQLite has no such numbers."""
    first, then = table.two_spans(["9" * 37 + "8"], ["9" * 38], "numeric(38,0)")
    assert ([str(value) for value in first], [str(value) for value in then]) == (["9" * 37 + "8"], ["9" * 38])
