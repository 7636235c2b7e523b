"""Work on the logs of a job's tables with history, which only goes on while no run of the job is under way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.jobs.job import Job
from floodmark.sinks.contract import ledger_id
from floodmark.sinks.scd import Scd1
from floodmark.stores.lease import hold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.sinks.scd_prune import Moment
    from floodmark.stores.contract import MarkStore


def prune_events(job: Job, before: Moment, spark: SparkSession, store: MarkStore) -> dict[str, int]:
    """Drop events below a moment from every log of the job, under its lease; returns how many, by sink.

    What is open at the moment becomes a key's first event, and what arrives below it later is refused. Raises
    LeaseHeld while a run is under way, ConfigError if the job keeps no history.
    """
    with histories(job, spark, store) as kept:
        return {sink.name: sink.prune(spark, before) for sink in kept}


def settle_conflicts(job: Job, keep: str, spark: SparkSession, store: MarkStore) -> dict[str, int]:
    """Decide between events that contradict each other (`on_conflict: quarantine`), under the job's lease.

    Those for which the SQL `keep` holds count from now on, the others are set aside with a reason; returns how many,
    by sink. Raises LeaseHeld while a run is under way, ConfigError if there is nothing to decide between.
    """
    with histories(job, spark, store) as kept:
        return {sink.name: sink.settle(spark, keep) for sink in kept}


@contextmanager
def histories(job: Job, spark: SparkSession, store: MarkStore) -> Iterator[list[Scd1]]:
    """The job's tables with history, each up to its log, and nobody else at work on them."""
    kept = [sink for sink in job.sinks if isinstance(sink, Scd1)]
    if not kept:
        raise ConfigError(f"job '{job.name}' has no sink with history.", hint="name a job with a scd1 or scd2 sink")
    with hold(store, job.name):
        open_ones = [s.name for s in kept if s.begun(ledger_id(store.namespace, job.name, s.name), lambda: spark)]
        if open_ones:
            raise ConfigError(
                f"sink '{open_ones[0]}' of job '{job.name}' has events that are not in its table yet.",
                hint="run the job first: it finishes the open batch",
            )
        yield kept
