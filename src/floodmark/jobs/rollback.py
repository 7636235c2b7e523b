"""Putting tables and marks of jobs back together to how they were, and what the store keeps of that past."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, get_args

from floodmark.errors import ConfigError, FloodmarkError, NoGoodRun, RunNotFound, SinkFailed
from floodmark.errors.causes import reason_of
from floodmark.failpoints import reach
from floodmark.jobs.dead_letters import act_batch
from floodmark.jobs.diff import end_time, find_run
from floodmark.jobs.table_readers import behind_restores, names_by_id, needs_of, order, versions_read
from floodmark.jobs.workflow.memory import last_run_in
from floodmark.probes.set_aside import Kind
from floodmark.sinks import Delta
from floodmark.sinks.contract import OnDelta, ledger_id
from floodmark.sinks.delta.target import RestorePoint
from floodmark.step import Step
from floodmark.step.engine import session_under
from floodmark.step.intents import fence_each, fence_open_batch, named_as_begun
from floodmark.step.looking import read_ledgers
from floodmark.step.set_aside import Letters
from floodmark.stores.lease import HeldLease, hold
from floodmark.stores.record import JobRecord, Receipt
from floodmark.stores.run_index import runs_named

if TYPE_CHECKING:
    from floodmark.sinks.contract import Session
    from floodmark.stores.contract import MarkStore


READ = 10_000
LETS_ROWS_IN = ("warn", "fail")
"""Actions of rules that keep no single row out of the tables; `quarantine` and `drop` do."""
LAST_GOOD = "last-good"


def roll_back(step: Step, to: str) -> JobRecord:
    """Put one job back; `to` is the number of a batch, the id of a run, or `last-good`.

    Gives its new record, or the one it has if it is there already.
    """
    rollback = Rollback((step,), Target.parse(to, step.store))
    [way] = rollback.plan()
    return next(iter([*rollback.carry_out([way])]), way.record)


@dataclass(frozen=True)
class Rollback:
    """Jobs that go back together, those first that fill what others read."""

    steps: tuple[Step, ...]
    target: Target

    def plan(self) -> tuple[WayBack, ...]:
        """How each job would go back; touches nothing. Raises ConfigError or NoGoodRun if one of them cannot."""
        self.target.require_one_job([step.work.name for step in self.steps])
        ways: list[WayBack] = []
        back: dict[str, RestorePoint] = {}
        steps = {step.work.name: step for step in self.steps}
        for job in order(needs_of(step.work for step in self.steps)):
            ways.append(with_tables_followed(way_back(steps[job], self.target), steps[job], back))
            back |= {point.table_id: point for point in ways[-1].points}
        return tuple(ways)

    def carry_out(self, planned: Sequence[WayBack]) -> Iterator[JobRecord]:
        """Put each job back that moves, and give its new record; all of them are checked again before the first.

        The leases of all are held meanwhile. Raises ConfigError if things are no longer as they were planned.
        """
        moving = {way.job: way for way in planned if way.moves}
        steps = {step.work.name: step for step in self.steps}
        with ExitStack() as stack:
            leases = {job: stack.enter_context(hold(steps[job].store, job)) for job in moving}
            if [way for way in self.plan() if way.moves] != list(moving.values()):
                raise ConfigError(
                    "a job or a table changed since the plan was made; nothing was put back.", hint="look at it again"
                )
            for job, way in moving.items():
                yield put_back(steps[job], way, leases[job])


@dataclass(frozen=True)
class Target:
    """Where to go back to: the last good states, the batch of a number, or how things were when a run had ended.

    `jobs` took part in that run; None where the text names no jobs.
    """

    text: str
    jobs: tuple[str, ...] | None = None
    number: int | None = None
    moment: datetime | None = None

    @classmethod
    def parse(cls, text: str, store: MarkStore) -> Target:
        """What the text means to this store; a run may be named by how it begins. Raises RunNotFound."""
        if text == LAST_GOOD:
            return cls(text)
        if text.isdigit() and text not in {each.run for each in runs_named(store, text)}:
            return cls(text, number=int(text))
        try:
            run = find_run(store, text)
        except RunNotFound:
            found = _run_of_a_workflow(text, store)
            if found is None:
                raise
            return found
        return cls(run.run, (run.job,), run.number, end_time(run))

    def goal(self, past: Past, now: JobRecord) -> JobRecord:
        """The state that a job goes back to. Raises NoGoodRun, or ConfigError if the store does not keep it."""
        if self.text == LAST_GOOD:
            return _last_good(past, now)
        if self.number is not None and (self.jobs is None or past.job in self.jobs):
            goal = past.with_number(self.number)
        else:
            goal = past.as_of(self.moment) if self.moment else None
        if goal is None:
            raise self._error_for_unkept(past)
        return goal

    def require_one_job(self, jobs: Sequence[str]) -> None:
        """A number alone means another batch in every job."""
        if self.number is not None and self.jobs is None and len(jobs) != 1:
            raise ConfigError(
                f"'{self.text}' is the number of a batch, and {len(jobs)} jobs have batches.",
                hint="`--select` one job, or give the id of a run (`floodmark runs` shows them)",
            )

    def _error_for_unkept(self, past: Past) -> ConfigError:
        kept = ", ".join(str(each.number) for each in past.records[:10][::-1]) or "none"
        when = f" (it ended {self.moment:%Y-%m-%d %H:%M:%S})" if self.moment else ""
        return ConfigError(
            f"job '{past.job}' has no batch or run '{self.text}'{when} to go back to (kept: {kept}).",
            hint="`floodmark runs --json` shows the number of each run; `floodmark run --full-refresh` rebuilds tables",
        )


def _run_of_a_workflow(text: str, store: MarkStore) -> Target | None:
    """As its last task left things: every end of a task is kept in the history of the workflow's record."""
    for name in store.jobs():
        for record in store.history(name, READ) if last_run_in(store.read(name)) else ():
            run = last_run_in(record)
            if run is not None and run.run == text:
                return Target(text, tuple(run.tasks), None, record.modified_time)
    return None


