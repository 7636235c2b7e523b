"""The dead letters of a batch: written once, under its number, after the sinks and before the mark is raised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from floodmark.sinks.contract import Batch, Sink
from floodmark.step.letters import Letters, fresh, given_up
from floodmark.step.saved_records import SavedRecords

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.step.batch import Prepared
    from floodmark.step.spool import Counted
    from floodmark.step.work import Work


def bury_dead(work: Work, prepared: Prepared, counted: Counted, batch: Batch) -> int:
    """Write what could not be parsed, or failed; how many records that were. The source is read again only for that."""
    if work.dead_letters is None:
        return 0
    source = work.sources[0]
    if isinstance(source, SavedRecords):
        return settle(source, prepared, work.dead_letters, batch)
    parts = list(new_letters(work, prepared, counted, batch))
    if batch.kind == "refresh":
        return start_anew(work, work.dead_letters, parts, prepared.rows.sparkSession, batch)
    return work.dead_letters.write(together(parts), batch) or 0 if parts else 0


def new_letters(work: Work, prepared: Prepared, counted: Counted, batch: Batch) -> Iterator[DataFrame]:
    """What the sources could not parse, and what the transform failed on."""
    for name, reading in prepared.readings.items():
        if reading.dead and counted.dead:
            yield fresh(reading.dead(), name, "source", batch)
    if prepared.failed is not None:
        yield fresh(prepared.failed, work.sources[0].name, "transform", batch)


def settle(source: SavedRecords, prepared: Prepared, sink: Sink, batch: Batch) -> int:
    """What became of the letters of a replay; how many are still open."""
    rows = source.settled(prepared.rows.sparkSession, prepared.failed, batch)
    sink.write(rows, batch)
    return rows.where("status = 'open'").count()


def start_anew(work: Work, sink: Sink, parts: list[DataFrame], spark: SparkSession, batch: Batch) -> int:
    """A refresh reads every record again: earlier letters are given up, so that none is delivered a second time.

    The table may hold letters of other jobs, so it is not overwritten.
    """
    earlier = Letters.of(work, batch.number).opened(spark)
    found = together(parts).count() if parts else 0
    gone = [given_up(earlier, batch.number - 1)] if earlier is not None else []
    if parts or gone:
        sink.write(together([*parts, *gone]), replace(batch, kind="batch"))
    return found


def together(parts: list[DataFrame]) -> DataFrame:
    """All of them as one frame."""
    return reduce(lambda one, other: one.unionByName(other), parts)
