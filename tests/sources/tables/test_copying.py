"""Spans of PostgreSQL come by COPY, large and small: the same rows in the same types as through JDBC."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from floodmark.hwm import ColumnIntHWM, Span
from floodmark.sources import Postgres
from floodmark.sources.contract import Request
from floodmark.sources.tables import reading
from floodmark.sources.tables.copying import BLOCK_BYTES, parse
from floodmark.sources.tables.reading import ROWS_WORTH_COPYING
from tests.sources.tables.reader import run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MANY = 10_001
"""One row more than a span that is read by one task; here it is also one more than JDBC reads sooner."""
COLUMNS = (
    "id bigint primary key, s smallint, i integer, n numeric(38,2), big numeric(38,0), d double precision, r real,"
    " b boolean, t text, v varchar(9), c char(3), u uuid, j jsonb, day date, at timestamptz, naive timestamp"
)
ODD_VALUES = """
(1, -32768, -2147483648, -1.10, 99999999999999999999999999999999999999, 'NaN', 'Infinity', true, '', '', '',
 '0190b6c0-0000-7000-8000-000000000001', '{"a": [1, null]}', '0044-03-15 BC', '0001-01-01 00:00+00', '1582-10-10'),
(2, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null),
(3, 0, 0, 0, 0, 0.1, 0.1, false, E'a,"b"\\r\\n\\\\. \\t', 'ünï', 'x', null, 'null', '9999-12-31',
 '2026-03-29 01:30:00.123456+00', '2026-03-29 02:30:00.000001'),
(4, 1, 1, 0.01, -1, 5e-324, 1e-45, false, 'NULL', '\\N', ' x ', null, '""', '1970-01-01',
 '9999-12-31 23:59:59.999999+00', '0001-01-01')
"""


@pytest.fixture
def copies_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans that a test can fill in a moment are worth it."""
    monkeypatch.setattr(reading, "ROWS_WORTH_COPYING", MANY - 1)
    monkeypatch.setattr(reading, "CORES_PER_COPY", 0)


@pytest.mark.parametrize(
    ("rows", "cores", "is_worth"),
    [
        (ROWS_WORTH_COPYING, 6, False),
        (ROWS_WORTH_COPYING + 1, 6, True),
        (ROWS_WORTH_COPYING + 1, 5, False),
        (None, 6, True),
        (None, 2, False),
    ],
)
def test_a_span_is_copied_by_tasks_where_it_may_be_large_and_there_are_cores(
    rows: int | None, cores: int, is_worth: bool
) -> None:
    """A worker has to begin, and is one more process; of a span that was not counted it is known that it is large."""
    span = Span(None, ColumnIntHWM("id", 5), {"rows": rows})
    assert reading.is_worth_copying(span, 2, cores) is is_worth


def test_a_null_is_empty_and_an_empty_text_has_quotation_marks() -> None:
    """PostgreSQL tells the two apart by nothing else."""
    found = parse(b'1,\n2,""\n3,"a ""b"", \r\n"\n', pa.schema([("id", pa.int64()), ("v", pa.string())]))
    assert found["v"].to_pylist() == [None, "", 'a "b", \r\n']


def test_an_empty_line_is_a_row_of_one_null() -> None:
    """A table may have one column."""
    assert parse(b'\n""\n\n', pa.schema([("v", pa.string())]))["v"].to_pylist() == [None, "", None]


def test_numbers_are_exact_to_their_last_digit() -> None:
    """Neither a decimal nor the smallest double goes through another type."""
    schema = pa.schema([("n", pa.decimal128(38, 2)), ("d", pa.float64())])
    found = parse(b"-999999999999999999999999999999999999.99,5e-324\n0.00,-Infinity\n", schema)
    assert found["n"].to_pylist() == [Decimal("-999999999999999999999999999999999999.99"), Decimal("0.00")]
    assert found["d"].to_pylist() == [5e-324, float("-inf")]


def test_a_value_of_another_type_is_refused() -> None:
    """It never becomes a null."""
    with pytest.raises(pa.ArrowInvalid, match="invalid value"):
        parse(b"x\n", pa.schema([("id", pa.int64())]))


def whole_span(source: Postgres) -> Span:
    found = source.look(None, Request(), lambda: pytest.fail("a look needs no Spark")).span
    assert found is not None
    return found


def as_json(rows: DataFrame) -> DataFrame:
    """Every row as text; Python itself knows no day before the year 1."""
    return rows.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false')) as j")


def is_by_copy(rows: DataFrame) -> bool:
    return "MapInArrow" in rows._jdf.queryExecution().executedPlan().toString()


@pytest.fixture
def many_orders(database: str) -> str:
    """So many rows that they are worth it; the odd ones are among them."""
    numbers = f"select n from generate_series(5, {MANY}) n"
    run(
        database,
        f"create table o ({COLUMNS})",
        f"insert into o values {ODD_VALUES}",
        f"insert into o (id, t, n, day, at) select n, md5(n::text), n / 7.0, date '2024-01-01' + n % 900, "
        f"timestamptz '2024-01-01' + n * interval '1.000001 s' from ({numbers}) t(n)",
    )
    return database


