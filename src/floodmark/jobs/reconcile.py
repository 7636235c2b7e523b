"""Reconcile: what the source holds at or below the mark against what a table holds, and the repair of the difference.

A cursor sees no update that does not move it, and no delete. So both sides are compared by key, in Spark; every key
that differs is then read again from both, since rows may have moved meanwhile. A repair freezes what it found and
writes it as a batch of the job, so that a kill is finished by whoever comes next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from floodmark.errors import ConfigError
from floodmark.hwm import HWM, Json, Span
from floodmark.jobs.comparison import (
    COLUMNS,
    WHAT,
    Side,
    differences,
    differing_keys,
    held_rows,
    rows_of_keys,
    table_sink,
)
from floodmark.jobs.dead_letters import require_no_open_batch
from floodmark.jobs.ranges import TABLES, AnyTable, Bounds, TableRange, cursor_columns, mark_in, table_range
from floodmark.locations import quote
from floodmark.logs import get_logger
from floodmark.sinks.contract import POSITION, written_columns
from floodmark.sources.contract import Request
from floodmark.sources.tables.cursor import Cursor
from floodmark.step import Step
from floodmark.step.batch import without_malformed
from floodmark.step.checks import fit, fits
from floodmark.step.engine import Clock, OpenBatch, session_under
from floodmark.step.intents import new_attempt, outside_intent, spool_folder
from floodmark.step.looking import Outlook, require_same_sources
from floodmark.step.spool import RowCounts, Spool
from floodmark.step.transform import RecordTransform, Sql
from floodmark.stores.extras import IntentExtras, OutsideBatch
from floodmark.stores.lease import HeldLease, hold
from floodmark.stores.record import Intent, JobRecord, Receipt

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

    from floodmark.sinks import Delta, Postgres


log = get_logger(__name__)
By = Literal["keys", "hash"]
DIFFERENCES_SHOWN = 10


@dataclass(frozen=True)
class ReconcileRequest:
    """What is to be compared: a range, one sink of the job, by what, and what to do about a difference."""

    bounds: Bounds = field(default_factory=Bounds)
    sink: str | None = None
    by: By = "hash"
    key: Sequence[str] = ()
    ignore: Sequence[str] = ()
    repair: bool = False


@dataclass(frozen=True)
class Difference:
    """One difference: the key, and of a row that differs the columns in which it does."""

    what: str
    key: dict[str, Json]
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReconcileResult:
    """What a comparison found, in keys; `receipt` is that of the repair, if there was one to make."""

    job: str
    sink: str
    bounds: Bounds
    compared: int
    missing: int
    extra: int
    different: int
    samples: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    receipt: Receipt | None = None

    @property
    def agrees(self) -> bool:
        """Whether nothing was found, or everything that was is repaired."""
        return self.receipt is not None or not (self.missing or self.extra or self.different)


def reconcile(plain: Step, request: ReconcileRequest) -> ReconcileResult:
    """Compare, and repair if asked to; a repair holds the job's lease from the first row that is compared."""
    sink = table_sink(plain.work.sinks, request.sink, plain.work.name)
    if request.repair and sink.mode != "merge":
        raise ConfigError(
            f"sink '{sink.name}' has mode {sink.mode}: only a merge can put single rows right.",
            hint=f"`floodmark backfill {plain.work.name}` delivers missing rows again, `run --full-refresh` everything",
        )
    table_source(plain)
    with hold(plain.store, plain.work.name) if request.repair else nullcontext() as lease:
        step = replace(plain, session=session_under(lease, plain.session)) if lease else plain
        return Reconciliation(step, request, sink, lease).run()


