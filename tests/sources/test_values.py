"""What is one JSON object and what is not: one parse judges the whole text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from floodmark.sources.values import KEY, Json, is_no_object, object_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "id long, v string, items array<struct<n: int>>"
WHOLE = [
    '{"id": 1}',
    ' \t\r\n{"id": 1}\r\n ',
    "{}",
    '{"id": null}',
    '{"id": 1, "unknown": {"a": [1, {"b": "}"}]}}',
    '{"id": 1, "v": "} ] , {"}',
    '{"id": 1, "v": "a \\"quoted\\" }"}',
    '{"id": 1, "items": [{"n": 1}, {"n": 2}]}',
    '{"id": 1, "id": 2}',
]
NOT_ONE = [
    '{"id": 1} xyz',
    '{"id": 1}{"id": 2}',
    '{"id": 1} {"id": 2}',
    '{"id": 1},{"id": 2}',
    '{"id": 1},',
    '{"id": 1}]',
    '{"id": 1}]}',
    '{"id": 1}] }',
    '{"id": 1}], "x": [{}',
    '{"id": 1}]}, {"x": [{}',
    '{"id": 1}, "x": {}',
    '{"id": 1}\n{"id": 2}',
    '{"id": 1} null',
    '{"id": 1},null',
    '{"id": 1}}',
    '{"id": 1, "v": "open',
    '{"id": 1',
    "",
    " ",
    "null",
    "7",
    "[]",
    '[{"id": 1}]',
    '{"id": "abc"}',
    '{"id": 1.5}',
    '{"id": 1, "items": [{"n": "many"}]}',
    '{"id": 1, "items": {"n": 1}}',
]


def judged(spark: SparkSession, texts: list[str | None], options: Mapping[str, str] | None = None) -> list[bool]:
    """Which of the texts are no object, in their order."""
    rows = spark.createDataFrame([(place, text) for place, text in enumerate(texts)], "place int, t string")
    parsed = rows.withColumn("p", Json(SCHEMA).parse(F.col("t"), options))
    bad = parsed.select("place", is_no_object(F.col("t"), F.col("p")).alias("bad")).orderBy("place")
    return [row.bad for row in bad.collect()]


def test_one_object_is_one_object_whatever_stands_in_it(spark: SparkSession) -> None:
    """White space around it, brackets in its strings and fields that nobody asked for are no fault."""
    assert [text for text, bad in zip(WHOLE, judged(spark, [*WHOLE]), strict=True) if bad] == []


def test_whatever_else_stands_in_the_text_makes_it_malformed(spark: SparkSession) -> None:
    """More than one object, half of one, text behind it, another type: nothing is dropped unseen."""
    assert [text for text, bad in zip(NOT_ONE, judged(spark, [*NOT_ONE]), strict=True) if not bad] == []


def test_a_text_that_is_null_is_neither(spark: SparkSession) -> None:
    """A tombstone has no value that could be malformed."""
    assert judged(spark, [None, "{}"]) == [False, False]


def test_a_comment_is_no_text_where_comments_are_allowed(spark: SparkSession) -> None:
    """Neither does it hide what we put behind the text."""
    texts: list[str | None] = ['{"id": 1} // one', '{"id": /* one */ 1}', '{"id": 1} /* open', '{"id": 1} // a\n x']
    assert judged(spark, texts, {"allowComments": "true"}) == [False, False, True, True]


def test_the_fields_come_as_the_schema_says(spark: SparkSession) -> None:
    """And nothing of ours beside them but KEY."""
    rows = spark.createDataFrame([('{"id": 1, "items": [{"n": 2}]}',)], "t string")
    found = rows.select(object_in(Json(SCHEMA).parse(F.col("t"))).alias("o")).select("o.*").drop(KEY)
    assert (found.columns, [tuple(row) for row in found.collect()]) == (["id", "v", "items"], [(1, None, [(2,)])])


def test_a_batch_is_parsed_once(spark: SparkSession) -> None:
    """The verdict and the fields come from one and the same parse."""
    rows = spark.range(5).select(F.concat(F.lit('{"id":'), "id", F.lit("}")).alias("t"))
    parsed = rows.withColumn("p", Json(SCHEMA).parse(F.col("t")))
    told = parsed.select(object_in(F.col("p"))["id"], is_no_object(F.col("t"), F.col("p")))
    plan = told._jdf.queryExecution().executedPlan().toString()
    assert plan.count("from_json(") == 1
