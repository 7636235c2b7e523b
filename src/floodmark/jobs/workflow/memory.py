"""How a workflow's runs are remembered: how each task ended and what it said, durable before the next begins."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from floodmark.errors import LeaseHeld
from floodmark.hwm import Json
from floodmark.stores.extras import WORKFLOW
from floodmark.stores.lease import HeldLease, hold
from floodmark.stores.record import JobRecord

if TYPE_CHECKING:
    from floodmark.stores.contract import MarkStore


State = Literal["SUCCESS", "FAILED", "TIMEDOUT", "SKIPPED", "EXCLUDED"]
"""EXCLUDED is what a condition has not chosen: it counts as done, and what depends on nothing else is excluded too."""
ENDED_WELL: tuple[State, ...] = ("SUCCESS", "EXCLUDED")
NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.\-]+")


@dataclass(frozen=True)
class TaskOutcome:
    """How a task ended. `note` says why it was skipped, or what it did."""

    task: str
    state: State
    attempts: int = 0
    seconds: float = 0.0
    error: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class WorkflowState:
    """The last run of a workflow, as the store keeps it so that the next can go on.

    When it was begun, the tick of its schedule, and how its tasks ended.
    """

    run: str
    started: datetime
    tick: datetime | None = None
    tasks: Mapping[str, TaskOutcome] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    """What tasks have said to others, by task and key."""
    starts: Mapping[str, datetime] = field(default_factory=dict)
    """When each task began, for those who draw it; runs of earlier versions have none."""
    parameters: str | None = None
    """A digest of the job's parameters, which may hold secrets; runs of earlier versions have none."""

    def with_outcome(self, outcome: TaskOutcome, started: datetime | None = None) -> WorkflowState:
        starts = {**self.starts, outcome.task: started} if started else self.starts
        return replace(self, tasks={**self.tasks, outcome.task: outcome}, starts=starts)

    def is_continued_by(self, given: Mapping[str, str], parameters: str) -> bool:
        """Whether a run with these parameters goes on with this one: what is done for one day is not for another."""
        return not given if self.parameters is None else self.parameters == parameters

    def ended_well(self) -> frozenset[str]:
        """The tasks that need not run again."""
        return frozenset(key for key, outcome in self.tasks.items() if outcome.state in ENDED_WELL)

    def failures(self) -> frozenset[str]:
        return frozenset(key for key, outcome in self.tasks.items() if outcome.state in ("FAILED", "TIMEDOUT"))

    def serialize(self) -> dict[str, Json]:
        tick = self.tick.isoformat() if self.tick else None
        tasks: dict[str, Json] = {key: asdict(outcome) for key, outcome in self.tasks.items()}
        values: dict[str, Json] = {task: dict(said) for task, said in self.values.items()}
        starts: dict[str, Json] = {key: started.isoformat() for key, started in self.starts.items()}
        parts: dict[str, Json] = {"tick": tick, "tasks": tasks, "values": values, "starts": starts}
        return {"run": self.run, "started": self.started.isoformat(), **parts, "parameters": self.parameters}

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> WorkflowState:
        tick = datetime.fromisoformat(stored["tick"]) if stored["tick"] else None
        tasks = {key: TaskOutcome(**outcome) for key, outcome in stored["tasks"].items()}
        started, values = datetime.fromisoformat(stored["started"]), stored.get("values") or {}
        starts = {key: datetime.fromisoformat(began) for key, began in stored.get("starts", {}).items()}
        return cls(stored["run"], started, tick, tasks, values, starts, stored.get("parameters"))


def digest_of(parameters: Mapping[str, str]) -> str:
    """What tells the parameters of one run from those of another, without telling them."""
    return hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()


class Memory:
    """The record of one running workflow, in our hands; every change is durable when it returns."""

    def __init__(self, store: MarkStore, lease: HeldLease) -> None:
        self._lease = lease
        self._record = store.read(lease.lease.job) or JobRecord(lease.lease.job)

    def last(self) -> WorkflowState | None:
        return last_run_in(self._record)

    def keep(self, state: WorkflowState) -> None:
        """Save it under the next number."""
        extras = self._record.extras.with_part(WORKFLOW, state.serialize())
        self._record = self._lease.save(replace(self._record, extras=extras), after=self._record)


def last_run_in(record: JobRecord | None) -> WorkflowState | None:
    """What a record says of a workflow; None if it is a job's, or there is none."""
    stored = record.extras.workflow if record else None
    return WorkflowState.deserialize(stored) if stored else None


def slots(workflow: str, at_once: int) -> list[str]:
    """The records of a workflow, one for each run that may be under way at the same time."""
    name = f"workflow.{NOT_IN_A_NAME.sub('_', workflow)}"
    return [name, *(f"{name}.{place}" for place in range(2, at_once + 1))]


@contextmanager
def hold_memory(store: MarkStore, workflow: str, at_once: int) -> Iterator[Memory]:
    """The memory of a run, under a lease. Raises LeaseHeld when as many runs as may be are under way."""
    with ExitStack() as stack:
        yield Memory(store, _first_free(store, slots(workflow, at_once), stack))


def _first_free(store: MarkStore, names: Sequence[str], stack: ExitStack) -> HeldLease:
    for name in names[:-1]:
        with suppress(LeaseHeld):
            return stack.enter_context(hold(store, name))
    return stack.enter_context(hold(store, names[-1]))
