"""The quarantine: rows that broke a rule, put aside with their reasons, once, under the number of their batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.rules import Tally
from floodmark.rules.marks import Legend, as_json
from floodmark.sinks.contract import Batch, Sink
from floodmark.sinks.own_columns import without_own
from floodmark.step.judging import Judgement
from floodmark.step.work import Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = (
    "id string, job string, number long, batch_time timestamp, reasons array<string>, row string, schema string, "
    "status string, replay string, repaired string, claim string"
)
"""`row` is the row as JSON and `schema` its types; `status` is open, replaying, replayed or discarded.

A replay writes its id, the repaired row and what it has to find again (`claim`) beside the row.
"""


def put_aside(work: Work, judgement: Judgement, tally: Tally, batch: Batch) -> int:
    """Write what broke a rule to the quarantine; nothing is read or written if no row did.

    It comes after the sinks: a batch that no sink has may still be dropped and planned again under another number,
    and its rows would be put aside twice. It comes before the commit: a kill in between repeats it.
    """
    if work.quarantine is None or not (tally.quarantined or empties(work.quarantine, judgement, batch)):
        return 0
    broken = judgement.quarantined() if tally.quarantined else judgement.quarantined().limit(0)
    written = work.quarantine.write(quarantine_rows(broken, judgement.legend, batch), batch)
    return tally.quarantined if written is None else written


def empties(quarantine: Sink, judgement: Judgement, batch: Batch) -> bool:
    """Whether rows of earlier batches have to go: a refresh reads everything anew, and judges them again."""
    is_refresh = batch.kind == "refresh" and bool(judgement.rules)
    return is_refresh and quarantine.holds_rows(lambda: judgement.marked.sparkSession)


def quarantine_rows(broken: DataFrame, legend: Legend, batch: Batch) -> DataFrame:
    """The rows in the form of the quarantine: any row fits, whatever its columns are tomorrow."""
    from pyspark.sql import functions as F

    nothing = F.lit(None).cast("string")
    return broken.select(
        F.expr("uuid()").alias("id"),
        F.lit(batch.job).alias("job"),
        F.lit(batch.number).cast("long").alias("number"),
        F.lit(batch.batch_time).alias("batch_time"),
        legend.reasons().alias("reasons"),
        F.expr(as_json(broken)).alias("row"),
        F.lit(without_own(broken).schema.json()).alias("schema"),
        F.lit("open").alias("status"),
        nothing.alias("replay"),
        nothing.alias("repaired"),
        nothing.alias("claim"),
    )
