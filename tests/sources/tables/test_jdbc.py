"""Any JDBC database as a source: Spark asks and reads; tried with PostgreSQL's driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from floodmark.errors import ColumnUnmapped, ConfigError, SourceRegressed, SourceUnreadable
from floodmark.hwm import HWM, Span
from floodmark.logs import without_jdbc_login
from floodmark.probes.tables import CursorColumn, LowerBound, ResolvedCursor
from floodmark.probes.tables.databases import MySql
from floodmark.probes.tables.dialects import Ansi
from floodmark.probes.tables.queries import Conditions
from floodmark.sources import Jdbc
from floodmark.sources.contract import Request
from floodmark.sources.tables.cursor import Cursor
from tests.sources.tables.reader import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def jdbc(database: str, **options: Any) -> Jdbc:  # noqa: ANN401 (passed on)
    """The source, by the same database's JDBC URL."""
    found = conninfo_to_dict(database)
    url = f"jdbc:postgresql://{found['host']}:{found['port']}/{found['dbname']}"
    login = {"user": str(found["user"]), "password": str(found["password"])}
    return Jdbc(url, driver="org.postgresql.Driver", options=login, **options)


def span(spark: SparkSession, source: Jdbc, mark: HWM[Any] | None = None) -> Span:
    found = source.look(mark, Request(), lambda: spark).span
    assert found is not None
    return found


def rows(spark: SparkSession, source: Jdbc, of: Span | None = None) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in source.read(spark, of or span(spark, source)).rows.collect())


@pytest.fixture
def orders(database: str) -> str:
    """A table with 1, 2 and 3."""
    run(database, "create table o (seq bigint primary key, v text)", "insert into o values (1,'a'), (2,'b'), (3,'c')")
    return database


@pytest.mark.spark
def test_rows_above_the_mark_are_read_once(spark: SparkSession, orders: str) -> None:
    """First all of them, then what came."""
    source = jdbc(orders, table="o", cursor="seq")
    first = span(spark, source)
    run(orders, "insert into o values (4,'d')")
    assert rows(spark, source, first) == [(1, "a"), (2, "b"), (3, "c")]
    assert rows(spark, source, span(spark, source, first.upto)) == [(4, "d")]


@pytest.mark.spark
def test_a_table_that_ends_below_the_mark_needs_a_decision(spark: SparkSession, orders: str) -> None:
    """As the source with a native probe."""
    source = jdbc(orders, table="o", cursor="seq")
    mark = span(spark, source).upto
    run(orders, "delete from o where seq = 3")
    with pytest.raises(SourceRegressed):
        source.look(mark, Request(), lambda: spark)


@pytest.mark.spark
def test_the_fingerprint_tells_no_login(spark: SparkSession, orders: str) -> None:
    """Neither does the repr."""
    source = jdbc(orders, table="o", cursor="seq")
    password = str(conninfo_to_dict(orders)["password"])
    text = source.fingerprint(lambda: spark)
    assert text.endswith(" o by seq (bigint)")
    assert password not in text + repr(source)


@pytest.mark.spark
@pytest.mark.parametrize("column_type", ["numeric", "time"])
def test_a_type_that_spark_would_change_fails_by_name(spark: SparkSession, database: str, column_type: str) -> None:
    """Also where only Spark looks at it."""
    run(database, f"create table o (id int primary key, odd {column_type})", "insert into o values (1, null)")
    with pytest.raises(ColumnUnmapped, match="odd"):
        rows(spark, jdbc(database, table="o", cursor="id"))


@pytest.mark.spark
def test_infinity_stops_the_batch(spark: SparkSession, database: str) -> None:
    """On PostgreSQL the columns are selected as its own source does."""
    run(database, "create table o (id int primary key, at timestamp)", "insert into o values (1, 'infinity')")
    with pytest.raises(Exception, match="'at' holds infinity"):
        rows(spark, jdbc(database, table="o", cursor="id"))


@pytest.mark.spark
def test_a_wrong_password_is_unreadable_and_not_shown(spark: SparkSession, orders: str) -> None:
    """The driver's words, without the secret."""
    found = conninfo_to_dict(orders)
    url = f"jdbc:postgresql://{found['host']}:{found['port']}/{found['dbname']}?password=s3cret"
    source = Jdbc(url, "o", cursor="seq", driver="org.postgresql.Driver", options={"user": "ann"})
    with pytest.raises(SourceUnreadable) as caught:
        source.fingerprint(lambda: spark)
    assert "s3cret" not in str(caught.value)


