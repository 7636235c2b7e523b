"""Places where a run can be told to die, so that anyone can test what a crash leaves behind.

`FLOODMARK_CRASH_AT=<point>` kills this process with SIGKILL the first time it gets there: no cleanup, no goodbye.
Points: after_intent, after_read, during_sink:<n>, after_files, after_events, after_merge, after_sink:<n>,
before_commit, after_commit; n counts from 1. A run that drops an open batch has after_fence, before the drop. A
workflow has after_task:<task>, a rollback after_fence and after_restore.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame


VARIABLE = "FLOODMARK_CRASH_AT"


def armed_point() -> str | None:
    """The point at which this process is to die, if any."""
    return os.environ.get(VARIABLE) or None


def reach(point: str) -> None:
    """Die here if this is the armed point."""
    if armed_point() == point:
        os.kill(os.getpid(), signal.SIGKILL)


def half_way(rows: DataFrame, point: str) -> DataFrame:
    """The same rows; where the point is armed, the process dies when half of a partition's first rows are out."""
    if armed_point() != point:
        return rows
    victim = os.getpid()

    def die_half_way(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, (batch.num_rows + 1) // 2)
            os.kill(victim, signal.SIGKILL)
            yield batch.slice((batch.num_rows + 1) // 2)

    return rows.mapInArrow(die_half_way, rows.schema)
