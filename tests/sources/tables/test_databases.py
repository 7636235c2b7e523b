"""What `type: jdbc` promises on databases that are known by name: H2 always, MariaDB where its programs are."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

import floodmark as fm
from floodmark.errors import ConfigError, SourceRegressed
from floodmark.hwm import HWM, Json, Span
from floodmark.probes.tables import CursorColumn, LowerBound, ResolvedCursor
from floodmark.probes.tables.databases import H2, MySql, Oracle, SqlServer, parse_catalog_rows
from floodmark.probes.tables.queries import AnsiTableQuery, Conditions
from floodmark.probes.tables.relation import Relation
from floodmark.sources.contract import Request, Sight
from floodmark.sources.tables.cursor import Cursor
from tests.sources.tables.databases import DATABASES, Database, h2, maria

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(params=DATABASES)
def shop(request: pytest.FixtureRequest, spark: SparkSession) -> Database:
    """An empty database of each kind."""
    return h2(spark) if request.param == "h2" else maria(request.getfixturevalue("mariadb"))


class Reader:
    """A job's part of the work on one table: look, read, raise the mark."""

    def __init__(self, spark: SparkSession, database: Database, cursor: Cursor, **options: Any) -> None:  # noqa: ANN401
        self.spark, self.source = spark, database.source(table="o", cursor=cursor, **options)
        self.mark: HWM[Any] | None = None
        self.extras: dict[str, Json] = {}

    def look(self, max_rows: int | None = None) -> Sight:
        return self.source.look(self.mark, Request(max_rows=max_rows, extras=self.extras), lambda: self.spark)

    def batch(self, max_rows: int | None = None) -> list[Any]:
        """The ids of the next batch, whose mark and memory are kept."""
        sight = self.look(max_rows)
        if sight.span is None:
            return []
        rows = self.source.read(self.spark, Span.deserialize(sight.span.serialize())).rows
        self.mark, self.extras = sight.span.upto, dict(sight.extras)
        return sorted(row["id"] for row in rows.collect())


@pytest.mark.spark
def test_values_arrive_as_they_are_in_the_table(spark: SparkSession, shop: Database) -> None:
    """And not as the names of their columns, which is what MariaDB makes of names in double quotes."""
    shop.run(
        "create table o (id int primary key, name varchar(20), price decimal(12,2), due date, at timestamp(6) null)",
        "insert into o values (1, 'Größe', 9.50, '1999-12-31', '2024-05-01 12:00:00.123456')",
        "insert into o values (2, null, null, null, null)",
    )
    source = shop.source(table="o", cursor="id")
    span = source.look(None, Request(), lambda: spark).span
    assert span is not None
    rows = sorted(tuple(row) for row in source.read(spark, span).rows.collect())
    moment = datetime(2024, 5, 1, 12, 0, 0, 123456)  # noqa: DTZ001 - the column has no zone
    assert rows == [(1, "Größe", Decimal("9.50"), date(1999, 12, 31), moment), (2, None, None, None, None)]


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["bigint", "decimal(12,2)", "date", "timestamp(6)"])
def test_a_batch_ends_after_so_many_rows(spark: SparkSession, shop: Database, kind: str) -> None:
    """By the database's own way to limit a result; the next batch goes on there."""
    value = {"date": "'2024-01-0{}'", "timestamp(6)": "'2024-01-01 00:00:00.00000{}'"}.get(kind, "{}")
    shop.run(f"create table o (id int, c {kind} primary key)")
    shop.run(*(f"insert into o values ({n}, {value.format(n)})" for n in (5, 3, 1, 4, 2)))
    reader = Reader(spark, shop, Cursor("c"))
    assert [reader.batch(2), reader.batch(2), reader.batch(2), reader.batch(2)] == [[1, 2], [3, 4], [5], []]


@pytest.mark.spark
def test_several_columns_end_within_a_value_of_the_first(spark: SparkSession, shop: Database) -> None:
    """The mark tells rows of a day apart."""
    shop.run(
        "create table o (id int not null, due date not null, primary key (due, id))",
        "insert into o values (1, '2024-01-02'), (2, '2024-01-01'), (3, '2024-01-01'), (4, '2024-01-01')",
    )
    reader = Reader(spark, shop, Cursor(["due", "id"]))
    assert [reader.batch(2), reader.batch(2), reader.batch()] == [[2, 3], [1, 4], []]


@pytest.mark.spark
def test_a_unique_index_is_known_and_so_is_the_primary_key(spark: SparkSession, shop: Database) -> None:
    """So nobody has to say it, and rows that share a value are told apart by themselves."""
    shop.run("create table o (id int primary key, code int not null unique, due date)")
    unique = shop.source(table="o", cursor="code").probe(lambda: spark).cursor()
    shared = shop.source(table="o", cursor="due").probe(lambda: spark).cursor()
    assert (unique.is_unique, unique.columns[0].is_nullable, shared.is_unique, shared.key) == (
        True,
        False,
        False,
        ("id",),
    )


