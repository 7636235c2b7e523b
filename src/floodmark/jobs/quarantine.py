"""The quarantine of a job as people use it: what is in it, and what is thrown away; replaying has its own module."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.probes.delta import DeltaProbe
from floodmark.spark.delta_tables import quoted
from floodmark.stores.lease import hold

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from floodmark.jobs.job import Job
    from floodmark.sinks.contract import Session
    from floodmark.stores.contract import MarkStore

ID = re.compile(r"[0-9a-f][0-9a-f-]{3,35}")


@dataclass(frozen=True)
class Selection:
    """Which rows of a quarantine are meant: all of these have to hold; nothing given is every row."""

    ids: Sequence[str] = ()
    rule: str | None = None
    number: int | None = None

    def __post_init__(self) -> None:
        for each in self.ids:
            if not ID.fullmatch(each):
                raise ConfigError(f"'{each}' is no id of a row.", hint="`floodmark quarantine show JOB` lists them")

    def sql(self) -> str:
        """The selection as a condition; an id may be given by its first letters."""
        conditions = ["true"]
        if self.ids:
            conditions.append(f"({' or '.join(f'startswith(id, {literal(each)})' for each in self.ids)})")
        if self.rule is not None:
            conditions.append(f"array_contains(reasons, {literal(self.rule)})")
        if self.number is not None:
            conditions.append(f"number = {self.number}")
        return " and ".join(conditions)


@dataclass(frozen=True)
class Heap:
    """Rows of one batch that broke the same rules and have the same status."""

    job: str
    number: int
    reasons: tuple[str, ...]
    status: str
    rows: int


@dataclass(frozen=True)
class QuarantinedRow:
    """One row, with the reasons for which it was put aside."""

    id: str
    number: int
    batch_time: datetime
    reasons: tuple[str, ...]
    row: str
    status: str


@dataclass(frozen=True)
class Quarantine:
    """The rows of one job that broke a rule."""

    job: str
    path: str
    session: Session

    @classmethod
    def of(cls, job: Job, session: Session, store: MarkStore) -> Quarantine:
        return cls(job.name, str(job.quarantine_sink(store).path), session)

    def heaps(self) -> list[Heap]:
        """What is in it, by batch, reasons and status; newest batch first."""
        table = self.table()
        if table is None:
            return []
        found = table.groupBy("number", "reasons", "status").count().orderBy("number", "reasons", "status").collect()
        heaps = [Heap(self.job, row["number"], tuple(row["reasons"]), row["status"], row["count"]) for row in found]
        return sorted(heaps, key=lambda heap: -heap.number)

    def rows(self, selection: Selection, *, limit: int) -> list[QuarantinedRow]:
        """Some of its rows that are still open, oldest batch first."""
        table = self.table()
        if table is None:
            return []
        found = table.where(f"status = 'open' and {selection.sql()}").orderBy("number", "id").limit(limit)
        return [as_row(each) for each in found.collect()]

    def count(self, selection: Selection) -> int:
        """How many open rows are meant."""
        table = self.table()
        return 0 if table is None else table.where(f"status = 'open' and {selection.sql()}").count()

    def discard(self, selection: Selection, store: MarkStore) -> int:
        """Give open rows up; they stay in the table as discarded. Raises LeaseHeld while a run works on the job."""
        with hold(store, self.job):
            return self.update("status = 'discarded'", f"status = 'open' and {selection.sql()}")

    def table(self) -> DataFrame | None:
        """The table, or None if no row was ever put aside; Spark is not asked for then."""
        if not DeltaProbe(self.path).refresh():
            return None
        return self.spark().read.format("delta").load(self.path)

    def update(self, change: str, condition: str) -> int:
        """Change rows in one commit; how many they were."""
        if not DeltaProbe(self.path).refresh():
            return 0
        return int(self.spark().sql(f"UPDATE {self.sql} SET {change} WHERE {condition}").collect()[0][0])

    @property
    def sql(self) -> str:
        return f"delta.{quoted(self.path)}"

    def spark(self) -> SparkSession:
        return self.session()


def as_row(found: Row) -> QuarantinedRow:
    """A row of the table as a value."""
    reasons = tuple(found["reasons"])
    return QuarantinedRow(found["id"], found["number"], found["batch_time"], reasons, found["row"], found["status"])


def literal(text: str) -> str:
    """A text as SQL takes it, whatever is in it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