@dataclass(frozen=True)
class Reconciliation:
    """One comparison of one sink, under the job's lease if it is to be repaired."""

    step: Step
    request: ReconcileRequest
    sink: Delta | Postgres
    lease: HeldLease | None

    def run(self) -> ReconcileResult:
        record = self.step.read()
        self.require_settled(record)
        sides = Sides.of(self.step, self.sink, record, self.request)
        counts, keys = differing_keys(sides.source_in_range(), sides.sink_in_range())
        compared, suspects = sum(counts.values()), sum(counts.values()) - counts.get("same", 0)
        log.info("compared", job=record.job, sink=self.sink.name, keys=compared, suspects=suspects)
        found = ReconcileResult(record.job, self.sink.name, self.request.bounds, compared, 0, 0, 0, notes=sides.notes())
        if not suspects:
            return found
        with self.frozen_in(record) as spool:
            suspected = Spool(f"{spool.folder}-keys")
            suspected.write(keys)
            self.freeze(sides, suspected, suspects, spool)
            return self.summarize(found, sides, spool, record)

    def require_settled(self, record: JobRecord) -> None:
        require_no_open_batch(self.step)
        source = self.step.work.sources[0]
        require_same_sources(self.step.work, record, {source.name: source.fingerprint(self.step.session)})

    @contextmanager
    def frozen_in(self, record: JobRecord) -> Iterator[Spool]:
        """Where the differences are kept: in the job's spool for a repair, which cleans up behind a kill too."""
        work, attempt = self.step.work, new_attempt()
        own = f"{work.spool_folder}/+reconcile/{work.name}-{attempt}"  # no job can be called so
        spool = Spool(spool_folder(work, record.number + 1, attempt) if self.request.repair else own)
        try:
            yield spool
        finally:
            if not self.request.repair:
                spool.remove()
                Spool(f"{spool.folder}-keys").remove()

    def freeze(self, sides: Sides, suspected: Spool, count: int, spool: Spool) -> None:
        """Read every suspect again, at its source and in the table, and leave out those that nobody can judge."""
        spark = self.step.session()
        keys = suspected.read(spark)
        source, table = (side.only(keys, count) for side in (sides.source_at_mark(), sides.sink_whole()))
        found = differences(source, table, self.sink.sequence)
        for rows in sides.undecided():
            unjudged = rows_of_keys(rows, sides.key, keys, count).select(*sides.key).distinct()
            found = found.join(unjudged, list(sides.key), "left_anti")
        spool.write(found)

    def summarize(self, found: ReconcileResult, sides: Sides, spool: Spool, record: JobRecord) -> ReconcileResult:
        frozen = spool.read(self.step.session())
        counts = {row[WHAT]: row["count"] for row in frozen.groupBy(WHAT).count().collect()}
        samples = [
            difference_of(row, sides.key)
            for what in sorted(counts)
            for row in frozen.where(f"{WHAT} = '{what}'").orderBy(*sides.key).limit(DIFFERENCES_SHOWN).collect()
        ]
        result = replace(found, **counts, samples=tuple(samples))
        if not counts:
            spool.remove()
        if not counts or self.lease is None:
            return result
        return replace(result, receipt=self.write(spool, sum(counts.values()), record, self.lease))

    def write(self, spool: Spool, rows: int, record: JobRecord, lease: HeldLease) -> Receipt:
        """The frozen rows as a batch of the job: intended first, then written, then committed; the marks stay."""
        spool.finish(RowCounts(read=rows))
        step, clock = self.step, Clock()
        ledgers = step.settled_ledgers(record)
        intent = Intent(
            number=max(record.number, ledgers.highest) + 1,
            kind="repair",
            spans={},
            batch_time=datetime.now(timezone.utc),
            attempt=new_attempt(),
            spool=spool.folder,
            fingerprints={},
        )
        extras = IntentExtras(outside=OutsideBatch(sink=self.sink.name))
        intent = outside_intent(intent, "repair", extras, step.work)
        return step.write_batch(OpenBatch(record, intent, Outlook({}, {})), lease, clock)


def difference_of(row: Row, key: Sequence[str]) -> Difference:
    """A difference as people read it."""
    return Difference(row[WHAT], {name: json_value(row[name]) for name in key}, tuple(row[COLUMNS] or ()))


def json_value(value: object) -> Json:
    """A key's value as JSON has it."""
    return value if isinstance(value, (int, str, bool)) or value is None else str(value)


