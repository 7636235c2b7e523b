"""Rows that a Delta table has already, left out before an append: a source may give some of them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def unknown(rows: DataFrame, location: str, by: tuple[str, ...]) -> DataFrame:
    """The rows that the table has not, by these columns; all of them if there are none to tell by."""
    if not by:
        return rows
    missing = [name for name in by if name not in rows.columns]
    if missing:
        raise ConfigError(
            f"rows may come again (safety: lag) and are known by {', '.join(missing)}, which the transform left out.",
            hint=f"let the transform keep {', '.join(by)}, or use mode: merge",
        )
    known = rows.sparkSession.read.format("delta").load(location).select(*by)
    return rows.join(known, list(by), "left_anti")
