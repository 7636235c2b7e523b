"""What commits by `deltalake` share, whoever wrote the rows: the tables they suit, their number, their checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from floodmark.locations import local_path
from floodmark.sinks.contract import POSITION, Batch, without_own
from floodmark.sinks.delta import choice
from floodmark.sinks.delta.choice import AnotherWay
from floodmark.spark.table_files import table_schema

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from floodmark.probes.delta import Commit, DeltaProbe
    from floodmark.sinks.delta import Delta

CHECKPOINT_INTERVAL = "delta.checkpointInterval"
LOG_CLEANUP = "delta.enableExpiredLogCleanup"
CHECKPOINT_EVERY = 10
"""Commits from one checkpoint to the next, where the table does not say: as Spark has it."""


@dataclass(frozen=True)
class NativeWriter(ABC):
    """One batch of one sink whose commit this process makes, and not Spark's JVM.

    Every method may raise AnotherWay, and has committed nothing then.
    """

    sink: Delta
    rows: DataFrame
    batch: Batch

    def write(self) -> Commit | None:
        """As `DeltaTarget.write_once`: write the batch unless it was; what the log says of it, if it still does."""
        self.require_plain_sink()
        target = self.sink.target
        probe = target.probe(self.session)
        if target.has(probe, self.batch):
            return target.commit_of(probe, self.batch)
        return self.write_new(probe)

    @abstractmethod
    def write_new(self, probe: DeltaProbe | None) -> Commit | None:
        """Write the batch, which the table did not have at this look."""

    def session(self) -> Any:  # noqa: ANN401 - SparkSession, as pyspark types it
        return self.rows.sparkSession

    @cached_property
    def columns(self) -> StructType:
        """What the target gets."""
        return without_own(self.rows).schema

    @cached_property
    def session_settings(self) -> Mapping[str, str]:
        """A hundred calls to the JVM: asked once for a batch."""
        return dict(self.session().conf.getAll)

    def require_plain_sink(self) -> None:
        """Nothing that the sink is asked to do needs Spark."""
        sink, location = self.sink, self.sink.target.place.location(self.session)
        if sink.writer == "spark":
            raise AnotherWay("the sink has writer: spark")
        if sink.cluster_by:
            raise AnotherWay("the sink clusters the table")
        if location is None or local_path(location) is None:
            raise AnotherWay("the table is not on a local disk, or its name is not in the catalog yet")

    def require_fitting(self, probe: DeltaProbe | None) -> None:
        """Rows and table allow it, as the table is at this look: asked again under the lock."""
        table = table_schema(probe.schema_json()) if probe else self.columns
        if probe is None:
            choice.require_plain_session(self.session_settings, self.sink.target.properties)
            choice.require_no_features(table)
        elif probe.has_only_fences():
            raise AnotherWay("the table was made by a fence, and has no columns yet")
        else:
            choice.require_plain_table(probe.features(), probe.properties(), appends=self.is_append)
            if self.is_refresh:
                choice.require_same_layout(probe, self.sink.partition_by)
                table = self.columns
                choice.require_no_features(table)
            else:
                choice.require_same_types(self.columns, table)
                choice.require_nullable(table)
        choice.require_plain_columns(table)
        choice.require_types(table, probe.partitions() if probe else self.sink.partition_by, "is partitioned by")
        for columns in (table, self.columns):
            choice.require_types(columns, (*self.sink.key, *self.sink.by), "is matched by")
        choice.require_ordered(self.rows.schema, (*self.sink.sequence, POSITION))

    @property
    def is_refresh(self) -> bool:
        """Whether the rows take the place of the whole table, its columns included."""
        return self.batch.kind == "refresh"

    @property
    def is_append(self) -> bool:
        return self.sink.mode == "append" and not self.is_refresh

    @property
    def ledger(self) -> str:
        return self.batch.ledger(self.sink.name)

    def commit_options(self, *, is_append: bool, **facts: object) -> dict[str, Any]:
        """What every commit of this batch is made with: its number, digest and marks among the facts."""
        from deltalake import CommitProperties, Transaction

        noted = {"userMetadata": self.sink.target.note(self.batch), "isBlindAppend": is_append, **facts}
        transaction = Transaction(self.ledger, self.batch.number)
        return {
            "commit_properties": CommitProperties(custom_metadata=noted, app_transactions=[transaction]),
            **hooks_of_ours(),
        }


def set_properties(probe: DeltaProbe, properties: Mapping[str, str]) -> None:
    """Give a table these properties, on top of what the probe saw last; the caller holds the table's lock.

    Spark's ALTER TABLE builds the whole state of the table first, by two jobs of some hundred milliseconds. Raises
    AnotherWay for a table or a property that it is to be asked for.
    """
    from deltalake.exceptions import DeltaError

    if local_path(probe.where) is None:
        raise AnotherWay("the table is not on a local disk")
    if unknown := choice.unknown_properties(properties):
        raise AnotherWay(f"the property {unknown[0]} may ask for a feature")
    choice.require_plain_table(probe.features(), probe.properties(), appends=True)
    choice.require_plain_columns(table_schema(probe.schema_json()))
    try:
        probe.commit(lambda table: table.alter.set_table_properties(dict(properties), **hooks_of_ours()))
    except DeltaError as error:
        raise AnotherWay(str(error)) from error
    probe.ask(lambda table: tidy_log(table, probe.properties()))


def hooks_of_ours() -> dict[str, Any]:
    """Checkpoints are made where Spark would make them; `deltalake` goes by an interval of its own."""
    from deltalake import PostCommitHookProperties

    return {"post_commithook_properties": PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)}


def tidy_log(table: DeltaTable, properties: Mapping[str, str]) -> None:
    """A checkpoint where Spark would make one; with it, as Spark does, what the log need not keep any longer goes."""
    if table.version() % int(properties.get(CHECKPOINT_INTERVAL, CHECKPOINT_EVERY)):
        return
    table.create_checkpoint()
    if properties.get(LOG_CLEANUP, "true").lower() == "true":
        table.cleanup_metadata()
