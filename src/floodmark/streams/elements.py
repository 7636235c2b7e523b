"""What flows through a stream: elements that know which records they come from, and what became of each record."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple

_HERE = str(Path(__file__).parent)

SettledKind = Literal["done", "failed", "dropped"]


class RecordId(NamedTuple):
    """Where a record stands in Kafka: the name that healing knows it by."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class Element(NamedTuple):
    """One value on its way, with the records that it descends from, and the step and the elements that made it."""

    value: object
    lineage: tuple[RecordId, ...] = ()
    step: str = "source"
    parents: tuple[Element, ...] = ()

    def child(self, value: object, step: str) -> Element:
        """What a step made of this element alone: it stands for the same records."""
        return Element(value, self.lineage, step, (self,))


@dataclass(frozen=True)
class Failure:
    """Why a record failed: the step, the exception in one line, and where it was raised."""

    step: str
    error: str
    trace: str = ""

    @classmethod
    def of(cls, step: str, error: BaseException) -> Failure:
        """What is worth remembering of an exception: it may not be possible to pickle the exception itself."""
        line = f"{type(error).__name__}: {_said(error)}".strip(": ")
        return cls(step, line, "".join(traceback.format_tb(_below_our_own(error.__traceback__))))

    def __str__(self) -> str:
        return f"{self.step}: {self.error}"


def _said(error: BaseException) -> str:
    """A user's exception may fail even to say what it is; its record must not take the others along."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 (whatever it is)
        return "(it cannot be printed)"


def _below_our_own(raised: TracebackType | None) -> TracebackType | None:
    """The traceback from the user's function down: how it was called is of no use to its author."""
    while raised is not None and raised.tb_frame.f_code.co_filename.startswith(_HERE):
        raised = raised.tb_next
    return raised


class Settled(NamedTuple):
    """What became of a record, once nothing of it is on its way any more."""

    record: RecordId
    kind: SettledKind
    failure: Failure | None = None


class Arrival(NamedTuple):
    """An element that was healed: its rows wait for the commit, and then go on in the driver as results."""

    step: int
    value: object


class StepFailed(Exception):
    """A step of a stream raised on an element; never leaves the package."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


def record_of(uuid: object) -> RecordId | None:
    """The record that a uuid names; None when the value is no uuid."""
    if type(uuid) is not dict and not isinstance(uuid, Mapping):  # the first is quick, the second is not
        return None
    try:
        return RecordId(uuid["topic"], uuid["partition"], uuid["offset"])
    except KeyError:
        return None


def records_in(value: object) -> Iterator[RecordId]:
    """Every record that a value names: a row `(uuid, value)`, or rows in lists and tuples of any depth."""
    if not isinstance(value, (tuple, list)) or not value:
        return
    record = record_of(value[0])
    if record is not None:
        yield record
        return
    for item in value:
        yield from records_in(item)


def lineage_within(value: object, lineage: tuple[RecordId, ...]) -> tuple[RecordId, ...]:
    """The records of the lineage that a part of an element stands for: those it names, or all when it names none."""
    if len(lineage) < 2:
        return lineage
    known = set(lineage)
    named = tuple(dict.fromkeys(record for record in records_in(value) if record in known))
    return named or lineage


def element_of(uuid: Mapping[str, object], value: object) -> Element:
    """A record as it enters a stream."""
    record = record_of(uuid)
    return Element((uuid, value), () if record is None else (record,))


def element_of_rows(rows: list[tuple[Mapping[str, object], object]]) -> Element:
    """Records that enter a stream together, as a list."""
    return Element(rows, tuple(records_in(rows)))


def joined_lineage(elements: Iterable[Element]) -> tuple[RecordId, ...]:
    """The records that several elements stand for, each once, in their order."""
    return tuple(dict.fromkeys(record for element in elements for record in element.lineage))


# Who is still on the way: which records a stream holds, healed or failed, and when each of them is settled.
@dataclass
class Tally:
    """What the steps of one running stream tell about the records that pass them."""

    held: dict[RecordId, int] = field(default_factory=dict)
    healed: set[RecordId] = field(default_factory=set)
    failures: dict[RecordId, Failure] = field(default_factory=dict)
    errors: list[BaseException] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    touched: dict[RecordId, None] = field(default_factory=dict)

    def touch(self, records: Iterable[RecordId]) -> None:
        """Something happens to these records: whether they are settled has to be asked again."""
        self.touched.update(dict.fromkeys(records))

    def hold(self, element: Element) -> None:
        """A step keeps the element for later: its records are not settled before it is let go."""
        for record in element.lineage:
            self.held[record] = self.held.get(record, 0) + 1

    def let_go(self, elements: Iterable[Element]) -> None:
        """A step no longer keeps these elements."""
        for element in elements:
            self.touch(element.lineage)
            for record in element.lineage:
                self._drop_one(record)

    def _drop_one(self, record: RecordId) -> None:
        left = self.held[record] - 1
        if left:
            self.held[record] = left
        else:
            del self.held[record]

    def heal(self, records: Iterable[RecordId]) -> None:
        """These records reached a healing step."""
        self.healed.update(records)

    def fail(self, records: Iterable[RecordId], step: str, error: BaseException) -> None:
        """A step raised: its first failure is what a record is remembered by."""
        self.errors.append(error)
        failure = Failure.of(step, error)
        for record in records:
            self.failures.setdefault(record, failure)

    def settle(self) -> list[Settled]:
        """What became of the touched records of which nothing is held any more, each told once."""
        settled = [self._settled(record) for record in self.touched if record not in self.held]
        self.touched.clear()
        return settled

    def _settled(self, record: RecordId) -> Settled:
        failure = self.failures.pop(record, None)
        healed = record in self.healed
        self.healed.discard(record)
        kind: SettledKind = "failed" if failure else "done" if healed else "dropped"
        return Settled(record, kind, failure)
