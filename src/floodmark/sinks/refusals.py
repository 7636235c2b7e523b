"""Rows for which a sink has no place: what it demands of every row, and what it finds out only when it has the batch.

Both end in the quarantine of the job, and are counted as refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from floodmark.locations import quote
from floodmark.sinks.contract import OWN, Batch, Session
from floodmark.spark.schemas import EXACT_JSON

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ID, REASON, EARLIER = f"{OWN}id", f"{OWN}reason", f"{OWN}earlier"
"""Of a row that has no place: by what the quarantine knows it, why, and whether an earlier batch had brought it."""


@runtime_checkable
class Demanding(Protocol):
    """A sink that has no place for a row without certain values: the job puts such a row into its quarantine."""

    def required_values(self) -> Mapping[str, str]:
        """By column, what it is to the sink ("key", "sequence"). Asked when a job is put together."""


@runtime_checkable
class Refusing(Protocol):
    """A sink that may find no place for a row only when it holds it against what it has."""

    def may_refuse(self, session: Session) -> bool:
        """Whether a batch can have such rows at all; cheap."""

    def refused_rows(self, spark: SparkSession, batch: Batch) -> DataFrame | None:
        """The rows that have no place since this batch, which the sink has: with ID, REASON and EARLIER beside them.

        The same at every attempt, whatever came since. They go into the job's quarantine before the mark is raised.
        """


def row_id(columns: Sequence[str], *beside: str) -> Column:
    """A text that is the same whenever a row is put aside again; rows that are equal in everything are numbered."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    whole = F.to_json(F.struct(*map(quote, (*columns, *beside))), EXACT_JSON)
    equal = Window.partitionBy(whole).orderBy(F.lit(0))
    return F.md5(F.concat_ws(" ", whole, F.row_number().over(equal).cast("string")))