@dataclass(frozen=True)
class Sides:
    """A job's source and one of its tables, as far as they can be compared."""

    step: Step
    sink: Delta | Postgres
    mark: HWM[Any]
    request: ReconcileRequest
    range: TableRange
    key: tuple[str, ...]
    table_rows: DataFrame
    remembered: Mapping[str, Json]

    @classmethod
    def of(cls, step: Step, sink: Delta | Postgres, record: JobRecord, request: ReconcileRequest) -> Sides:
        """Raises ConfigError for a job whose rows cannot be summarize apart, or made again one by one."""
        source = table_source(step)
        require_row_by_row(step, request)
        mark, remembered = mark_in(record, source), record.extras.source(source.name).extras
        wanted = table_range(source, mark, request.bounds, step.session)
        key = tuple(request.key) or sink.key or tuple(getattr(source, "key", ()))
        sides = cls(step, sink, mark, request, wanted, key, held_rows(sink, step.session()), remembered)
        sides.require_columns()
        return sides

    @property
    def cursor(self) -> tuple[str, ...]:
        return cursor_columns(self.step.work.sources[0])

    @cached_property
    def rows_at_mark(self) -> DataFrame:
        """Everything at or below the mark: a key may have moved out of the range."""
        return self.rows_of(self.span_at_mark)

    @cached_property
    def span_at_mark(self) -> Span | None:
        whole = table_range(table_source(self.step), self.mark, Bounds(), self.step.session)
        return whole.piece(None, None, {}).span

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """What both sides have, as the table spells it; the key first."""
        ours = {name.lower(): kind for name, kind in self.rows_at_mark.dtypes}
        left_out = {name.lower() for name in (*self.key, *self.request.ignore)}
        others = [n for n, kind in self.table_rows.dtypes if ours.get(n.lower()) == kind and n.lower() not in left_out]
        return (*self.key, *([] if self.request.by == "keys" else others))

    def notes(self) -> tuple[str, ...]:
        """Columns that nobody looked at."""
        names = {name.lower() for name in (*self.table_rows.columns, *written_columns(self.rows_at_mark))}
        unseen = sorted(names - {name.lower() for name in self.columns})
        return (f"not compared: {', '.join(unseen)}",) if unseen and self.request.by == "hash" else ()

    def source_in_range(self) -> Side:
        """The rows of the range as they would be delivered now."""
        span = self.range.piece(None, None, {}).span
        return self.source_side(self.rows_of(span, self.range.condition) if span else self.rows_at_mark.limit(0))

    def source_at_mark(self) -> Side:
        """All rows that were to be delivered."""
        return self.source_side(self.rows_at_mark)

    def undecided(self) -> list[DataFrame]:
        """Rows whose keys nobody can judge: those above the mark, which come with the next run, and those that a rule
        keeps from the sinks, of which the table may hold an older or a repaired version."""
        source = table_source(self.step)
        trusting = replace(source, cursor=replace(Cursor.of(source.cursor), safety="none"))
        above = trusting.look(self.mark, Request(extras=self.remembered), self.step.session).span
        refused = [self.refused_of(self.span_at_mark)] if self.step.work.rules and self.span_at_mark else []
        return [*refused, *([self.made_of(above)] if above else [])]

    def refused_of(self, span: Span) -> DataFrame:
        """What the rules put aside or drop."""
        rules, legend = self.step.work.rules, self.step.work.rules.legend()
        return rules.mark(self.made_of(span)).where(f"({legend.goes('quarantine')}) or ({legend.goes('drop')})")

    def sink_whole(self) -> Side:
        from pyspark.sql import functions as F

        order: Sequence[str] = self.sink.sequence or (() if self.sink.mode == "merge" else self.cursor)
        return Side(self.table_rows, self.key, struct_of(order, self.table_rows), self.columns, F.lit(False))

    def sink_in_range(self) -> Side:
        """The range as the table's own column of the cursor has it."""
        whole = self.sink_whole()
        if self.request.bounds == Bounds():
            return whole
        return replace(whole, rows=self.table_rows.where(self.range.condition_of_range))

    def source_side(self, rows: DataFrame) -> Side:
        from pyspark.sql import functions as F

        gone = F.coalesce(F.expr(self.sink.delete_when), F.lit(False)) if self.sink.delete_when else F.lit(False)
        position = (POSITION,) if POSITION in rows.columns else ()
        return Side(rows, self.key, struct_of((*self.sink.sequence, *position), rows), self.columns, gone)

    def rows_of(self, span: Span | None, condition: str | None = None) -> DataFrame:
        """Rows of the source as the sink would get them."""
        if span is None:
            return self.table_rows.limit(0)
        work, made = self.step.work, self.made_of(span, condition)
        kept = work.rules.legend().kept_rows(work.rules.mark(made)) if work.rules else made
        fitted = fit(kept, self.sink, job=work.name, policy=work.on_schema_change, session=self.step.session)
        return in_types_of(fitted, self.table_rows)

    def made_of(self, span: Span, condition: str | None = None) -> DataFrame:
        """Rows as the transform makes them; nothing here keeps a filter on keys from the database."""
        work = self.step.work
        reading = work.sources[0].read(self.step.session(), span)
        reading = reading.placed() if reading.placed else reading
        rows = reading.rows.where(condition) if condition else reading.rows
        placed = rows.withColumn(POSITION, reading.position) if reading.position is not None else rows
        frames, now = {work.sources[0].name: without_malformed(reading, placed)}, datetime.now(timezone.utc)
        return work.transform.apply(frames, job=work.name, attempt=new_attempt(), batch_time=now)

    def require_columns(self) -> None:
        """The table must have the key, and the cursor where rows are chosen by it."""
        if not self.key:
            raise ConfigError(
                f"nothing says which rows of sink '{self.sink.name}' and of its source are the same.",
                hint="name the columns: --key id, or `key: [id]` in the project file",
            )
        needs_cursor = self.request.bounds != Bounds() or (self.sink.mode != "merge" and not self.sink.sequence)
        wanted = (*self.key, *(self.cursor if needs_cursor else ()))
        known = {name.lower() for name in self.table_rows.columns}
        missing = [name for name in wanted if name.lower() not in known]
        if missing:
            raise ConfigError(
                f"{self.sink.describe()} has no column {', '.join(missing)}, which the comparison needs.",
                hint="compare without --from and --to, or keep the column in the transform",
            )


