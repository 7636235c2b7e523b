"""The quarantine of a job as people use it: what is in it, what is thrown away, and what is written after all.

Rows of a replay are claimed and frozen first, then written to every sink once, under a ledger of their own. A replay
that was killed is finished by the next one: the claim in the table says what it had taken.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import reduce
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError, FloodmarkError, SinkFailed
from floodmark.failpoints import reach
from floodmark.locations import quote
from floodmark.logs import get_logger
from floodmark.probes.delta import DeltaProbe
from floodmark.probes.set_aside import SetAsideRow, rows_set_aside
from floodmark.rules.rule_set import as_json
from floodmark.sinks import Files
from floodmark.sinks.contract import Batch, Sink
from floodmark.step import RunRequest
from floodmark.step.checks import fit
from floodmark.step.engine import session_under
from floodmark.step.intents import frozen_options
from floodmark.step.refused import parse_rows
from floodmark.step.transform import first_lines
from floodmark.stores.lease import HeldLease, hold

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.jobs.job import Job
    from floodmark.sinks.contract import Session
    from floodmark.step import Step
    from floodmark.stores.contract import MarkStore


log = get_logger(__name__)
ID = re.compile(r"[0-9a-f][0-9a-f-]{3,35}")
ROW_ID = "_fm_id"


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

    def means(self, row: SetAsideRow) -> bool:
        """Whether the row is one of these; as `sql`, for rows that are read without Spark."""
        has_id = not self.ids or any(str(row.id).startswith(each) for each in self.ids)
        return has_id and self.rule in (None, *row.reasons) and self.number in (None, row.number)

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
class QuarantineGroup:
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

    def groups(self) -> list[QuarantineGroup]:
        """What is in it, by batch, broken rules and status; newest batch first. Like all that looks, without a JVM."""
        counts = Counter((-row.number, row.reasons, row.status) for row in self._rows())
        return [
            QuarantineGroup(self.job, -below, reasons, status, rows)
            for (below, reasons, status), rows in sorted(counts.items())
        ]

    def rows(self, selection: Selection, *, limit: int) -> list[QuarantinedRow]:
        """Some of its rows that are still open, oldest batch first."""
        chosen = sorted(self._open_rows(selection), key=lambda row: (row.number, row.id))
        return [as_row(row) for row in chosen[:limit]]

    def count(self, selection: Selection) -> int:
        """How many open rows are meant."""
        return len(self._open_rows(selection))

    def _open_rows(self, selection: Selection) -> list[SetAsideRow]:
        return [row for row in self._rows() if row.status == "open" and selection.means(row)]

    def _rows(self) -> list[SetAsideRow]:
        return rows_set_aside(self.path, self.job)

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
        return f"delta.{quote(self.path)}"

    def spark(self) -> SparkSession:
        return self.session()


def as_row(row: SetAsideRow) -> QuarantinedRow:
    """For people, with the time of this place."""
    time = row.batch_time.astimezone().replace(tzinfo=None)
    return QuarantinedRow(str(row.id), row.number, time, row.reasons, str(row.record), row.status)


@dataclass(frozen=True)
class ReplayResult:
    """What a replay did: rows that were asked for, those that reached the sinks, and those that still break a rule."""

    job: str
    replay: str
    rows_selected: int
    rows_written: Mapping[str, int]
    rows_still_broken: int
    finished: tuple[str, ...] = ()
    """Earlier replays that had been killed, and are whole now."""


def replay(
    job: Job, selection: Selection, changes: Mapping[str, str], session: Session, store: MarkStore
) -> ReplayResult:
    """Write open rows to the job's sinks, each once; `changes` are columns and the expressions they become first.

    Rows that break a rule even so stay where they are. Raises LeaseHeld while a run works on the job.
    """
    refuse_files(job)
    with hold(store, job.name) as lease:
        step = job.step(session_under(lease, session), store, RunRequest())
        require_no_open_batch(step)
        act = Replay(step, Quarantine.of(job, step.session, store), lease)
        finished = act.finish_claims()
        return act.run(selection, changes, finished)


def refuse_files(job: Job) -> None:
    """A folder of files knows one ledger, that of the job's batches."""
    names = [sink.name for sink in job.sinks if isinstance(sink, Files)]
    if names:
        raise ConfigError(
            f"sink '{names[0]}' of job '{job.name}' is a folder of files, which takes no replay.",
            hint="fix the rows at their source, and `floodmark quarantine discard` these",
        )


def require_no_open_batch(step: Step) -> None:
    """An open batch comes first: its rows may be among those asked for."""
    record = step.read()
    if record.intent is not None:
        raise ConfigError(
            f"batch {record.intent.number} of job '{record.job}' is not finished.",
            hint=f"floodmark run --select {record.job}",
        )


