"""The quarantine of a job as people use it: what is in it, what is thrown away, and what is written after all.

A replay is a batch of the job (`dead_letters`), so a kill is finished by whoever comes next, and every sink takes it.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, FloodmarkError, SinkFailed
from floodmark.errors.causes import reason_of
from floodmark.jobs.dead_letters import act_batch, discard, require_replay_fits, run_replay
from floodmark.jobs.ranges import literal
from floodmark.locations import quote
from floodmark.logs import get_logger
from floodmark.probes.set_aside import SetAsideRow, rows_set_aside
from floodmark.sinks.contract import Batch
from floodmark.sinks.scd.events import CONTRADICTED
from floodmark.step import RunRequest, Step
from floodmark.step.engine import session_under
from floodmark.step.refused import saved_rows, with_changes
from floodmark.step.set_aside import FIRST_NUMBER, Letters, discarded_rows, parse_rows, replayed_rows
from floodmark.stores.extras import OutsideBatch
from floodmark.stores.lease import HeldLease, hold

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from floodmark.jobs.job import Job
    from floodmark.sinks.contract import Session
    from floodmark.stores.contract import MarkStore


log = get_logger(__name__)
ID = re.compile(r"[0-9a-f][0-9a-f-]{3,35}")


@dataclass(frozen=True)
class Selection:
    """Which rows of a quarantine are meant: all of these have to hold; nothing given is every row.

    >>> Selection(rule="not_null_id").sql()
    "true and array_contains(reasons, 'not_null_id')"
    """

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
            conditions.append(f"{FIRST_NUMBER} = {self.number}")
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

    of_job: Job
    path: str
    session: Session

    @classmethod
    def of(cls, job: Job, session: Session, store: MarkStore) -> Quarantine:
        return cls(job, str(job.quarantine_sink(store).path), session)

    @property
    def job(self) -> str:
        return self.of_job.name

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
        return rows_set_aside(self.path, self.job, "quarantine")

    def discard(self, selection: Selection, store: MarkStore) -> int:
        """Give open rows up; they stay in the table as discarded. Raises LeaseHeld while a run works on the job."""
        return discard(self.of_job, OutsideBatch(kind="quarantine", where=selection.sql()), self.session, store)


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

    >>> source, sink = fm.testing.RowsSource([{"id": 1, "amount": -5}], "id long, amount long"), fm.testing.ListSink()
    >>> rules, aside = [fm.rules.check("amount >= 0", action="quarantine")], f"{folder}/aside"
    >>> job = fm.Job("orders", source, [sink], rules=rules, quarantine=aside, spool=f"{folder}/spool")
    >>> store = fm.stores.open("memory")
    >>> job.run(spark, store).rows_quarantined
    1
    >>> result = replay(job, Selection(), {"amount": "abs(amount)"}, lambda: spark, store)
    >>> sink.rows
    [{'id': 1, 'amount': 5}]
    """
    earlier = finish_claims(job, session, store)
    plain = job.step(session, store, RunRequest())
    require_replay_fits(plain)
    chosen = OutsideBatch(kind="quarantine", where=selection.sql(), changes=dict(changes))
    require_changes_fit(plain, chosen)
    require_no_sink_refused(plain, chosen)
    *begun, receipt = run_replay(plain, chosen, Step.run)
    done, broken = receipt.rows_read if receipt.status == "done" else 0, receipt.rows_dead
    return ReplayResult(
        job.name,
        receipt.run,
        done,
        receipt.rows_written if done > broken else {},
        broken,
        (*earlier, *(each.run for each in begun)),
    )


def require_changes_fit(plain: Step, chosen: OutsideBatch) -> None:
    """Raises ConfigError for a column that the rows do not have, or an expression that is none."""
    spark, letters = plain.session(), Letters.of(plain.work, plain.read().number + 1, "quarantine")
    rows = letters.replayable_letters(spark, where=chosen.where)
    if chosen.changes and rows is not None and not rows.isEmpty():
        with_changes(saved_rows(rows), chosen.changes)


