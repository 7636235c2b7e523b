"""Quality rules: those of `rules.yaml` for the jobs, and the functions that judge a DataFrame in a notebook."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import yaml

from floodmark.project import RuleModel, Site
from floodmark.rules import Rule, validate_data_quality
from observability.lake import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger("observability")


@cache
def declared() -> dict[str, list[dict[str, object]]]:
    """`rules.yaml`: by table, the rules as they are written there."""
    found: dict[str, list[dict[str, object]]] = yaml.safe_load((ROOT / "rules.yaml").read_text(encoding="utf-8"))
    return found


def rules_of(table: str) -> Sequence[Rule]:
    """The rules that the job of a table judges its rows by."""
    return [RuleModel.model_validate(rule).build(Site(ROOT)) for rule in declared().get(table, [])]


def validate_bronze_data(df: DataFrame, table_name: str) -> bool:
    """Every row came with a moment of ingestion."""
    return validate_data_quality(df, table_name, logger, {"_ingest_version": "not_null"})


def validate_silver_data(df: DataFrame, table_name: str) -> bool:
    """Entities can be told apart; usage may be nobody's."""
    rules = {"workspace_id": "not_null", "entity_type": "not_null", "entity_id": "not_null"}
    wanted = {"workspace_id"} if table_name == "usage_txn" else set(df.columns)
    judged = {name: rules[name] for name in rules if name in wanted and name in df.columns}
    return validate_data_quality(df, table_name, logger, judged)


def validate_gold_data(df: DataFrame, table_name: str) -> bool:
    """Facts have a date, and nothing but what was taken back costs less than nothing."""
    may_be_negative = "record_type = 'RETRACTION'" if "record_type" in df.columns else "false"
    rules = {"date_sk": "not_null", "list_cost": f"list_cost is null or list_cost >= 0 or {may_be_negative}"}
    return validate_data_quality(df, table_name, logger, {name: rules[name] for name in rules if name in df.columns})
