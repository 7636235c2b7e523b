"""Spark's SQL on the small engine: the same answer as Spark's, or none."""

from __future__ import annotations

import re
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from floodmark.errors import ConfigError
from floodmark.probes.rows import query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AGGREGATE = re.compile(r"(sum|count_if)\(")
MOMENT = datetime(2024, 1, 31, 10, 20, 30, tzinfo=timezone.utc)
ROW = pa.table(
    {
        "id": [3],
        "name": ["abc"],
        "nothing": pa.array([None], pa.string()),
        "at": pa.array([MOMENT], pa.timestamp("us", "UTC")),
        "day": [date(2024, 1, 31)],
        "ratio": [1.005],
        "price": pa.array([Decimal("1.25")], pa.decimal128(10, 2)),
    }
)

ANSWERS = [
    ("date_format(at, 'yyyy-MM-dd')", "2024-01-31"),
    ("date_format(day, 'dd/MM/yyyy HH:mm:ss')", "31/01/2024 00:00:00"),
    ("substring('abc', 0, 2)", "ab"),
    ("substr(name, 2)", "bc"),
    ("id / 2", 1.5),
    ("7 / 2 * 2", 7.0),
    ("sum(id) / count(*)", 3.0),
    ("0.1 + 0.2", Decimal("0.3")),
    ("price * 1.1", Decimal("1.375")),
    ("round(ratio, 2)", 1.01),
    ("round(price, 1)", Decimal("1.3")),
    ("cast(ratio as decimal(10, 2))", Decimal("1.01")),
    ("ceil(ratio)", 2),
    ("floor(price)", 1),
    ("concat(name, nothing)", None),
    ("nvl(nothing, name)", "abc"),
    ("if(id > 2, 'many', 'few')", "many"),
    ("count_if(id > 5)", 0),
    ("datediff(day, '2024-01-01')", 30),
    ("dayofweek(day)", 4),
    ("hour(at)", 10),
    ("year(day)", 2024),
    ("date_trunc('MONTH', at)", datetime(2024, 1, 1, tzinfo=timezone.utc)),
    ("to_date('2024-01-05')", date(2024, 1, 5)),
    ("cast(day as string)", "2024-01-31"),
    ("cast(price as int)", 1),
    ("day + 1", date(2024, 2, 1)),
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """One row of every family of types."""
    folder: Path = tmp_path_factory.mktemp("dialect") / "t"
    write_deltalake(str(folder), ROW)
    return DeltaTable(str(folder))


@pytest.mark.parametrize(("expression", "answer"), ANSWERS)
def test_what_both_know_is_answered_as_spark_answers_it(table: DeltaTable, expression: str, answer: object) -> None:
    """Where the engine's own function differs, it is asked for in other words; the answers are those of Spark 4."""
    [row] = query({"t": table}, f"select {expression} as answer from t").values
    assert row["answer"] == answer
    assert type(row["answer"]) is type(answer)


def test_the_answers_are_those_of_spark(spark: SparkSession, table: DeltaTable) -> None:
    """Asked all at once: whoever adds an answer has it from Spark."""
    expressions = ", ".join(expression for expression, _ in ANSWERS if not AGGREGATE.match(expression))
    sums = ", ".join(expression for expression, _ in ANSWERS if AGGREGATE.match(expression))
    spark.createDataFrame(ROW).createOrReplaceTempView("dialect_answers")
    found = [
        value
        for part in (expressions, sums)
        for row in spark.sql(f"select {part} from dialect_answers").toArrow().to_pylist()
        for value in row.values()
    ]
    spark.catalog.dropTempView("dialect_answers")
    expected = sorted(ANSWERS, key=lambda each: AGGREGATE.match(each[0]) is not None)
    assert dict(zip([expression for expression, _ in expected], found, strict=True)) == dict(expected)


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("date_format(at, 'dd MMM')", "date_format(…)"),
        ("date_format(at, name)", "date_format(…)"),
        ("to_date(name, 'yyyy')", "to_date(…)"),
        ("to_timestamp(name, 'yyyy')", "to_timestamp(…)"),
        ("substring(name, -2)", "substring(…)"),
        ("regexp_extract(name, 'a(.)', 1)", "regexp_extract(…)"),
        ("name rlike 'a'", "`name RLIKE 'a'`"),
        ("split(name, 'b')", "split(…)"),
        ("months_between(day, day)", "months_between(…)"),
        ("weekday(day)", "weekday(…)"),
        ("percentile(id, 0.5)", "percentile(…)"),
        ("collect_list(id)", "collect_list(…)"),
        ("price / 3", "`price / 3`"),
        ("day - day", "`day - day`"),
        ("cast(at as bigint)", "cast(…)"),
        ("cast(at as string)", "cast(…)"),
        ("concat(name, ratio)", "concat(…)"),
        ("name = 1", "`name = 1`"),
        ("sha2(name, 256)", "sha2(…)"),
        ("something_new(id)", "something_new(…)"),
    ],
)
def test_what_could_differ_is_refused_by_its_name(table: DeltaTable, expression: str, name: str) -> None:
    """A wrong answer looks like a right one; Spark is one option away."""
    with pytest.raises(ConfigError) as refused:
        query({"t": table}, f"select {expression} from t")
    assert refused.value.message == f"{name} could mean something else without Spark, so it is not answered."
    assert refused.value.hint == "--spark runs it on Spark"


def test_a_division_by_zero_fails_as_on_spark(table: DeltaTable) -> None:
    """A double divided by zero would be infinite."""
    with pytest.raises(ConfigError, match="Divide by zero"):
        query({"t": table}, "select ratio / (id - 3) from t")


def test_types_are_known_through_names_that_a_query_gives(table: DeltaTable) -> None:
    """The sum is a whole number in the outer query too; a name with two meanings has no known type."""
    inner = "with sums as (select name, sum(id) as total, count(*) as n from t group by name)"
    assert query({"t": table}, f"{inner} select total / n as mean from sums").values == ({"mean": 3.0},)
    with pytest.raises(ConfigError, match="could mean something else"):
        query({"t": table}, "select price as id, id / 2 from t")


def test_rows_without_a_value_come_first_as_on_spark(table: DeltaTable) -> None:
    """The engine would put them last."""
    rows = query({"t": table}, "select name as word from t union all select nothing from t order by word").values
    assert [row["word"] for row in rows] == [None, "abc"]
