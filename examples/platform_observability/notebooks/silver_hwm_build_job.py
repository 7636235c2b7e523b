# Databricks notebook source
"""Brings the silver tables up to bronze."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(globals().get("__file__", "notebook")).resolve().parents[1]))

from observability.lake import Lake
from observability.parameters import widgets_of
from observability.quality import validate_silver_data
from observability.tasks import build_silver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.stores.contract import MarkStore

# COMMAND ----------


def main(spark: SparkSession | None = None, store: MarkStore | None = None, **parameters: str | None) -> str:
    """The second task of the workflow; runs alone as well."""
    return build_silver(spark, store, Lake.at(**parameters)).judged_by(validate_silver_data)


# COMMAND ----------
if __name__ == "__main__":
    print(main(globals().get("spark"), **widgets_of(globals().get("dbutils"))))
