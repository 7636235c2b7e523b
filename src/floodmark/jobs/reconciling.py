"""Reconcile: what the source holds at or below the mark against what a table holds, and the repair of the difference.

A cursor sees no update that does not move it, and no delete. So both sides are compared by key, in Spark; every key
that differs is then read again from both, since rows may have moved meanwhile. A repair freezes what it found and
writes it as a batch of the job, so that a kill is finished by whoever comes next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.failpoints import reach
from floodmark.hwm import Json
from floodmark.jobs.comparing import COLUMNS, WHAT, differences, differing_keys, matching
from floodmark.jobs.ranges import Bounds
from floodmark.jobs.replaying import require_no_open_batch
from floodmark.jobs.sides import Asked, Sides, table_source
from floodmark.jobs.targets import table_sink
from floodmark.logs import get_logger
from floodmark.step import Step
from floodmark.step.looking import Outlook, require_same_sources
from floodmark.step.outside import OPTIONS, Outside, work_of
from floodmark.step.recovery import fence_laggards, new_attempt, spool_folder
from floodmark.step.run import noted_in
from floodmark.step.spool import Counted, Spool
from floodmark.step.summary import Begun, Clock
from floodmark.stores.lease import HeldLease, hold
from floodmark.stores.record import Intent, JobRecord, Receipt

if TYPE_CHECKING:
    from pyspark.sql import Row

    from floodmark.sinks import Delta, Postgres

log = get_logger(__name__)
SAMPLES = 10


@dataclass(frozen=True)
class Sample:
    """One difference: the key, and of a row that differs the columns in which it does."""

    what: str
    key: dict[str, Json]
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reconciled:
    """What a comparison found, in keys; `receipt` is that of the repair, if there was one to make."""

    job: str
    sink: str
    bounds: Bounds
    compared: int
    missing: int
    extra: int
    different: int
    samples: tuple[Sample, ...] = ()
    notes: tuple[str, ...] = ()
    receipt: Receipt | None = None

    @property
    def agrees(self) -> bool:
        """Whether nothing was found, or everything that was is repaired."""
        return self.receipt is not None or not (self.missing or self.extra or self.different)


def reconcile(plain: Step, asked: Asked) -> Reconciled:
    """Compare, and repair if asked to; a repair holds the job's lease from the first row that is compared."""
    sink = table_sink(plain.work.sinks, asked.sink, plain.work.name)
    if asked.repair and sink.mode != "merge":
        raise ConfigError(
            f"sink '{sink.name}' has mode {sink.mode}: only a merge can put single rows right.",
            hint=f"`floodmark backfill {plain.work.name}` delivers missing rows again, `run --full-refresh` everything",
        )
    table_source(plain)
    with hold(plain.store, plain.work.name) if asked.repair else nullcontext() as lease:
        step = replace(plain, session=noted_in(lease, plain.session)) if lease else plain
        return Reconciliation(step, asked, sink, lease).run()


@dataclass(frozen=True)
class Reconciliation:
    """One comparison of one sink, under the job's lease if it is to be repaired."""

    step: Step
    asked: Asked
    sink: Delta | Postgres
    lease: HeldLease | None

    def run(self) -> Reconciled:
        record = self.step.read()
        self.require_settled(record)
        sides = Sides.of(self.step, self.sink, record, self.asked)
        counts, keys = differing_keys(sides.source_in_range(), sides.sink_in_range())
        compared, suspects = sum(counts.values()), sum(counts.values()) - counts.get("same", 0)
        log.info("compared", job=record.job, sink=self.sink.name, keys=compared, suspects=suspects)
        found = Reconciled(record.job, self.sink.name, self.asked.bounds, compared, 0, 0, 0, notes=sides.notes())
        if not suspects:
            return found
        with self.frozen_in(record) as spool:
            suspected = Spool(f"{spool.folder}-keys")
            suspected.write(keys)
            self.freeze(sides, suspected, suspects, spool)
            return self.told(found, sides, spool, record)

    def require_settled(self, record: JobRecord) -> None:
        require_no_open_batch(self.step)
        source = self.step.work.sources[0]
        require_same_sources(self.step.work, record, {source.name: source.fingerprint(self.step.session)})

    @contextmanager
    def frozen_in(self, record: JobRecord) -> Iterator[Spool]:
        """Where the differences are kept: in the job's spool for a repair, which cleans up behind a kill too."""
        work, attempt = self.step.work, new_attempt()
        own = f"{work.spool_folder}/+reconcile/{work.name}-{attempt}"  # no job can be called so
        spool = Spool(spool_folder(work, record.number + 1, attempt) if self.asked.repair else own)
        try:
            yield spool
        finally:
            if not self.asked.repair:
                spool.remove()
                Spool(f"{spool.folder}-keys").remove()

    def freeze(self, sides: Sides, suspected: Spool, count: int, spool: Spool) -> None:
        """Read every suspect again, at its source and in the table, and leave out those that nobody can judge."""
        spark = self.step.session()
        keys = suspected.read(spark)
        found = differences(sides.source_at_mark().only(keys, count), sides.sink_whole().only(keys, count))
        for rows in sides.undecided():
            unjudged = matching(rows, sides.key, keys, count).select(*sides.key).distinct()
            found = found.join(unjudged, list(sides.key), "left_anti")
        spool.write(found)

    def told(self, found: Reconciled, sides: Sides, spool: Spool, record: JobRecord) -> Reconciled:
        frozen = spool.read(self.step.session())
        counts = {row[WHAT]: row["count"] for row in frozen.groupBy(WHAT).count().collect()}
        samples = [
            sample_of(row, sides.key)
            for what in sorted(counts)
            for row in frozen.where(f"{WHAT} = '{what}'").orderBy(*sides.key).limit(SAMPLES).collect()
        ]
        told = replace(found, **counts, samples=tuple(samples))
        if not counts:
            spool.remove()
        if not counts or self.lease is None:
            return told
        return replace(told, receipt=self.write(spool, sum(counts.values()), record, self.lease))

    def write(self, spool: Spool, rows: int, record: JobRecord, lease: HeldLease) -> Receipt:
        """The frozen rows as a batch of the job: intended first, then written, then committed; the marks stay."""
        spool.finish(Counted(read=rows))
        step, clock = self.step, Clock()
        ledgers = step.ledgers(record)
        fence_laggards(step.work, step.store.namespace, record, ledgers, step.session)
        intent = Intent(
            number=max(record.number, ledgers.highest) + 1,
            kind="repair",
            spans={},
            batch_time=datetime.now(timezone.utc),
            attempt=new_attempt(),
            spool=spool.folder,
            fingerprints={},
            extras={OPTIONS: Outside(sink=self.sink.name).serialize()},
        )
        work = work_of(intent, step.work)
        intent = replace(intent, fingerprints=work.fingerprints())
        step.store.intend(replace(record, intent=intent), expected=record.number, lease=lease.lease)
        reach("after_intent")
        return replace(step, work=work).carry_out(Begun(record, intent, Outlook({}, {})), lease, clock)


def sample_of(row: Row, key: Sequence[str]) -> Sample:
    """A difference as people read it."""
    return Sample(row[WHAT], {name: shown(row[name]) for name in key}, tuple(row[COLUMNS] or ()))


def shown(value: object) -> Json:
    """A key's value as JSON has it."""
    return value if isinstance(value, (int, str, bool)) or value is None else str(value)
