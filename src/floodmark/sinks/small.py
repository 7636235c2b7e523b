"""Small batches: which ones are, and how their rows come to the driver, where a target's own client takes them on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from floodmark.logs import get_logger

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from floodmark.sinks.contract import Batch, BatchSize

log = get_logger(__name__)
SMALL_ROWS = 20_000
SMALL_BYTES = 2 * 1024 * 1024
"""Of the files that a batch reads, where nobody knows their rows."""


def why_not_small(size: BatchSize, rows_before: Callable[[], int | None]) -> str | None:
    """Why the batch is not known to be small; None if it is.

    Where a transform may make more rows than the sources have, `rows_before`, those that the last batch wrote, are the
    measure: to find out by reading that they are too many costs a pass.
    """
    if size.rows is None and size.file_bytes is None:
        return "nobody knows how many rows it has"
    if size.rows is not None and size.rows > SMALL_ROWS:
        return f"{size.rows:,} rows are expected"
    if size.rows is None and (size.file_bytes or 0) > SMALL_BYTES:
        return f"its files have {size.file_bytes:,} bytes"
    if size.is_bound:
        return None
    before = rows_before()
    is_known = before is not None and before <= SMALL_ROWS
    return None if is_known else "the transform may make more rows than it reads, and no small batch came before"


def rows_as_arrow(rows: DataFrame, batch: Batch) -> pa.Table | None:
    """The rows, by one Spark job, which ends when more have come than are small: then None, and so for what PySpark
    cannot make Arrow of, as a struct that is NULL and has fields which never are.

    What was observed on the way is noted not to be the whole batch then.
    """
    from pyarrow import ArrowInvalid

    try:
        arrow = rows.limit(SMALL_ROWS + 1).toArrow()
    except ArrowInvalid as error:
        log.debug("rows do not fit into Arrow", job=batch.job, reason=str(error))
        arrow = None
    if arrow is None or arrow.num_rows > SMALL_ROWS:
        batch.notes.is_partly_observed = True
        return None
    return arrow
