"""A SQLite table as a source: looked at by Python's own driver, read by Spark's tasks, each value held to its type."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.errors import ColumnUnmapped, ConfigError, CursorNull, SourceRegressed, SourceUnreadable
from floodmark.hwm import HWM, Span
from floodmark.sources import Sqlite
from floodmark.sources.contract import Request, Sight
from floodmark.sources.tables.cursor import Cursor
from tests.sources.tables.reader import no_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(";".join(statements))


def look(source: Sqlite, mark: HWM[Any] | None = None, **request: Any) -> Sight:  # noqa: ANN401 (passed on)
    return source.look(mark, Request(**request), no_session)


def span(source: Sqlite, mark: HWM[Any] | None = None, **request: Any) -> Span:  # noqa: ANN401 (passed on)
    found = look(source, mark, **request).span
    assert found is not None
    return found


def rows(spark: SparkSession, source: Sqlite, of: Span | None = None) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in source.read(spark, of or span(source)).rows.collect())


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """A file with 1, 2 and 3."""
    path = tmp_path / "shop ?#.db"
    run(path, "create table o (seq integer primary key, v text)", "insert into o values (1,'a'), (2,'b'), (3,'c')")
    return path


def test_the_first_look_reaches_to_the_highest_row(orders: Path) -> None:
    """By one statement, without Spark."""
    found = look(Sqlite(orders, "o", cursor="seq"))
    assert found.span is not None
    assert (found.span.after, found.span.upto.value, found.expected_rows) == (None, 3, 3)


def test_nothing_above_the_mark_is_nothing_new(orders: Path) -> None:
    """The same look again."""
    source = Sqlite(orders, "o", cursor="seq")
    assert look(source, span(source).upto).span is None


def test_ten_lies_above_nine(orders: Path) -> None:
    """The cursor is compared as a number, and shown as text."""
    run(orders, "insert into o values (9,'i'), (10,'j')")
    assert span(Sqlite(orders, "o", cursor="seq")).upto.value == 10


def test_a_file_that_ends_below_the_mark_needs_a_decision(orders: Path) -> None:
    """It was restored from a copy."""
    source = Sqlite(orders, "o", cursor="seq")
    mark = span(source).upto
    run(orders, "delete from o where seq = 3")
    with pytest.raises(SourceRegressed):
        look(source, mark)


def test_rows_without_a_cursor_stop_the_look(tmp_path: Path) -> None:
    """No mark would ever reach them."""
    run(tmp_path / "db", "create table o (seq integer unique)", "insert into o values (1), (null)")
    with pytest.raises(CursorNull):
        look(Sqlite(tmp_path / "db", "o", cursor="seq"))


def test_a_text_among_numbers_is_named(tmp_path: Path) -> None:
    """SQLite sorts it above every number, so a mark would stay there for ever."""
    run(tmp_path / "db", "create table o (seq integer unique)", "insert into o values (1), ('many')")
    with pytest.raises(SourceUnreadable, match="'many'"):
        look(Sqlite(tmp_path / "db", "o", cursor="seq"))


def test_a_file_that_is_not_there_is_unreadable_and_not_made(tmp_path: Path) -> None:
    """A look never writes."""
    with pytest.raises(SourceUnreadable):
        look(Sqlite(tmp_path / "none.db", "o", cursor="seq"))
    assert not (tmp_path / "none.db").exists()


def test_a_cursor_of_floats_is_refused(tmp_path: Path) -> None:
    """A float is no exact mark."""
    run(tmp_path / "db", "create table o (seq real)")
    with pytest.raises(ConfigError, match="REAL"):
        look(Sqlite(tmp_path / "db", "o", cursor="seq"))


def test_the_fingerprint_tells_file_table_column_and_type(orders: Path) -> None:
    """What must not change under a mark."""
    assert Sqlite(orders, "o", cursor="seq").fingerprint(no_session) == f"sqlite {orders} o by seq (INTEGER)"


@pytest.mark.spark
def test_the_rows_of_the_span_are_read_and_no_others(spark: SparkSession, orders: Path) -> None:
    """What came after the look is of the next batch."""
    source = Sqlite(orders, "o", cursor="seq")
    first = span(source)
    run(orders, "insert into o values (4,'d')")
    assert rows(spark, source, first) == [(1, "a"), (2, "b"), (3, "c")]
    assert rows(spark, source, span(source, first.upto)) == [(4, "d")]


@pytest.mark.spark
def test_latest_reads_no_row(spark: SparkSession, orders: Path) -> None:
    """The batch only puts the mark there."""
    assert rows(spark, Sqlite(orders, "o", cursor=Cursor("seq", start="latest"))) == []


@pytest.mark.spark
def test_ranges_cover_the_span_without_overlap(spark: SparkSession, tmp_path: Path) -> None:
    """Each row once."""
    numbers = "with recursive n(i) as (select -15000 union all select i + 1 from n where i < 15000)"
    run(tmp_path / "db", "create table o (seq integer unique)", f"insert into o {numbers} select i from n")
    source = Sqlite(tmp_path / "db", "o", cursor="seq", partitions=3, fetch_rows=999)
    assert rows(spark, source) == [(number,) for number in range(-15000, 15001)]


@pytest.mark.spark
def test_declared_types_become_types_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Numbers beyond 2^53, decimals, days and moments: each as it was put in."""
    run(
        tmp_path / "db",
        "create table o (id bigint primary key, x double, w varchar(9), b blob, m decimal(10,2), d date,"
        " t datetime, y boolean)",
        "insert into o values (9007199254740993, 1, 'ä', x'00ff', 1.5, '2024-02-29', '2024-01-01 08:00:00.5', 1)",
    )
    assert rows(spark, Sqlite(tmp_path / "db", "o", cursor="id")) == [
        (
            *(9007199254740993, 1.0, "ä", bytearray(b"\x00\xff"), Decimal("1.50"), date(2024, 2, 29)),
            *(datetime(2024, 1, 1, 8, 0, 0, 500000), True),  # noqa: DTZ001 (naive in the file)
        )
    ]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("integer", "'many'"),
        ("text", "x'00'"),
        ("decimal(4,2)", "1.234"),
        ("decimal(4,2)", "123.4"),
        ("decimal(4,2)", "'much'"),
        ("date", "20240229"),
        ("datetime", "'2024-01-01 08:00+03:00'"),
        ("boolean", "2"),
        ("real", "'n/a'"),
        ("blob", "'text'"),
    ],
)
def test_a_value_of_another_type_fails_with_its_column_and_row(
    spark: SparkSession, tmp_path: Path, declared: str, value: str
) -> None:
    """SQLite takes anything; it never becomes a null."""
    run(
        tmp_path / "db",
        f"create table o (id integer primary key, odd {declared})",
        f"insert into o values (1, null), (7, {value})",
    )
    source = Sqlite(tmp_path / "db", "o", cursor="id")
    with pytest.raises(Exception, match="floodmark") as caught:
        rows(spark, source)
    explained = source.explain(caught.value, spark, span(source))
    assert explained is not None
    assert "column 'odd' holds" in explained.reason
    assert "where id is 7" in explained.reason


@pytest.mark.spark
def test_a_column_without_a_declared_type_fails_by_name_or_is_mapped(spark: SparkSession, tmp_path: Path) -> None:
    """Its values could be anything."""
    run(tmp_path / "db", "create table o (id integer primary key, odd)", "insert into o values (1, 'x')")
    with pytest.raises(ColumnUnmapped, match="odd"):
        rows(spark, Sqlite(tmp_path / "db", "o", cursor="id"))
    assert rows(spark, Sqlite(tmp_path / "db", "o", cursor="id", types={"odd": "string"})) == [(1, "x")]


@pytest.mark.spark
def test_text_marks_with_quotes_and_queries_with_bounds(spark: SparkSession, orders: Path) -> None:
    """As the other databases."""
    run(orders, "insert into o values (4, 'o''brien; --'), (5, 'o''brien; --x')")
    query = "select * from o where (:first_run or v > :after) and v <= :upto"
    source = Sqlite(orders, query=query, cursor=Cursor("v", unique=True))
    mark = span(source, max_rows=4).upto
    assert (mark.value, rows(spark, source, span(source, mark))) == ("o'brien; --", [(5, "o'brien; --x")])
