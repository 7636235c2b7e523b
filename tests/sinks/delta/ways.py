"""The kinds of Delta sinks that more than one way can write, and which way a batch took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.sinks import Delta
from floodmark.sinks.contract import BatchSize
from floodmark.sinks.delta.deleted_keys import NOT_KEPT
from tests.sinks.batches import SMALL, batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LEDGER = "floodmark.prod.orders.delta"
KINDS = {
    "append": Delta("t"),
    "replace": Delta("t", mode="replace"),
    "replace by": Delta("t", mode="replace", by=("id",)),
    "merge": Delta("t", mode="merge", key=("id",), sequence=("v",), delete_when="v = 'D'", keep_deleted=NOT_KEPT),
}


def way_of(sink: Delta, rows: DataFrame, number: int, size: BatchSize = SMALL) -> str | None:
    """How the batch was written."""
    made = batch(number, size=size)
    sink.write(rows, made)
    return made.notes.ways.get("delta")
