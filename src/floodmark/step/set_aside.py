"""The table of rows that a job put aside, dead letters and quarantined rows alike: their shape, and what is open.

A table has a row for each record that was put aside, and one for everything done about it since, each under the number
of its batch. Rows are only ever appended, so what a record was before a batch can be read at any time after it, and a
batch that is written again after a kill finds the same records. `probes.set_aside` reads the same without Spark.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Literal

from floodmark.errors import ConfigError
from floodmark.probes.set_aside import Kind
from floodmark.rules.rule_set import JSON_OPTIONS, Legend, as_json
from floodmark.sinks import Delta
from floodmark.sinks.contract import Batch, without_own
from floodmark.step.work import Work

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


MetBy = Literal["source", "transform", "rules"]
"""Whether `record` is what came in, not parsed yet, a row on its way, or one that was ready; `shape` is its schema.

A letter without a record can only be read by a person.
"""
COLUMNS = (
    "job", "source", "number", "batch_time", "file", "line", "text", "reason",
    "id", "status", "attempts", "met_by", "record", "shape", "kind", "reasons",
)  # fmt: skip
"""In the order that tables of dead letters always had; what came later stands last."""
FIRST_NUMBER = "_fm_first_number"
"""The batch that put a row aside, beside its latest state."""


@dataclass(frozen=True)
class Letters:
    """What one job has put aside in a table, as it was before the batch of this number."""

    job: str
    sink: Delta
    before: int
    kind: Kind = "dead_letter"

    @classmethod
    def of(cls, work: Work, before: int, kind: Kind = "dead_letter") -> Letters:
        """Raises ConfigError for a job that puts nothing aside."""
        sink = work.quarantine if kind == "quarantine" else work.dead_letters
        if not isinstance(sink, Delta):
            what, option = ("quarantine", kind) if kind == "quarantine" else ("dead letters", "dead_letters: {path: …}")
            raise ConfigError(f"job '{work.name}' has no {what}.", hint=f"give it `{option}`")
        return cls(work.name, sink, before, kind)

    def open_letters(self, spark: SparkSession) -> DataFrame | None:
        """Those that nobody has dealt with; None if there is no table, or one that knows no state of a letter yet."""
        from pyspark.sql import functions as F

        mine = self._all_states(spark)
        if mine is None:
            return None
        states = mine.groupBy("id").agg(_latest(mine).alias("letter"), F.min("number").alias(FIRST_NUMBER))
        return states.select("letter.*", FIRST_NUMBER).where("status = 'open'")

    def put_back_rows(self, spark: SparkSession, goal: int, batch: Batch) -> DataFrame | None:
        """What has to be added to a table so that it tells again what it told after batch `goal`.

        What was put aside since is discarded, for its rows are read again; what was done since about earlier rows is
        undone, for the sinks no longer have them. None if there is no table.
        """
        from pyspark.sql import functions as F

        mine = self._all_states(spark)
        if mine is None:
            return None
        now, then = _latest(mine), _latest(mine, F.col("number") <= goal)
        states = mine.groupBy("id").agg(now.alias("now"), then.alias("then"))
        reopened = states.where("then.status = 'open' and now.status <> 'open'").select("then.*")
        given_up = states.where("now.status = 'open' and coalesce(then.status, '') <> 'open'").select("now.*")
        return _in_shape(reopened, batch).unionByName(discarded_rows(given_up, batch))

    def _all_states(self, spark: SparkSession) -> DataFrame | None:
        """Everything the table tells about the rows of this job and kind, before the batch; both may share a table."""
        from pyspark.sql import functions as F

        table = self.sink.read(lambda: spark)
        if table is None or "id" not in table.columns:
            return None
        rows = in_one_shape(table, self.kind)
        own = (F.col("job") == self.job) & (F.col("kind") == self.kind)
        return rows.where(own & (F.col("number") < self.before) & F.col("id").isNotNull())

    def replayable_letters(self, spark: SparkSession, ids: Sequence[str] = (), where: str = "true") -> DataFrame | None:
        """Open letters that hold their record: those of these ids, or all; `where` is SQL over them."""
        from pyspark.sql import functions as F

        letters = self.open_letters(spark)
        if letters is None:
            return None
        whole = letters.where("record is not null").where(where)
        return whole.where(F.col("id").isin(list(ids))) if ids else whole


def _latest(states: DataFrame, condition: Column | None = None) -> Column:
    """The last that is known of a row; under one number, what was done about it comes second."""
    from pyspark.sql import functions as F

    row, last = F.struct(*states.columns), F.struct("number", F.col("status") != "open")
    return F.max_by(row, last if condition is None else F.when(condition, last))


def in_one_shape(table: DataFrame, kind: Kind) -> DataFrame:
    """The rows of a table under today's names, whichever versions wrote them; a quarantine had names of its own."""
    from pyspark.sql import functions as F

    nothing = F.lit(None).cast("string")

    def column(name: str, earlier: str | None = None, default: Column = nothing) -> Column:
        there = [F.col(each) for each in (name, earlier) if each in table.columns]
        return (F.coalesce(*there, default) if default is not nothing or not there else F.coalesce(*there)).alias(name)

    one = F.array("reason") if "reason" in table.columns else F.array().cast("array<string>")
    joined = F.concat_ws(", ", "reasons") if "reasons" in table.columns else nothing
    return table.select(
        "id",
        column("kind", default=F.lit(kind)),
        "job",
        column("source"),
        "number",
        "batch_time",
        column("file"),
        column("line") if "line" in table.columns else F.lit(None).cast("long").alias("line"),
        column("text"),
        column("reason", default=joined),
        column("reasons", default=one),
        column("status", default=F.lit("open")),
        column("attempts", default=F.lit(1)),
        column("met_by", default=F.lit("rules")),
        column("record", "row"),
        column("shape", "schema"),
    )


