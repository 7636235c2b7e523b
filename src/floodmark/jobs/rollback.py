"""Putting a job's tables and marks back together to how one of its batches left them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, SinkFailed
from floodmark.failpoints import reach
from floodmark.sinks.contract import OnDelta, ledger_id
from floodmark.sinks.delta_restore import RestorePoint
from floodmark.step import Step
from floodmark.step.looking import read_ledgers
from floodmark.step.run import noted_in
from floodmark.step.transform import first_lines
from floodmark.stores.lease import hold
from floodmark.stores.record import JobRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HISTORY_READ = 10_000


def roll_back(step: Step, to: str) -> JobRecord:
    """Restore every table of the job, then its marks; `to` is a batch number, or the id of the run that wrote it.

    The sinks are fenced first: whatever is killed here, the next run stops at a sink that knows more than the store
    (exit 5), and the same rollback again ends it.
    """
    with hold(step.store, step.work.name) as lease:
        record, session = step.read(), noted_in(lease, step.session)
        goal = goal_of(step, record, to)
        points = [*restore_points(step, goal.number)]
        highest = read_ledgers(step.work, step.store.namespace, session).highest
        number, spark = max(record.number, highest) + 1, session()
        for sink in step.work.sinks:
            sink.fence(ledger_id(step.store.namespace, step.work.name, sink.name), number, session)
        reach("after_fence")
        for point in points:
            _restore(point, step, spark, number)
        reach("after_restore")
        now = datetime.now(timezone.utc)
        decided = replace(goal, number=number, intent=None, origin="rollback", modified_time=now)
        step.store.commit(decided, expected=record.number, lease=lease.lease)
        return decided


def goal_of(step: Step, record: JobRecord, to: str) -> JobRecord:
    """The record to go back to. Raises ConfigError if there is none, or a batch is open."""
    job = step.work.name
    if record.intent is not None:
        raise ConfigError(f"batch {record.intent.number} of job '{job}' is open.", hint="floodmark run finishes it")
    runs = {receipt.run: receipt.number for receipt in step.store.runs(job, HISTORY_READ)}
    wanted = int(to) if to.isdigit() else runs.get(to)
    known = {each.number: each for each in step.store.history(job, HISTORY_READ)}
    if wanted is None or wanted not in known:
        kept = ", ".join(str(number) for number in sorted(known)[-10:]) or "none"
        raise ConfigError(
            f"job '{job}' has no batch or run '{to}' to go back to (kept: {kept}).",
            hint="`floodmark runs --json` shows the number of each run",
        )
    return known[wanted]


def restore_points(step: Step, number: int) -> list[RestorePoint]:
    """Every table of every sink at the batch; all of them are found before the first is touched."""
    elsewhere = [sink.name for sink in step.work.sinks if not isinstance(sink, OnDelta)]
    if elsewhere:
        raise ConfigError(
            f"sink '{elsewhere[0]}' of job '{step.work.name}' cannot be put back: what it wrote is out.",
            hint="only jobs whose sinks are all Delta tables can be rolled back; `floodmark marks set` moves the mark",
        )
    spark, namespace = step.session(), step.store.namespace
    return [
        RestorePoint.after(table, ledger_id(namespace, step.work.name, sink.name), number, spark)
        for sink in step.work.sinks
        if isinstance(sink, OnDelta)
        for table in sink.tables()
    ]


def _restore(point: RestorePoint, step: Step, spark: SparkSession, number: int) -> None:
    try:
        point.restore(spark, number)
    except Exception as error:
        raise SinkFailed(step.work.name, sink=point.table.name, reason=first_lines(error)) from error
