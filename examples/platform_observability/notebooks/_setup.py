# Databricks notebook source
"""What notebooks that are written by hand begin with: the lake, its marks, and the names of its tables."""

# ruff: noqa: F821 - dbutils and spark are there in every notebook
import sys
from pathlib import Path

sys.path.insert(0, str(Path(globals().get("__file__", "notebook")).resolve().parents[1]))

from observability import system, views
from observability.lake import Lake
from observability.parameters import widgets_of

# COMMAND ----------
lake = Lake.at(**widgets_of(dbutils))
store = lake.store(globals().get("store"))
system.attach(spark, lake)
views.attach(spark, lake)