@dataclass(frozen=True)
class Replay:
    """One replay under the job's lease."""

    step: Step
    quarantine: Quarantine
    lease: HeldLease

    def run(self, selection: Selection, changes: Mapping[str, str], finished: tuple[str, ...]) -> ReplayResult:
        job, replay_id = self.step.work.name, uuid.uuid4().hex[:12]
        table = self.quarantine.table()
        chosen = table.where(f"status = 'open' and {selection.sql()}") if table is not None else None
        selected = chosen.count() if chosen is not None else 0
        if chosen is None or not selected:
            return ReplayResult(job, replay_id, 0, {}, 0, finished)
        claimed = self.claim(replay_id, with_changes(original_rows(chosen), changes))
        reach("after_claim")
        written = self.deliver(replay_id) if claimed else {}
        return ReplayResult(job, replay_id, selected, written, selected - claimed, finished)

    def finish_claims(self) -> tuple[str, ...]:
        """Replays that were begun and did not reach every sink."""
        table = self.quarantine.table()
        if table is None:
            return ()
        begun = [row["replay"] for row in table.where("status = 'replaying'").select("replay").distinct().collect()]
        for replay_id in begun:
            self.deliver(replay_id)
        return tuple(begun)

    def claim(self, replay_id: str, rows: DataFrame) -> int:
        """Freeze the good ones of these rows, repaired, in one commit; from here on they belong to this replay."""
        from pyspark.sql import functions as F

        rules, legend = self.step.work.rules, self.step.work.rules.legend()
        strict = [place for place, (_, action) in enumerate(legend.rules) if action != "warn"]
        marked = rules.mark(rows) if rules else rows
        good = marked.where(f"not ({legend.breaks(strict)})").select(
            F.col(ROW_ID).alias("id"),
            F.expr(as_json(marked)).alias("repaired"),
            F.lit(replay_id).alias("replay"),
            F.lit(self.claim_of(rows)).alias("claim"),
        )
        with temporary_view(good) as view:
            update = "status = 'replaying', replay = p.replay, repaired = p.repaired, claim = p.claim"
            merge = f"MERGE INTO {self.quarantine.sql} q USING {view} p ON q.id = p.id AND q.status = 'open'"
            done = self.quarantine.spark().sql(f"{merge} WHEN MATCHED THEN UPDATE SET {update}").collect()
        return int(done[0]["num_updated_rows"])

    def claim_of(self, rows: DataFrame) -> str:
        """What every attempt of this replay must find unchanged."""
        from pyspark.sql.types import StructType

        own = StructType([field for field in rows.schema.fields if not field.name.startswith("_fm_")])
        facts = {
            "time": datetime.now(timezone.utc).isoformat(),
            "frozen": frozen_options(self.step.work, self.step.session),
        }
        return json.dumps({**facts, "schema": own.json()})

    def deliver(self, replay_id: str) -> dict[str, int]:
        """The claimed rows into every sink; a sink that has them takes none. Only then are they done with."""
        table = self.quarantine.table()
        if table is None:
            raise LookupError("a claim lies in the quarantine, so the quarantine is there")
        claimed = table.where(f"replay = {literal(replay_id)} and status = 'replaying'")
        claim = json.loads(claimed.select("claim").first()["claim"])  # type: ignore[index]
        named = claimed.withColumnRenamed("id", ROW_ID)
        rows = parse_rows(named, "repaired", claim["schema"], beside=ROW_ID).drop(ROW_ID)
        batch = self.batch_of(replay_id, claim)
        written: dict[str, int] = {}
        for place, sink in enumerate(self.step.work.sinks, start=1):
            self.lease.check()
            try:
                written[sink.name] = sink.write(self.fit_to(rows, sink), batch) or 0
            except FloodmarkError:
                raise
            except Exception as error:
                raise SinkFailed(self.step.work.name, sink=sink.name, reason=first_lines(error)) from error
            reach(f"after_sink:{place}")
        self.quarantine.update("status = 'replayed'", f"replay = {literal(replay_id)}")
        log.info("quarantined rows replayed", job=self.step.work.name, replay=replay_id, written=written)
        return written

    def fit_to(self, rows: DataFrame, sink: Sink) -> DataFrame:
        work = self.step.work
        return fit(rows, sink, job=work.name, policy=work.on_schema_change, session=self.step.session)

    def batch_of(self, replay_id: str, claim: Mapping[str, Any]) -> Batch:
        """A batch of its own ledger, so that the numbers of the job's batches mean nothing to it."""
        return Batch(
            namespace=self.step.store.namespace,
            job=f"{self.step.work.name}/replay/{replay_id}",
            number=1,
            attempt=uuid.uuid4().hex[:12],
            digest=replay_id,
            kind="batch",
            batch_time=datetime.fromisoformat(claim["time"]),
            frozen=claim["frozen"],
        )


def original_rows(chosen: DataFrame) -> DataFrame:
    """Quarantined rows with their own columns again; those of older batches may lack some."""
    schemas = [row["schema"] for row in chosen.select("schema").distinct().collect()]
    named = chosen.withColumnRenamed("id", ROW_ID)
    parts = [parse_rows(named.where(f"schema = {literal(schema)}"), "row", schema, beside=ROW_ID) for schema in schemas]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)


def with_changes(rows: DataFrame, changes: Mapping[str, str]) -> DataFrame:
    """The rows with these columns set to the values of these expressions, all of them over the old values."""
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as F

    unknown = [column for column in changes if column.lower() not in {name.lower() for name in rows.columns}]
    if unknown:
        raise ConfigError(f"the rows have no column '{unknown[0]}'.", hint=f"one of: {', '.join(rows.columns[1:])}")
    try:
        kinds = {field.name.lower(): field.dataType for field in rows.schema.fields}
        return rows.withColumns({to: F.expr(text).cast(kinds[to.lower()]) for to, text in changes.items()})
    except (AnalysisException, ParseException) as error:
        raise ConfigError(f"a column cannot be set so: {first_lines(error)}", hint="it is Spark's SQL") from error


@contextmanager
def temporary_view(rows: DataFrame) -> Iterator[str]:
    """The rows as a view, under a name that nobody else has."""
    name = f"fm_replay_{uuid.uuid4().hex}"
    rows.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        rows.sparkSession.catalog.dropTempView(name)


def literal(text: str) -> str:
    """A text as SQL takes it, whatever is in it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
