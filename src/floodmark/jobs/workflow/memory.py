"""What the store remembers of a workflow: how each task of the last run ended, so that the next can go on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

from floodmark.errors import LeaseHeld
from floodmark.hwm import Json
from floodmark.stores.lease import HeldLease, hold
from floodmark.stores.record import JobRecord

if TYPE_CHECKING:
    from floodmark.stores.contract import MarkStore

State = Literal["SUCCESS", "FAILED", "TIMEDOUT", "SKIPPED"]
EXTRA = "workflow"
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
class Remembered:
    """The last run of a workflow: when it was begun, the tick of its schedule, and how its tasks ended."""

    run: str
    started: datetime
    tick: datetime | None = None
    tasks: Mapping[str, TaskOutcome] = field(default_factory=dict)

    def with_outcome(self, outcome: TaskOutcome) -> Remembered:
        return replace(self, tasks={**self.tasks, outcome.task: outcome})

    def succeeded(self) -> frozenset[str]:
        return frozenset(key for key, outcome in self.tasks.items() if outcome.state == "SUCCESS")

    def failed(self) -> frozenset[str]:
        return frozenset(key for key, outcome in self.tasks.items() if outcome.state in ("FAILED", "TIMEDOUT"))

    def serialize(self) -> dict[str, Json]:
        tick = self.tick.isoformat() if self.tick else None
        tasks: dict[str, Json] = {key: asdict(outcome) for key, outcome in self.tasks.items()}
        return {"run": self.run, "started": self.started.isoformat(), "tick": tick, "tasks": tasks}

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> Remembered:
        tick = datetime.fromisoformat(stored["tick"]) if stored["tick"] else None
        tasks = {key: TaskOutcome(**outcome) for key, outcome in stored["tasks"].items()}
        return cls(stored["run"], datetime.fromisoformat(stored["started"]), tick, tasks)


class Memory:
    """The record of one running workflow, in our hands; every change is durable when it returns."""

    def __init__(self, store: MarkStore, lease: HeldLease) -> None:
        self._store, self._lease = store, lease
        self._record = store.read(lease.lease.job) or JobRecord(lease.lease.job)

    def last(self) -> Remembered | None:
        return remembered_in(self._record)

    def keep(self, remembered: Remembered) -> None:
        """Save it under the next number."""
        later = replace(
            self._record,
            number=self._record.number + 1,
            extras={**self._record.extras, EXTRA: remembered.serialize()},
            modified_time=datetime.now(timezone.utc),
        )
        self._store.commit(later, expected=self._record.number, lease=self._lease.lease)
        self._record = later


def remembered_in(record: JobRecord | None) -> Remembered | None:
    """What a record says of a workflow; None if it is a job's, or there is none."""
    stored = record.extras.get(EXTRA) if record else None
    return Remembered.deserialize(stored) if isinstance(stored, dict) else None


def slots(workflow: str, at_once: int) -> list[str]:
    """The records of a workflow, one for each run that may be under way at the same time."""
    name = f"workflow.{NOT_IN_A_NAME.sub('_', workflow)}"
    return [name, *(f"{name}.{place}" for place in range(2, at_once + 1))]


@contextmanager
def holding(store: MarkStore, workflow: str, at_once: int) -> Iterator[Memory]:
    """The memory of a run, under a lease. Raises LeaseHeld when as many runs as may be are under way."""
    with ExitStack() as stack:
        yield Memory(store, _first_free(store, slots(workflow, at_once), stack))


def _first_free(store: MarkStore, names: Sequence[str], stack: ExitStack) -> HeldLease:
    for name in names[:-1]:
        with suppress(LeaseHeld):
            return stack.enter_context(hold(store, name))
    return stack.enter_context(hold(store, names[-1]))