@pytest.mark.spark
def test_rows_that_share_the_marks_value_and_rows_without_one_come_once(spark: SparkSession, shop: Database) -> None:
    """Told apart by a key of two columns, also where only the case of a letter differs, and with quotes in it."""
    shop.run(
        "create table o (id int not null, name varchar(9) not null, due date, primary key (id, name))",
        "insert into o values (1, 'o''br', '2024-01-01'), (2, 'a', null)",
    )
    reader = Reader(spark, shop, Cursor("due", on_null="include"))
    first = reader.batch()
    shop.run("insert into o values (1, 'o''b', '2024-01-01'), (3, 'Ä', null)")
    assert (first, reader.batch(), reader.batch()) == ([1, 2], [1, 3], [])


@pytest.mark.spark
def test_more_rows_at_one_value_than_a_batch_takes_are_read_together(spark: SparkSession, shop: Database) -> None:
    """A batch never ends between two rows of one value, unless their keys are remembered."""
    shop.run("create table o (id int primary key, due date)")
    shop.run(
        *(f"insert into o values ({n}, '2024-01-01')" for n in (1, 2, 3)), "insert into o values (4, '2024-01-02')"
    )
    reader = Reader(spark, shop, Cursor("due"))
    assert [reader.batch(2), reader.batch(2), reader.batch(2)] == [[1, 2, 3], [4], []]


@pytest.mark.spark
def test_rows_too_far_ahead_of_the_databases_clock_wait(spark: SparkSession, shop: Database) -> None:
    """By `max_future`: one wrong date must not put the mark into another century."""
    shop.run(
        "create table o (id int primary key, at timestamp(6) null)",
        "insert into o values (1, current_timestamp), (2, '2037-01-01 00:00:00')",
    )
    sight = Reader(spark, shop, Cursor("at", max_future="1h")).look()
    assert (sight.held_back, sight.expected_rows) == (1, 1)
    assert "ahead of the database's clock" in str(sight.held_reason)


@pytest.mark.spark
def test_a_delay_goes_by_the_databases_clock(spark: SparkSession, shop: Database) -> None:
    """What is younger waits."""
    shop.run(
        "create table o (id int primary key, at timestamp(6) null)",
        "insert into o values (1, '2020-01-01 00:00:00'), (2, current_timestamp)",
    )
    sight = Reader(spark, shop, Cursor("at", safety={"delay": "10m"})).look()
    assert (sight.expected_rows, sight.held_back, sight.held_reason) == (
        1,
        1,
        "1 rows are younger than 600 s (safety: delay)",
    )


@pytest.mark.spark
def test_a_lag_reads_again_what_came_late(spark: SparkSession, shop: Database) -> None:
    """A row below the mark, within the lag, comes with the next batch."""
    shop.run(
        "create table o (id int primary key, at timestamp(6) null)",
        "insert into o values (1, '2024-01-01 10:00:00'), (2, '2024-01-01 12:00:00')",
    )
    reader = Reader(spark, shop, Cursor("at", safety={"lag": "3h"}), key=["id"])
    first = reader.batch()
    shop.run("insert into o values (3, '2024-01-01 11:00:00')")
    assert (first, reader.batch(), reader.batch()) == ([1, 2], [1, 2, 3], [])


@pytest.mark.spark
def test_a_job_reads_in_chunks_until_nothing_is_left(spark: SparkSession, shop: Database, tmp_path: Path) -> None:
    """One run, several batches, every row once."""
    shop.run("create table o (id int primary key, v varchar(9))")
    shop.run(*(f"insert into o values ({n}, 'v{n}')" for n in range(1, 6)))
    job = fm.Job(
        name="orders",
        source=shop.source(table="o", cursor="id"),
        sinks=[fm.sinks.Files(str(tmp_path / "out"))],
        chunk_rows=2,
    )
    receipt = job.run(spark, fm.stores.open("memory"))
    assert (receipt.batches, receipt.rows_read, receipt.rows_written) == (3, 5, {"files": 5})


@pytest.mark.spark
def test_text_is_read_in_the_databases_own_order(spark: SparkSession, shop: Database) -> None:
    """Where B stands between a and c; by bytes a is above it, the mark would stand at a, and C never come."""
    shop.run(shop.order_letters, "create table o (id int primary key, code varchar(200) not null unique)")
    shop.run("insert into o values (1, 'a'), (2, 'B')")
    reader = Reader(spark, shop, Cursor("code", collation="database"))
    first = reader.batch()
    assert (first, reader.mark and reader.mark.value) == ([1, 2], "B")
    shop.run(f"insert into o values (3, 'C''s '), (4, 'd{'d' * 100}')")
    assert (reader.batch(1), reader.batch(1), reader.batch(1)) == ([3], [4], [])


