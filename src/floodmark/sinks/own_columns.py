"""Columns that the step adds for its sinks: they help to choose between rows, and never reach a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OWN = "_fm_"
"""Every name that begins so is ours."""


def written_columns(rows: DataFrame) -> list[str]:
    """The columns that a target gets."""
    return [name for name in rows.columns if not name.startswith(OWN)]


def without_own(rows: DataFrame) -> DataFrame:
    """The rows as a target gets them."""
    return rows.drop(*(name for name in rows.columns if name.startswith(OWN)))