@pytest.mark.spark
@pytest.mark.usefixtures("copies_early")
def test_a_large_span_comes_by_copy_exactly_as_through_jdbc(spark: SparkSession, many_orders: str) -> None:
    """Each type at its ends, nulls, texts that look like nulls, days before the year 1; and the schema is the same."""
    source = Postgres(many_orders, "o", cursor="id", partitions=2)
    span, table = whole_span(source), source._jdbc_table()
    copied = table.reading(spark, span, 2).rows
    through_jdbc = replace(table, bulk=None).reading(spark, span, 2).rows
    assert (is_by_copy(copied), is_by_copy(through_jdbc)) == (True, False)
    assert copied.schema == through_jdbc.schema
    both = [as_json(rows) for rows in (copied, through_jdbc)]
    assert (copied.count(), both[0].exceptAll(both[1]).count(), both[1].exceptAll(both[0]).count()) == (MANY, 0, 0)


@pytest.mark.spark
def test_a_small_span_is_not_worth_a_worker(spark: SparkSession, database: str) -> None:
    """JDBC has read ten rows before Python has begun."""
    run(database, "create table o (id int primary key)", "insert into o values (1), (2)")
    source = Postgres(database, "o", cursor="id")
    assert not is_by_copy(source.read(spark, whole_span(source)).rows)


def is_read_here(rows: DataFrame) -> bool:
    """Whether its rows have come already: no task of it asks the database."""
    return "JDBC" not in rows._jdf.queryExecution().executedPlan().toString()


@pytest.mark.spark
def test_few_rows_are_read_here_exactly_as_through_jdbc(spark: SparkSession, database: str) -> None:
    """Once the first reading has learned from JDBC what types they have."""
    run(database, f"create table o ({COLUMNS})", f"insert into o values {ODD_VALUES}")
    source = Postgres(database, "o", cursor="id")
    first, second = (source.read(spark, whole_span(source)) for _ in range(2))
    assert (is_read_here(first.rows), is_read_here(second.rows)) == (False, True)
    assert second.rows.schema == first.rows.schema
    assert sorted(as_json(second.rows).collect()) == sorted(as_json(first.rows).collect())
    assert second.position is not None
    assert [row[0].id for row in second.rows.select(second.position).sort("id").collect()] == [1, 2, 3, 4]


@pytest.mark.spark
def test_a_table_that_gets_a_column_is_asked_about_anew(spark: SparkSession, database: str) -> None:
    """What is known of its columns is known of those alone; no row, and nulls in every column, are read as well."""
    run(database, "create table o (id int primary key, v text)", "insert into o values (1, null)")
    source = Postgres(database, "o", cursor="id")
    source.read(spark, whole_span(source))
    run(database, "insert into o values (2, null)", "delete from o where id = 1")
    assert source.read(spark, whole_span(source)).rows.collect() == [(2, None)]
    run(database, "alter table o add column w numeric(5,1) default 1.5", "alter table o alter column v type varchar(3)")
    source.close()
    widened = source.read(spark, whole_span(source)).rows
    assert (is_read_here(widened), widened.collect()) == (False, [(2, None, Decimal("1.5"))])
    again = source.read(spark, whole_span(source)).rows
    assert (is_read_here(again), again.collect()) == (True, [(2, None, Decimal("1.5"))])


@pytest.mark.spark
def test_few_rows_that_are_large_go_through_jdbc(spark: SparkSession, database: str) -> None:
    """They need not all be in the memory of this process."""
    run(database, "create table o (id int primary key, v text)", "insert into o values (1, 'a')")
    source = Postgres(database, "o", cursor="id")
    source.read(spark, whole_span(source))
    run(database, f"insert into o select n, repeat('x', {BLOCK_BYTES // 2}) from generate_series(2, 5) n")
    large = source.read(spark, whole_span(source)).rows
    assert (is_read_here(large), large.selectExpr("sum(length(v))").collect()) == (False, [(2 * BLOCK_BYTES + 1,)])


@pytest.mark.spark
def test_a_value_among_few_that_spark_does_not_have_stops_the_batch(spark: SparkSession, database: str) -> None:
    """JDBC reads it again, and says what is wrong."""
    run(database, "create table o (id int primary key, at timestamptz)", "insert into o values (1, now())")
    source = Postgres(database, "o", cursor="id")
    source.read(spark, whole_span(source))
    run(database, "insert into o values (2, 'infinity')")
    of = whole_span(source)
    with pytest.raises(Exception, match="floodmark value") as caught:
        source.read(spark, of).rows.collect()
    assert "'at' holds infinity" in str(source.explain(caught.value, spark, of))


@pytest.mark.spark
@pytest.mark.usefixtures("copies_early")
@pytest.mark.parametrize("odd", ["a int[]", "raw bytea"])
def test_a_type_that_copy_does_not_carry_goes_through_jdbc(spark: SparkSession, database: str, odd: str) -> None:
    """Chosen by the schema alone, so that every batch of a table goes the same way."""
    run(database, f"create table o (id int primary key, {odd})", f"insert into o select generate_series(1, {MANY})")
    source = Postgres(database, "o", cursor="id")
    assert not is_by_copy(source.read(spark, whole_span(source)).rows)


@pytest.mark.spark
@pytest.mark.usefixtures("copies_early")
def test_a_value_that_spark_does_not_have_stops_the_batch_with_its_column(spark: SparkSession, database: str) -> None:
    """As it does through JDBC."""
    run(
        database,
        "create table o (id int primary key, at timestamptz)",
        f"insert into o select n, case when n = 7 then timestamptz 'infinity' end from generate_series(1, {MANY}) n",
    )
    source = Postgres(database, "o", cursor="id")
    of = whole_span(source)
    with pytest.raises(Exception, match="floodmark value") as caught:
        source.read(spark, of).rows.collect()
    explained = source.explain(caught.value, spark, of)
    assert explained is not None
    assert "'at' holds infinity" in str(explained)