@pytest.mark.spark
def test_a_table_that_lost_the_text_of_its_mark_has_gone_back(spark: SparkSession, shop: Database) -> None:
    """The database is asked that too."""
    shop.run(shop.order_letters, "create table o (id int primary key, code varchar(9) not null unique)")
    shop.run("insert into o values (1, 'a'), (2, 'B')")
    reader = Reader(spark, shop, Cursor("code", collation="database"))
    reader.batch()
    shop.run("delete from o where code = 'B'")
    with pytest.raises(SourceRegressed):
        reader.look()


@pytest.mark.spark
def test_a_query_is_read_as_a_table_is(spark: SparkSession, shop: Database) -> None:
    """With its own bounds, or within ours."""
    shop.run("create table o (id int primary key, v int)", "insert into o values (1, 10), (2, 20), (3, 30)")
    cursor = Cursor("id", unique=True)
    query = "select id, v from o where id > :after and id <= :upto"
    bounded = shop.source(query=query, cursor=cursor).look(None, Request(max_rows=2), lambda: spark).span
    plain = shop.source(query="select id, v from o", cursor=cursor).look(None, Request(max_rows=2), lambda: spark).span
    assert (bounded and bounded.upto.value, plain and plain.upto.value) == (2, 2)


DAY, MOMENT = CursorColumn("d", "date", "date"), CursorColumn("t", "timestamp", "timestamp")


@pytest.mark.parametrize(
    ("dialect", "clock"),
    [
        (MySql(), "(CURRENT_TIMESTAMP(6) + INTERVAL -30.000000 SECOND)"),
        (H2(), "DATEADD('MILLISECOND', -30000, LOCALTIMESTAMP)"),
        (SqlServer(), "DATEADD(second, -30, SYSDATETIME())"),
        (Oracle(), "(CAST(SYSTIMESTAMP AS TIMESTAMP) + NUMTODSINTERVAL(-30.000, 'SECOND'))"),
    ],
)
def test_each_database_is_asked_for_the_time_in_its_own_words(dialect: Any, clock: str) -> None:  # noqa: ANN401
    """And none is asked how old a number is."""
    assert dialect.ahead(MOMENT, -30.0) == clock
    with pytest.raises(ConfigError, match="no clock tells"):
        dialect.ahead(CursorColumn("n", "int", "int"), 0.0)


@pytest.mark.parametrize(
    ("dialect", "page"),
    [
        (MySql(), "ORDER BY fm.`t` LIMIT 1 OFFSET 99"),
        (SqlServer(), 'ORDER BY fm."t" OFFSET 99 ROWS FETCH NEXT 1 ROWS ONLY'),
        (Oracle(), 'ORDER BY fm."t" OFFSET 99 ROWS FETCH NEXT 1 ROWS ONLY'),
    ],
)
def test_each_database_limits_a_result_in_its_own_words(dialect: Any, page: str) -> None:  # noqa: ANN401
    """The row at which a batch of a hundred ends."""
    query = AnsiTableQuery(Conditions(dialect, ResolvedCursor((MOMENT,))), Relation("shop.o"), LowerBound())
    assert page in query.bounds_sql(100)


def test_sql_server_and_oracle_get_moments_that_they_read_whatever_their_settings() -> None:
    """Typed, and in one form that no language changes."""
    assert SqlServer().literal("2024-05-01 12:00:00.5", MOMENT) == "CAST('2024-05-01T12:00:00.5' AS datetime2(7))"
    assert Oracle().literal("2024-05-01T12:00:00.5", MOMENT) == "TIMESTAMP '2024-05-01 12:00:00.5'"
    assert "TO_CHAR" in Oracle().text_of("x", MOMENT)
    assert SqlServer().text_of("x", DAY) == "CONVERT(varchar(64), x, 126)"


def test_a_backslash_in_a_text_means_itself() -> None:
    """MySQL takes it for the beginning of a sign; the others do not."""
    text = CursorColumn("c", "text", "string", has_own_order=True)
    assert (MySql().literal("a\\b", text), H2().literal("a\\b", text)) == (r"'a\\b'", r"'a\b'")


def test_the_catalogs_rows_tell_keys_and_leave_out_what_covers_only_part_of_a_column() -> None:
    """An index on the first letters says nothing of the whole text; no index at all may be a view."""
    rows = [
        ("P", "PRIMARY", 2, "id"),
        ("P", "PRIMARY", 1, "day"),
        ("U", "by_name", 1, None),
        ("U", "by_code", 1, "code"),
        ("N", "", 0, "id"),
    ]
    catalog = parse_catalog_rows(rows)
    assert (catalog.key, catalog.required) == (("day", "id"), frozenset({"id"}))
    assert (catalog.is_unique(["code"]), catalog.is_unique(["name"]), catalog.is_unique(["id"])) == (True, False, False)
    assert parse_catalog_rows([("N", "", 0, "id")]).is_unique(["id"]) is None
