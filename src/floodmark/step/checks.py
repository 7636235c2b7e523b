"""What rows must pass before a sink takes them: the job's rules, and the schema of the target.

Rules are judged in the pass that writes where every rule allows that, else over the spool, before any write; drift of
the schema is judged by the job's policy.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from floodmark.errors import ColumnMissing, RuleBroken, SchemaChanged
from floodmark.logs import get_logger
from floodmark.rules import RuleSet, Tally
from floodmark.rules.rule_set import SAMPLE, Legend
from floodmark.sinks.contract import Session, Shaped, Sink
from floodmark.spark.schemas import align, merged_type, new_fields
from floodmark.step.spool import wait_for_observation
from floodmark.step.work import OnSchemaChange

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, Observation
    from pyspark.sql.types import DataType, StructType


log = get_logger(__name__)
SAMPLES = 3
USES = ("key", "sequence", "by")
"""What sinks call the columns that they tell rows apart by."""
WIDER = {
    "tinyint": ("smallint", "int", "bigint", "float", "double"),
    "smallint": ("int", "bigint", "float", "double"),
    "int": ("bigint", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}
"""Which types hold every value of another one exactly; anything else could lose something without a word."""
INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
NO_DIGITS = (-1, -1)


@dataclass(frozen=True)
class Judgement:
    """Rows that carry their verdict, and where the sums over them come from."""

    rules: RuleSet
    marked_rows: DataFrame
    at: datetime
    observation: Observation | None = None
    frozen_tally: Tally | None = None
    """What was found when the batch was frozen: its rows go where they went then, whatever the rules are now."""

    @property
    def legend(self) -> Legend:
        if self.frozen_tally is None:
            return self.rules.legend()
        return Legend(tuple((verdict.name, verdict.action) for verdict in self.frozen_tally.verdicts))

    def kept_rows(self) -> DataFrame:
        return self.legend.kept_rows(self.marked_rows)

    def quarantined_rows(self) -> DataFrame:
        return self.legend.quarantined_rows(self.marked_rows)

    def tally(self, *, was_executed: bool) -> Tally:
        """What the write saw; where nothing was written, or nobody watched, the rows are judged on their own."""
        if not self.rules:
            return Tally()
        sums = wait_for_observation(self.observation) if self.observation and was_executed else None
        return self.rules.tally(sums or self.marked_rows.agg(*self.rules.measures(self.at)).collect()[0].asDict())

    def require_no_failure(self, tally: Tally, job: str) -> None:
        """Raises RuleBroken for the first rule that fails the batch, with a few of the rows that broke it."""
        for broken in tally.broken("fail"):
            samples = self._samples(broken.name) or broken.samples
            raise RuleBroken(
                job,
                rule=broken.name,
                failed=broken.failed,
                checked=broken.checked,
                samples=samples,
                results=[asdict(verdict) for verdict in tally.verdicts],
            )

    def _samples(self, rule: str) -> tuple[str, ...]:
        place = [name for name, _ in self.legend.rules].index(rule)
        such = self.marked_rows.where(self.legend.breaks([place])).select(SAMPLE).limit(SAMPLES)
        return tuple(row[SAMPLE] for row in such.collect())


def judge_on_the_way(rules: RuleSet, rows: DataFrame, at: datetime) -> Judgement:
    """Judge while the rows are written: the sums are taken on the way, directly above the scan."""
    if not rules:
        return Judgement(rules, rows, at)
    from pyspark.sql import Observation

    marked, observation = rules.mark(rows), Observation()
    return Judgement(rules, marked.observe(observation, *rules.measures(at)), at, observation)


def log_rules(tally: Tally, job: str) -> None:
    """One line for every rule: a warning where it was broken. Samples are on the receipt and not in a log."""
    for verdict in tally.verdicts:
        write, event = (log.warning, "rule broken") if verdict.failed else (log.info, "rule held")
        facts = {"action": verdict.action, "failed": verdict.failed, "checked": verdict.checked}
        write(event, job=job, rule=verdict.name, **facts)


def require_columns(rows: DataFrame, sink: Sink, job: str) -> None:
    """Raise ColumnMissing for a column that a sink is told to use and that the rows do not have.

    Spark would say so too, in words of the plan that the sink made of it.
    """
    known = {name.lower() for name in rows.columns}
    for use in USES:
        named = getattr(sink, use, ())
        for name in named if isinstance(named, tuple) else ():
            if name.split(".")[0].strip("`").lower() not in known:
                raise ColumnMissing(job, sink=sink.name, use=use, column=name, columns=rows.columns)


@dataclass(frozen=True)
class Drift:
    """How rows differ from the target: columns it lacks, columns whose type it cannot hold, columns the rows lack."""

    new: tuple[tuple[str, str], ...]
    unfit: tuple[str, ...]
    differing: tuple[str, ...] = ()
    """Columns of another type than the target's, which it can hold or be given."""
    absent: tuple[str, ...] = ()

    def differences(self) -> tuple[str, ...]:
        return (*(f"new column {name} {kind}" for name, kind in self.new), *self.unfit)


