"""What is known of the rows of a batch before any of them is read: for `plan`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from floodmark.sinks.contract import Shaped
from floodmark.sinks.restatement import Restated, Restatement
from floodmark.step.batch import prepare
from floodmark.step.checks import compare

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from floodmark.step import Step
    from floodmark.stores.record import Intent


@dataclass(frozen=True)
class PlannedRows:
    """The rows of a batch that is only planned: described, and never read but for the dates that a fact touches."""

    step: Step
    intent: Intent

    @cached_property
    def rows(self) -> DataFrame:
        prepared = prepare(self.step.work, replace(self.intent, spool=None), self.step.session())
        return prepared.judgement.kept_rows()

    def schema_changes(self) -> tuple[str, ...]:
        """What the rows have that a target has not."""
        session, sinks = self.step.session, self.step.work.sinks
        shaped = [(sink.name, sink.schema(session)) for sink in sinks if isinstance(sink, Shaped)]
        drifts = [(name, compare(self.rows.schema, schema)) for name, schema in shaped if schema is not None]
        absent = [f"{name}: the rows lack column {column}" for name, drift in drifts for column in drift.absent]
        return (*(f"{name}: {what}" for name, drift in drifts for what in drift.differences()), *absent)

    def restated(self, expected_rows: int | None) -> tuple[Restatement, ...]:
        """What the batch writes anew in each sink that does not only add; a refresh rebuilds every target anyway."""
        if self.intent.kind == "refresh":
            return ()
        told = (
            s.restatement(lambda: self.rows, expected_rows) for s in self.step.work.sinks if isinstance(s, Restated)
        )
        return tuple(each for each in told if each is not None)