@pytest.mark.spark
@pytest.mark.parametrize("column_type", ["bigint", "numeric(12,2)", "date", "timestamp"])
def test_the_plain_sql_for_other_databases_is_understood(
    spark: SparkSession, database: str, column_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL stands in for a database that we know nothing of."""
    monkeypatch.setattr("floodmark.sources.tables.jdbc.is_postgres", lambda _: False)
    monkeypatch.setattr("floodmark.sources.tables.jdbc.is_postgres", lambda _: False)
    start = {"bigint": "-3", "numeric(12,2)": "9.5", "date": "date '2024-01-01'", "timestamp": "timestamp '2024-01-01'"}
    step = {"date": "n", "timestamp": "n * interval '1 h'"}.get(column_type, "n")
    run(
        database,
        f"create table o (n int, c {column_type})",
        f"insert into o select n, {start[column_type]} + {step} from generate_series(1, 4) n",
    )
    source = jdbc(database, table="o", cursor=Cursor("c", unique=True))
    first = span(spark, source)
    run(database, f"insert into o values (5, {start[column_type]} + {step.replace('n', '5', 1)})")
    second = span(spark, source, first.upto)
    assert [row[0] for row in rows(spark, source, first)] == [1, 2, 3, 4]
    assert [row[0] for row in rows(spark, source, second)] == [5]


@pytest.mark.spark
def test_several_columns_are_understood_by_other_databases(
    spark: SparkSession, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared column by column, since not every database compares rows; what stands in for a null as well."""
    monkeypatch.setattr("floodmark.sources.tables.jdbc.is_postgres", lambda _: False)
    monkeypatch.setattr("floodmark.sources.tables.jdbc.is_postgres", lambda _: False)
    run(database, "create table o (id int, day date, made date)")
    run(database, "insert into o values (1, '2024-01-02', null), (2, null, '2024-01-01'), (3, '2024-01-01', null)")
    source = jdbc(database, table="o", cursor=Cursor(["day", "id"], coalesce=["day", "made"], unique=True))
    first = span(spark, source)
    run(database, "insert into o values (5, '2024-01-02', null), (0, '2024-01-03', null), (4, null, '2024-01-01')")
    second = span(spark, source, first.upto)
    assert [row[0] for row in rows(spark, source, first)] == [1, 2, 3, 4]
    assert (first.upto.show(), second.upto.show()) == (["2024-01-02", 1], ["2024-01-03", 0])
    assert [row[0] for row in rows(spark, source, second)] == [0, 5]


def test_values_for_other_databases_are_typed_and_quoted() -> None:
    """Plain SQL, as the standard has it."""
    day, number = CursorColumn("d", "date", "date"), CursorColumn("n", "decimal", "decimal")
    assert Conditions(Ansi(), ResolvedCursor((day,))).at_or_below(("2024-02-29",)) == "fm.\"d\" <= DATE '2024-02-29'"
    assert Conditions(Ansi("`"), ResolvedCursor((number,))).above(LowerBound(("9.50",))) == "fm.`n` > 9.50"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("jdbc:postgresql://h:5432/shop?user=ann&password=s3cret", "jdbc:postgresql://h:5432/shop"),
        ("jdbc:sqlserver://h;user=ann;password=s3cret", "jdbc:sqlserver://h"),
        ("jdbc:oracle:thin:ann/s3cret@//h:1521/shop", "jdbc:oracle://h:1521/shop"),
        ("jdbc:mysql://ann:s3cret@h/shop", "jdbc:mysql:h/shop"),
    ],
)
def test_a_url_is_shown_without_its_login(url: str, shown: str) -> None:
    """Wherever drivers allow one to stand."""
    assert without_jdbc_login(url) == shown
    assert "s3cret" not in repr(Jdbc(url, "o", cursor="seq"))


def test_a_url_that_is_not_of_jdbc_is_refused_without_being_quoted() -> None:
    """It may hold a password."""
    with pytest.raises(ConfigError) as caught:
        Jdbc("postgresql://ann:s3cret@h/shop", "o", cursor="seq")
    assert "s3cret" not in str(caught.value)


def test_a_probe_knows_how_its_database_quotes() -> None:
    """MySQL takes double quotes for texts."""
    source = Jdbc("jdbc:mysql://h/shop", "o", cursor="seq")
    assert source.probe(lambda: pytest.fail("no Spark is needed")).dialect == MySql()
    assert MySql().quote("o") == "`o`"