def quarantine_rows(broken: DataFrame, legend: Legend, batch: Batch) -> DataFrame:
    """Rows that broke rules, in the shape of the table: any row fits, whatever its columns are tomorrow."""
    from pyspark.sql import functions as F

    nothing = F.lit(None).cast("string")
    return _in_shape(
        broken,
        batch,
        id=F.expr("uuid()"),
        kind=F.lit("quarantine"),
        job=F.lit(batch.job),
        source=nothing,
        file=nothing,
        line=F.lit(None).cast("long"),
        text=nothing,
        reason=F.concat_ws(", ", legend.reasons()),
        reasons=legend.reasons(),
        **_new_state("rules"),
        record=F.expr(as_json(broken)),
        shape=F.lit(without_own(broken).schema.json()),
    )


def saved_letters(frame: DataFrame, source: str) -> DataFrame:
    """What could not be parsed, as it can be kept: the record as text, whatever its columns are, beside its source."""
    from pyspark.sql import functions as F

    met = [F.col(name) for name in ("file", "line", "text", "reason")]
    return frame.select(F.lit(source).alias("source"), *met, *(c.alias(n) for n, c in _record_columns(frame).items()))


def letter_rows(frame: DataFrame, source: str | None, met_by: MetBy, batch: Batch) -> DataFrame:
    """New letters: what was met (file, line, text, reason, and the record where it can be run again), and by which
    batch of which job; the frame has their source, if none is named.

    A place that has a line is met by one record only, so a letter of it has the same id when it is put aside again.
    """
    from pyspark.sql import functions as F

    origin = F.lit(source) if source is not None else F.col("source")
    where = F.concat_ws(":", origin, "file", "line")
    has_place = F.col("line").isNotNull() & F.col("file").isNotNull()
    return _in_shape(
        frame,
        batch,
        id=F.when(has_place, where).otherwise(F.expr("uuid()")),
        kind=F.lit("dead_letter"),
        job=F.lit(batch.job),
        source=origin,
        reasons=F.array("reason"),
        **_new_state(met_by),
        **_record_columns(frame),
    )


def replayed_rows(letters: DataFrame, failures: DataFrame | None, batch: Batch) -> DataFrame:
    """What a replay made of these letters: done with, or open as before with one attempt more and the new reason.

    `failures` are (letter, why). A quarantined row keeps the names of the rules that it broke when it came.
    """
    from pyspark.sql import functions as F

    why = letters.withColumn("why", F.lit(None).cast("string"))
    if failures is not None:
        why = letters.join(failures, letters["id"] == failures["letter"], "left").drop("letter")
    failed = F.col("why").isNotNull()
    return _in_shape(
        why,
        batch,
        reason=F.coalesce("why", "reason"),
        reasons=F.when(failed & (F.col("kind") == "dead_letter"), F.array("why")).otherwise(F.col("reasons")),
        status=F.when(failed, "open").otherwise("replayed"),
        attempts=F.col("attempts") + 1,
        record=F.when(failed, F.col("record")),
    )


def discarded_rows(letters: DataFrame, batch: Batch) -> DataFrame:
    """These letters as discarded by the batch."""
    from pyspark.sql import functions as F

    return _in_shape(letters, batch, status=F.lit("discarded"), record=F.lit(None).cast("string"))


def _in_shape(rows: DataFrame, batch: Batch, **columns: Column) -> DataFrame:
    """The rows as the table has them, under the number of a batch; a column that is not given is the rows' own."""
    from pyspark.sql import functions as F

    given = {"number": F.lit(batch.number).cast("long"), "batch_time": F.lit(batch.batch_time), **columns}
    return rows.select(*(given.get(name, F.col(name)).alias(name) for name in COLUMNS))


def _new_state(met_by: MetBy) -> dict[str, Column]:
    from pyspark.sql import functions as F

    return {"status": F.lit("open"), "attempts": F.lit(1), "met_by": F.lit(met_by)}


def _record_columns(frame: DataFrame) -> dict[str, Column]:
    """The record and its schema, whether the frame has it as a struct, as text, or not at all."""
    from pyspark.sql import functions as F

    if "shape" in frame.columns:
        return {}
    if "record" not in frame.columns:
        return dict.fromkeys(("record", "shape"), F.lit(None).cast("string"))
    shape = frame.select("record.*").schema.json()
    return {"record": json_text(F.col("record")), "shape": F.lit(shape)}


def json_text(record: Column) -> Column:
    """A struct as JSON, with every digit of its times; bytes become base64."""
    from pyspark.sql import functions as F

    return F.to_json(record, JSON_OPTIONS)


def parse_rows(rows: DataFrame, column: str, schema: str, *, beside: str) -> DataFrame:
    """The JSON of a column as columns, after the one that is named; a text that somebody edited wrongly stops it."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    shape = StructType.fromJson(json.loads(schema))
    row = F.from_json(F.col(column), shape, {**JSON_OPTIONS, "mode": "FAILFAST"})
    return rows.select(beside, row.alias("row")).select(beside, "row.*")


def union_all(parts: list[DataFrame], *, fills_columns: bool = False) -> DataFrame:
    """All of them as one frame; columns that some of them lack are empty there, or refused."""
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=fills_columns), parts)
