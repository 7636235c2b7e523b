# Databricks notebook source
"""Brings dimensions and facts up to silver, and makes the views."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(globals().get("__file__", "notebook")).resolve().parents[1]))

from observability.tasks import build_gold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.stores.contract import MarkStore

# COMMAND ----------


def main(spark: SparkSession | None = None, store: MarkStore | None = None, home: str | None = None) -> str:
    """The third task of the workflow; runs alone as well."""
    return build_gold(spark, store, home)


# COMMAND ----------
if __name__ == "__main__":
    print(main(spark=globals().get("spark")))
