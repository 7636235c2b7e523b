# Databricks notebook source
"""Judges all tables and jobs, and sends the summary; needs no Spark."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(globals().get("__file__", "notebook")).resolve().parents[1]))

from observability.lake import Lake
from observability.parameters import widgets_of
from observability.tasks import check_health

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.stores.contract import MarkStore

# COMMAND ----------


def main(spark: SparkSession | None = None, store: MarkStore | None = None, **parameters: str | None) -> str:
    """The last task of the workflow; runs alone as well."""
    return check_health(store, Lake.at(**parameters))


# COMMAND ----------
if __name__ == "__main__":
    print(main(globals().get("spark"), **widgets_of(globals().get("dbutils"))))
