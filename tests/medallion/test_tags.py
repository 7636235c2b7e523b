"""Tags as columns, by the mapping that ships and by one of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark.errors import ConfigError
from floodmark.medallion import Tags, exploded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id int, usage map<string,string>, cluster map<string,string>, job map<string,string>"


@pytest.mark.spark
def test_environments_are_one_word_each_and_missing_ones_are_dev(spark: SparkSession) -> None:
    """Trimmed, without case; what is not known is written in lower case."""
    said = [" Production ", "prod", "STAGING", "user_acceptance", "uat", "Development", "Sandbox", " ", None]
    rows = spark.createDataFrame([(i, {"environment": word}, None, None) for i, word in enumerate(said)], SCHEMA)
    found = Tags.load().flatten(rows, ["usage"]).orderBy("id").collect()
    assert [row.environment for row in found] == [
        "prod", "prod", "stage", "uat", "uat", "dev", "sandbox", "dev", "dev",
    ]  # fmt: skip


@pytest.mark.spark
def test_the_nearest_tag_wins_and_missing_ones_have_defaults(spark: SparkSession) -> None:
    """Usage before cluster before job; names are compared without case, and a blank tag is not there."""
    rows = spark.createDataFrame(
        [
            (1, {"Project": "risk"}, {"project": "retail", "sub_project": "ml"}, {"cost_center": "c7"}),
            (2, {"project": ""}, None, {"project": "retail", "data_product": "churn"}),
            (3, None, None, None),
        ],
        SCHEMA,
    )
    found = Tags.load().flatten(rows, ["usage", "cluster", "job"]).orderBy("id")
    names = ("line_of_business", "department", "cost_center", "use_case", "pipeline_name", "cluster_identifier")
    assert [tuple(row) for row in found.select(*names).collect()] == [
        ("risk", "ml", "c7", "Unknown", "system", "Unknown"),
        ("retail", "general", "unallocated", "churn", "system", "Unknown"),
        ("Unknown", "general", "unallocated", "Unknown", "system", "Unknown"),
    ]
    assert [tuple(row) for row in found.select("workflow_level", "parent_workflow_name").distinct().collect()] == [
        ("STANDALONE", "None")
    ]


@pytest.mark.spark
def test_tags_can_be_seen_one_by_one(spark: SparkSession) -> None:
    """A row per tag; none for a row without tags."""
    rows = spark.createDataFrame([(1, {"a": "1", "b": "2"}, None, None), (2, {}, None, None)], SCHEMA)
    found = exploded(rows, ["id"], "usage").collect()
    assert sorted(tuple(row) for row in found) == [(1, "a", "1"), (1, "b", "2")]
    assert found[0].asDict().keys() == {"id", "tag_key", "tag_value"}
    with pytest.raises(ConfigError, match="tags column 'id' is int"):
        exploded(rows, [], "id")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("columns: {team: [team]}\ndefault: {team: x}", "default: Extra inputs"),
        ("columns: {team: [team]}\ndefaults: {crew: x}", "'crew' is in defaults"),
        ("columns: [", "tags.yaml:2 is not YAML"),
        ("", "Input should be"),
    ],
)
def test_a_mapping_that_means_nothing_is_refused(tmp_path: Path, text: str, wrong: str) -> None:
    """With the file and the place."""
    (tmp_path / "tags.yaml").write_text(text)
    with pytest.raises(ConfigError, match=wrong):
        Tags.load(tmp_path / "tags.yaml")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Not taken for an empty one."""
    with pytest.raises(ConfigError, match=r"none\.yaml cannot be read"):
        Tags.load(tmp_path / "none.yaml")