def fit(rows: DataFrame, sink: Sink, *, job: str, policy: OnSchemaChange, session: Session) -> DataFrame:
    """The rows as the target can take them. Raises SchemaChanged before any write where the policy says so."""
    target = sink.schema(session) if isinstance(sink, Shaped) else None
    if target is None:
        return rows
    drift = compare(rows.schema, target)
    if drift.unfit or (drift.new and policy == "fail"):
        raise SchemaChanged(job, sink=sink.name, differences=drift.differences())
    log_drift(drift, sink, job, policy)
    known = rows.drop(*(name for name, _ in drift.new)) if policy == "ignore" else rows
    held = {field.name.lower(): field.dataType for field in target.fields}
    changed = [f for f in known.schema.fields if f.name in drift.differing]
    wanted = {f.name: _wanted_type(f.dataType, held[f.name.lower()], policy) for f in changed}
    aligned = {f.name: align(known[f"`{f.name}`"], f.dataType, wanted[f.name]) for f in changed}
    return known.withColumns(aligned) if aligned else known  # none at all is refused by Spark Connect


def _wanted_type(found: DataType, held: DataType, policy: OnSchemaChange) -> DataType:
    """What a column is written as: with its new fields, unless those are to be left out."""
    merged = merged_type(found, held, fits) if policy == "evolve" else None
    return merged if merged is not None else held


def log_drift(drift: Drift, sink: Sink, job: str, policy: OnSchemaChange) -> None:
    """What was done about a difference: a table that changes is news, what stays so from batch to batch is not."""
    new = [f"{name} {kind}" for name, kind in drift.new]
    if new and policy == "evolve":
        log.warning("the target gets new columns", job=job, sink=sink.name, columns=new)
    elif new:
        log.info("new columns are left out", job=job, sink=sink.name, columns=new)
    if drift.absent:
        log.info("the rows lack columns of the target", job=job, sink=sink.name, columns=list(drift.absent))


def compare(rows: StructType, target: StructType) -> Drift:
    """Column names are compared without case, as Spark and Delta do; `_fm_*` columns are ours and never written."""
    known = {field.name.lower(): field.dataType for field in target.fields}
    own = [field for field in rows.fields if not field.name.startswith("_fm_")]
    new = [(field.name, field.dataType.simpleString()) for field in own if field.name.lower() not in known]
    changed = [(f.name, f.dataType, known[f.name.lower()]) for f in own if f.name.lower() in known]
    differing = [(name, found, held) for name, found, held in changed if found.simpleString() != held.simpleString()]
    unfit = tuple(
        f"column {name} is {found.simpleString()}, the target has {held.simpleString()}"
        for name, found, held in differing
        if merged_type(found, held, fits) is None
    )
    new += [each for name, found, held in differing for each in new_fields(found, held, name)]
    names = {field.name.lower() for field in own}
    absent = tuple(field.name for field in target.fields if field.name.lower() not in names)
    return Drift(tuple(new), unfit, tuple(name for name, _, _ in differing), absent)


def fits(found: DataType, held: DataType) -> bool:
    """Whether the target's type holds every value of the rows' type."""
    if found.simpleString() == "void" or held.simpleString() in WIDER.get(found.simpleString(), ()):
        return True
    whole, fraction = digits(held)
    return digits(found) != NO_DIGITS and digits(found)[0] <= whole and digits(found)[1] <= fraction


def digits(kind: DataType) -> tuple[int, int]:
    """How many digits a decimal type holds before and after its point, or an integer type needs."""
    from pyspark.sql.types import DecimalType

    if isinstance(kind, DecimalType):
        return kind.precision - kind.scale, kind.scale
    return INTEGER_DIGITS.get(kind.simpleString(), -1), 0 if kind.simpleString() in INTEGER_DIGITS else -1