def _last_good(past: Past, now: JobRecord) -> JobRecord:
    good = past.last_good(now)
    if good is None:
        looked = len(list(past.leading_to(now)))
        raise NoGoodRun(past.job, looked=looked, newest=now.number, flaw=past.flaw(now) or "")
    return good


@dataclass(frozen=True)
class Past:
    """The records of a job, newest first, and the receipts of their batches by number."""

    job: str
    records: tuple[JobRecord, ...] = ()
    receipts: Mapping[int, Receipt] = field(default_factory=dict)

    @classmethod
    def of(cls, store: MarkStore, job: str) -> Past:
        receipts = {each.number: each for each in store.runs(job, READ) if each.status == "done"}
        return cls(job, tuple(store.history(job, READ)), receipts)

    def with_number(self, number: int) -> JobRecord | None:
        return next((each for each in self.records if each.number == number), None)

    def as_of(self, moment: datetime) -> JobRecord | None:
        """The state in which the job was then."""
        return next((each for each in self.records if each.modified_time and each.modified_time <= moment), None)

    def leading_to(self, record: JobRecord) -> Iterator[JobRecord]:
        """The record and those before it, newest first; what a rollback undid is left out."""
        here: JobRecord | None = record
        while here is not None:
            yield here
            below = batch_of(here)
            here = next((each for each in self.records if each.number < below), None)

    def receipt_of(self, record: JobRecord) -> Receipt | None:
        """Of the batch that the tables are as."""
        return self.receipts.get(batch_of(record))

    def flaw(self, record: JobRecord) -> str | None:
        """Why its batch is not good; None if it is: it ended, and no row is in the tables that a rule warned of."""
        receipt = self.receipt_of(record)
        if receipt is None:
            return "no receipt of it is kept"
        if receipt.error:
            return receipt.error
        broken = [rule for rule in receipt.rules if rule.failed and rule.action in LETS_ROWS_IN]
        return "; ".join(f"rule {rule.name} ({rule.action}): {rule.failed} of {rule.checked} failed" for rule in broken)

    def last_good(self, record: JobRecord) -> JobRecord | None:
        """The newest state on the way to this one, or this one, whose batch is good."""
        return next((each for each in self.leading_to(record) if not self.flaw(each)), None)


def batch_of(record: JobRecord) -> int:
    """The batch that the tables are as: its own, or the one that a rollback went back to."""
    number = record.extras.went_back_to if record.origin == "rollback" else None
    return record.number if number is None else number


@dataclass(frozen=True)
class WayBack:
    """A job as it stands, the state it goes back to, and its tables. Without `moves` it is there already.

    `follows` are tables that it reads and that go back before it to the very rows that its mark then stands for.
    """

    record: JobRecord
    goal: JobRecord
    points: tuple[RestorePoint, ...] = ()
    moves: bool = True
    follows: tuple[str, ...] = ()

    @property
    def job(self) -> str:
        return self.record.job


def way_back(step: Step, target: Target) -> WayBack:
    """From how the job stands to what the target means for it."""
    record = step.read()
    goal = target.goal(Past.of(step.store, record.job), record)
    if batch_of(goal) == batch_of(record) and is_settled(step, record):
        return WayBack(record, goal, moves=False)
    return WayBack(record, goal, restore_points(step, goal.number))