def table_source(step: Step) -> AnyTable:
    """The one table that a job reads. Raises ConfigError for any other job."""
    [source, *others] = step.work.sources
    if others or not isinstance(source, TABLES):
        raise ConfigError(
            f"job '{step.work.name}' is not read from one table, so no key can be looked up at its source.",
            hint="reconcile works for postgres, jdbc, sqlite and table sources",
        )
    return source


def require_row_by_row(step: Step, request: ReconcileRequest) -> None:
    """Each row of the target has to follow from one row of the source, the same at every time."""
    transform = step.work.transform
    if isinstance(transform, RecordTransform) or (isinstance(transform, Sql) and not transform.is_plain_select()):
        raise ConfigError(
            f"the transform of job '{step.work.name}' makes rows from several rows, or puts records aside: which rows "
            "the table should hold depends on how batches were cut.",
            hint="compare the tables by a query of your own, or rebuild: floodmark run --full-refresh",
        )
    if isinstance(transform, Sql) and ":batch_time" in transform.text and request.by == "hash" and not request.ignore:
        raise ConfigError(
            f"the transform of job '{step.work.name}' names :batch_time, which is another one now.",
            hint="leave its column out, as in --ignore loaded_at, or compare keys alone: --by keys",
        )


def in_types_of(rows: DataFrame, table: DataFrame) -> DataFrame:
    """The rows in the types in which the table gives its own back, where those hold every value."""
    theirs = {each.name.lower(): each.dataType for each in table.schema.fields}
    known = [(each.name, each.dataType, theirs.get(each.name.lower())) for each in rows.schema.fields]
    wider = {name: to for name, kind, to in known if to is not None and kind != to and fits(kind, to)}
    return rows.withColumns({name: rows[quote(name)].cast(to) for name, to in wider.items()}) if wider else rows


def struct_of(order: Sequence[str], rows: DataFrame) -> Column:
    """What newer rows have more of; never NULL, since the newest of nothing would be lost."""
    from pyspark.sql import functions as F

    known = {name.lower() for name in rows.columns}
    return F.struct(F.lit(0).alias("_fm_first"), *(quote(name) for name in order if name.lower() in known))
