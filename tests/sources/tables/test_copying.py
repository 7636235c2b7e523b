"""Large spans of PostgreSQL come by COPY: the same rows in the same types as through JDBC, value by value."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from floodmark.hwm import Span
from floodmark.sources import Postgres
from floodmark.sources.contract import Request
from floodmark.sources.tables.copying import parse
from tests.sources.tables.reader import run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MANY = 10_001
"""One row more than a span that is read by one task."""
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


def in_words(rows: DataFrame) -> list[str]:
    """Every row as text; Python itself knows no day before the year 1."""
    return sorted(map(repr, rows.withColumn("day", rows["day"].cast("string")).collect()))


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
def test_a_large_span_comes_by_copy_exactly_as_through_jdbc(spark: SparkSession, many_orders: str) -> None:
    """Each type at its ends, nulls, texts that look like nulls, days before the year 1; and the schema is the same."""
    source = Postgres(many_orders, "o", cursor="id", partitions=2)
    span, table = whole_span(source), source._jdbc_table()
    copied = table.reading(spark, span, 2).rows
    through_jdbc = replace(table, bulk=None).reading(spark, span, 2).rows
    assert (is_by_copy(copied), is_by_copy(through_jdbc)) == (True, False)
    assert copied.schema == through_jdbc.schema
    both = [
        rows.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false')) as j") for rows in (copied, through_jdbc)
    ]
    assert (copied.count(), both[0].exceptAll(both[1]).count(), both[1].exceptAll(both[0]).count()) == (MANY, 0, 0)


@pytest.mark.spark
def test_a_small_span_is_not_worth_a_worker(spark: SparkSession, database: str) -> None:
    """JDBC has read ten rows before Python has begun."""
    run(database, "create table o (id int primary key)", "insert into o values (1), (2)")
    source = Postgres(database, "o", cursor="id")
    assert not is_by_copy(source.read(spark, whole_span(source)).rows)


@pytest.mark.spark
@pytest.mark.parametrize("odd", ["a int[]", "raw bytea"])
def test_a_type_that_copy_does_not_carry_goes_through_jdbc(spark: SparkSession, database: str, odd: str) -> None:
    """Chosen by the schema alone, so that every batch of a table goes the same way."""
    run(database, f"create table o (id int primary key, {odd})", f"insert into o select generate_series(1, {MANY})")
    source = Postgres(database, "o", cursor="id")
    assert not is_by_copy(source.read(spark, whole_span(source)).rows)


@pytest.mark.spark
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