def with_tables_followed(way: WayBack, step: Step, back: Mapping[str, RestorePoint]) -> WayBack:
    """The way with the tables that it follows; a job that is there already moves then, too, but only with its mark.

    Tables may have gone back before: a rollback that was killed between two jobs is called again.
    """
    sources, goal = step.work.sources, way.goal
    behind = versions_read(replace(goal, marks=behind_restores(sources, goal.marks, step.session)))
    moved = {
        table
        for table, version in versions_read(goal).items()
        if behind[table] > version or (table in back and back[table].is_same(version))
    }
    follows = tuple(name for table, name in names_by_id(sources, step.session).items() if table in moved)
    may_move = way.record.intent is None or _is_on_delta(step)  # else part of an open batch may be out
    return replace(way, moves=way.moves or (may_move and bool(follows)), follows=follows)


def _is_on_delta(step: Step) -> bool:
    return all(isinstance(sink, OnDelta) for sink in step.work.sinks)


def is_settled(step: Step, record: JobRecord) -> bool:
    """Whether the tables are as the record says: no open batch and no rollback that was broken off is in them."""
    if not _is_on_delta(step):
        return True  # nothing of it can be put back, so no rollback was begun
    ledgers = read_ledgers(named_as_begun(step.work, record.intent), step.store.namespace, step.session)
    touched = ledgers.sinks_touched_by(record.intent.number) if record.intent else []
    return ledgers.highest <= record.highest_number and not touched


def restore_points(step: Step, number: int) -> tuple[RestorePoint, ...]:
    """Every table of every sink at the batch; all of them are found before the first is touched."""
    elsewhere = [sink.name for sink in step.work.sinks if not isinstance(sink, OnDelta)]
    if elsewhere:
        raise ConfigError(
            f"sink '{elsewhere[0]}' of job '{step.work.name}' cannot be put back: what it wrote is out.",
            hint="only jobs whose sinks are all Delta tables can be rolled back; `floodmark marks set` moves the mark",
        )
    return tuple(
        RestorePoint.after(table, ledger_id(step.store.namespace, step.work.name, sink.name), number, step.session)
        for sink in step.work.sinks
        if isinstance(sink, OnDelta)
        for table in (*sink.tables(), *_deleted_keys_of(sink, step.session))
    )


def _deleted_keys_of(sink: OnDelta, session: Session) -> tuple[Delta, ...]:
    """The table of deleted keys that a merge has beside its own, if anything was ever deleted."""
    deleted = sink.deleted_keys if isinstance(sink, Delta) else None
    return (deleted.sink,) if deleted and deleted.exists(session) else ()


def put_back(step: Step, way: WayBack, lease: HeldLease) -> JobRecord:
    """Restore every table of the job, then its marks; a batch that is open is given up.

    The sinks are fenced first, and only then it is seen what there is to restore: a paused run may have written.
    Whatever is killed here, the next run stops at a sink that knows more than the store (exit 5), and the same
    rollback again ends it.
    """
    record, session = way.record, session_under(lease, step.session)
    highest = fence_open_batch(step.work, record, step.store.namespace, session).highest
    number = max(record.highest_number, highest) + 1
    marks = behind_restores(step.work.sources, way.goal.marks, session)
    if way.points:
        fence_each(step.work.sinks, step.job, step.store.namespace, number, session)
        reach("after_fence")
        _restore(step, restore_points(step, way.goal.number), number, session)
        _put_aside_back(step, way.goal, number, session)
    elif not is_settled(step, record):
        raise ConfigError(
            f"a run of job '{record.job}' wrote meanwhile; nothing was put back.", hint="look at it again"
        )
    extras = way.goal.extras.with_went_back_to(batch_of(way.goal)).with_identity(record.extras.identity)
    goal = replace(way.goal, marks=marks, extras=extras, origin="rollback")
    return lease.save(goal, after=record, above=highest)


def _put_aside_back(step: Step, goal: JobRecord, number: int, session: Session) -> None:
    """Dead letters and quarantine tell again what they told after the goal's batch, under the number of this act.

    Their tables are not restored: other jobs may write to them.
    """
    batch = act_batch(step, number, "rollback")
    for kind in get_args(Kind):
        if isinstance(step.work.quarantine if kind == "quarantine" else step.work.dead_letters, Delta):
            letters = Letters.of(step.work, number, kind)
            rows = letters.put_back_rows(session(), goal.number, batch)
            if rows is not None and not rows.isEmpty():
                letters.sink.write(rows, batch)


def _restore(step: Step, points: Sequence[RestorePoint], number: int, session: Session) -> None:
    """All tables, or none if no row changed in any: readers take a restore for a change."""
    is_needed = any(point.first_change is not None for point in points)
    for point in points if is_needed else ():
        try:
            point.restore(session(), number, step.work.name)
        except FloodmarkError:
            raise
        except Exception as error:
            raise SinkFailed(step.work.name, sink=point.table.name, reason=reason_of(error)) from error
    reach("after_restore")
