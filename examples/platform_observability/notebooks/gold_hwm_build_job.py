# Databricks notebook source
"""Brings dimensions and facts up to silver, for the dates that changed, and publishes the views."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(globals().get("__file__", "notebook")).resolve().parents[1]))

from observability.lake import Lake
from observability.parameters import widgets_of
from observability.quality import validate_gold_data
from observability.tasks import build_gold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.stores.contract import MarkStore

# COMMAND ----------


def main(spark: SparkSession | None = None, store: MarkStore | None = None, **parameters: str | None) -> str:
    """The third task of the workflow; runs alone as well."""
    return build_gold(spark, store, Lake.at(**parameters)).judged_by(validate_gold_data)


# COMMAND ----------
if __name__ == "__main__":
    print(main(globals().get("spark"), **widgets_of(globals().get("dbutils"))))
