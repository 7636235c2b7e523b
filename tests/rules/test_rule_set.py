"""`validate_data_quality`: the seed's function, over any DataFrame."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from floodmark.errors import RuleInvalid, UnknownKind
from floodmark.rules import validate_data_quality

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("tests.quality")


@pytest.fixture
def entities(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, "job"), (2, None), (2, "pipeline")], "workspace_id long, entity_type string")


def test_the_rules_of_the_seed_hold_where_every_column_has_a_value(
    entities: DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    """A rule that holds is logged too, with its count."""
    with caplog.at_level(logging.INFO, logger=logger.name):
        assert validate_data_quality(entities, "entity", logger, {"workspace_id": "not_null"})
    assert caplog.messages == ["entity: workspace_id not_null: 0 of 3 rows failed"]


def test_every_rule_is_logged_with_its_count_and_one_that_fails_makes_it_false(
    entities: DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    """Several rules on a column are a list; a condition is SQL, and NULL is not true."""
    rules = {"workspace_id": ["not_null", "unique"], "entity_type": "entity_type <> 'job'"}
    with caplog.at_level(logging.INFO, logger=logger.name):
        assert not validate_data_quality(entities, "entity", logger, rules)
    assert [(record.levelname, record.message.split(", such as")[0]) for record in caplog.records] == [
        ("INFO", "entity: workspace_id not_null: 0 of 3 rows failed"),
        ("WARNING", "entity: workspace_id unique: 1 of 3 rows failed"),
        ("WARNING", "entity: entity_type: entity_type <> 'job': 2 of 3 rows failed"),
    ]


def jobs_of(spark: SparkSession, group: str, act: Callable[[], object]) -> int:
    """How many Spark jobs an act starts."""
    spark.sparkContext.setJobGroup(group, group)
    act()
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def test_ten_rules_take_as_many_spark_jobs_as_one_count(spark: SparkSession, entities: DataFrame) -> None:
    """All rules are answered by one aggregation over one scan."""
    from pyspark.sql import functions as F

    ten = {"workspace_id": [f"workspace_id <> {number}" for number in range(9)], "entity_type": "not_null"}
    counting = jobs_of(spark, "one count", lambda: entities.agg(F.count("*")).collect())
    judging = jobs_of(spark, "ten rules", lambda: validate_data_quality(entities, "entity", logger, ten))
    assert judging == counting


def test_a_word_that_is_no_rule_is_refused(entities: DataFrame) -> None:
    """`notnull` is a slip, not a condition."""
    with pytest.raises(UnknownKind, match="notnull"):
        validate_data_quality(entities, "entity", logger, {"workspace_id": "notnull"})


def test_a_column_that_is_not_there_is_named(entities: DataFrame) -> None:
    """It is no failure of a row."""
    with pytest.raises(RuleInvalid, match="workspace not_null"):
        validate_data_quality(entities, "entity", logger, {"workspace": "not_null"})