def require_no_sink_refused(plain: Step, chosen: OutsideBatch) -> None:
    """Raises ConfigError for rows that a sink had no place for: written again, they would find none again."""
    letters = Letters.of(plain.work, plain.read().number + 1, "quarantine")
    rows = letters.replayable_letters(plain.session(), where=f"({chosen.where}) and met_by = 'sink'")
    first = rows.first() if rows is not None else None
    if first is not None:
        job = plain.work.name
        raise ConfigError(
            f"row {str(first['id'])[:8]} of job '{job}' was refused by its sink: {first['reason']}.",
            hint=f"floodmark quarantine settle {job} --keep SQL decides between events that contradict each other; "
            "choose the other rows by --rule or --id, or discard these",
        )


def close_settled(step: Step, lease: HeldLease, undecided: DataFrame, set_aside: DataFrame) -> int:
    """Close open rows of contradictions that were decided, once the sinks have it; how many.

    `undecided` and `set_aside` are ids. What counts from now on is done with, the others are discarded. Called again
    after a kill it closes what is left.
    """
    record, spark = step.read(), step.session()
    letters = Letters.of(step.work, record.number + 1, "quarantine")
    found = letters.open_letters(spark)
    if found is None:
        return 0
    waiting = found.where(f"met_by = 'sink' and reason = {literal(CONTRADICTED)}").join(undecided, "id", "left_anti")
    if waiting.isEmpty():
        return 0
    numbered = lease.save(record, after=record, above=step.ledgers(record).highest)
    batch = act_batch(step, numbered.number, "settle")
    given_up = discarded_rows(waiting.join(set_aside, "id", "left_semi"), batch)
    counting = replayed_rows(waiting.join(set_aside, "id", "left_anti"), None, batch)
    return letters.sink.write(given_up.unionByName(counting), batch) or 0


def finish_claims(job: Job, session: Session, store: MarkStore) -> tuple[str, ...]:
    """Replays that an earlier version of Floodmark began: it claimed rows in the table, and wrote them by their claim.

    Under a ledger of its own for each claim, so a sink that has the rows takes none.
    """
    path = str(job.quarantine_sink(store).path)
    claims = {row.id: row for row in rows_set_aside(path, job.name) if row.status == "replaying"}
    if not claims:
        return ()
    with hold(store, job.name) as lease:
        step = job.step(session_under(lease, session), store, RunRequest())
        table = step.session().read.format("delta").load(path).where("status = 'replaying'")
        replays = [row["replay"] for row in table.select("replay").distinct().sort("replay").collect()]
        for replay_id in replays:
            write_claim(step, table.where(f"replay = {literal(replay_id)}"), replay_id, lease)
            step.session().sql(
                f"UPDATE delta.{quote(path)} SET status = 'replayed' WHERE replay = {literal(replay_id)}"
            ).collect()
    return tuple(replays)


def write_claim(step: Step, claimed: DataFrame, replay_id: str, lease: HeldLease) -> None:
    """The rows of one claim into every sink, as they were repaired."""
    claim = json.loads(claimed.select("claim").first()["claim"])  # type: ignore[index]
    named = claimed.withColumnRenamed("id", "_fm_id")  # the rows may have an id of their own
    rows = parse_rows(named, "repaired", claim["schema"], beside="_fm_id").drop("_fm_id")
    batch = Batch(
        namespace=step.store.namespace,
        job=f"{step.work.name}/replay/{replay_id}",
        number=1,
        attempt=uuid.uuid4().hex[:12],
        digest=replay_id,
        kind="batch",
        batch_time=datetime.fromisoformat(claim["time"]),
        frozen=claim["frozen"],
    )
    for sink in step.work.sinks:
        lease.check()
        try:
            sink.write(step.fit(rows, sink, batch), batch)
        except FloodmarkError:
            raise
        except Exception as error:
            raise SinkFailed(step.work.name, sink=sink.name, reason=reason_of(error)) from error
    log.info("quarantined rows replayed", job=step.work.name, replay=replay_id)
