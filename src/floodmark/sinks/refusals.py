"""Refusing a row from inside a Spark plan, so that a bad batch is found in the pass that writes it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

BEGIN, END = "[floodmark sink]", "[/floodmark sink]"
FOUND = re.compile(rf"{re.escape(BEGIN)} (.*?) {re.escape(END)}", re.DOTALL)


def refuse(reason: str | Column) -> Column:
    """An expression that stops the job when it is evaluated."""
    from pyspark.sql import functions as F

    text = F.lit(reason) if isinstance(reason, str) else reason
    return F.raise_error(F.concat(F.lit(f"{BEGIN} "), text, F.lit(f" {END}")))


def refusal_in(error: Exception) -> str | None:
    """The reason, if the job was stopped by one of ours."""
    found = FOUND.search(str(error))
    return found.group(1) if found else None
