"""What flows through a stream: elements that know which records they come from, and what became of each record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

OutcomeKind = Literal["done", "failed", "dropped", "passed"]
"""`passed`: the steps that take a record by itself are over, and what they made waits for the whole stream."""
USER_ERRORS = (Exception, SystemExit)
"""What a user's function may raise: `sys.exit()` in it fails its record, not the worker."""


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
    """Why a record failed: the step, and the exception in one line; it may not be possible to pickle the exception."""

    step: str
    error: str

    @classmethod
    def of(cls, step: str, error: BaseException) -> Failure:
        """What is worth remembering of an exception. One that fails even to print must not take other records along."""
        try:
            text = str(error)
        except Exception:  # noqa: BLE001 (whatever it is)
            text = "(it cannot be printed)"
        return cls(step, f"{type(error).__name__}: {text}".strip(": "))

    def __str__(self) -> str:
        return f"{self.step}: {self.error}"


class RecordOutcome(NamedTuple):
    """What became of a record, once nothing of it is on its way any more."""

    record: RecordId
    kind: OutcomeKind
    failure: Failure | None = None


class HealedElement(NamedTuple):
    """An element that was healed: its rows wait for the commit, and then go on in the driver as results."""

    step: int
    value: object
    at: int = 0
    """The offset of its first record: elements that ran side by side are put in order by it."""


class PassedElement(NamedTuple):
    """An element that waits for a step over the whole stream: `step` is that step's position, `made_by` the last one.

    `healed_early` are those of its records that were healed on another branch.
    """

    step: int
    value: object
    lineage: tuple[RecordId, ...]
    made_by: str
    healed_early: tuple[RecordId, ...] = ()


class StepFailed(Exception):
    """A step of a stream raised on an element; never leaves the package."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


@dataclass
class RecordTracker:
    """Who is still on the way: what the steps of one run report about the records that pass them."""

    holds: dict[RecordId, int] = field(default_factory=dict)
    """How many elements of each record are held by steps."""
    healed_records: set[RecordId] = field(default_factory=set)
    failures: dict[RecordId, Failure] = field(default_factory=dict)
    errors: list[BaseException] = field(default_factory=list)
    healed_elements: list[HealedElement] = field(default_factory=list)
    passed_elements: list[PassedElement] = field(default_factory=list)
    passed_records: set[RecordId] = field(default_factory=set)
    healed_early: set[RecordId] = field(default_factory=set)
    """Records that were healed on one branch while another waits for the whole stream."""
    on_begin: Callable[[Iterable[RecordId]], object] | None = None
    """Called before user code gets an element that was put together from what a step held."""
    touched_records: dict[RecordId, None] = field(default_factory=dict)
    """Those that something happened to since `settle`, in order."""

    def touch(self, records: Iterable[RecordId]) -> None:
        """Something happens to these records: whether they are settled has to be asked again."""
        self.touched_records.update(dict.fromkeys(records))

    def hold(self, element: Element) -> None:
        """A step keeps the element for later: its records are not settled before it is let go."""
        for record in element.lineage:
            self.holds[record] = self.holds.get(record, 0) + 1

    def let_go(self, elements: Iterable[Element]) -> None:
        """A step no longer keeps these elements."""
        for element in elements:
            self.touch(element.lineage)
            for record in element.lineage:
                self.holds[record] -= 1
                if not self.holds[record]:
                    del self.holds[record]

    def begin(self, element: Element) -> Element:
        """An element that a step put together is handed on now."""
        if self.on_begin is not None:
            self.on_begin(element.lineage)
        return element

    def pass_on(self, passed: PassedElement) -> None:
        """An element reached a step over the whole stream, which runs later."""
        self.passed_records.update(passed.lineage)
        self.passed_elements.append(passed)

    def take_passed(self) -> list[PassedElement]:
        """The elements that reached such a step, of records of which nothing is on its way any more."""
        unready = self._unready_records()
        ready = [each for each in self.passed_elements if unready.isdisjoint(each.lineage)]
        self.passed_elements = [each for each in self.passed_elements if not unready.isdisjoint(each.lineage)]
        early, self.healed_early = self.healed_early, set()
        return [each._replace(healed_early=tuple(early.intersection(each.lineage))) for each in ready]

    def heal(self, records: Iterable[RecordId]) -> None:
        """These records reached a healing step."""
        self.healed_records.update(records)

    def fail(self, records: Iterable[RecordId], step: str, error: BaseException) -> None:
        """A step raised: its first failure is what a record is remembered by."""
        self.errors.append(error)
        failure = Failure.of(step, error)
        for record in records:
            self.failures.setdefault(record, failure)

    def settle(self) -> list[RecordOutcome]:
        """What became of the touched records of which nothing is held any more, each reported once."""
        unready = self._unready_records() if self.passed_elements else set()
        done = [record for record in self.touched_records if record not in self.holds and record not in unready]
        self.touched_records = {record: None for record in self.touched_records if record in unready}
        return [self._outcome(record) for record in done]

    def _unready_records(self) -> set[RecordId]:
        """Records that are held, and those that wait in one element with them: they are settled together."""
        unready = {record for each in self.passed_elements for record in each.lineage if record in self.holds}
        groups = [each.lineage for each in self.passed_elements if len(each.lineage) > 1]
        size = -1
        while unready and size < len(unready):
            size = len(unready)
            unready.update(record for group in groups if not unready.isdisjoint(group) for record in group)
        return unready

    def _outcome(self, record: RecordId) -> RecordOutcome:
        failure = self.failures.pop(record, None)
        is_healed, is_passed = record in self.healed_records, record in self.passed_records
        self.healed_records.discard(record)
        self.passed_records.discard(record)
        if is_passed and not failure:
            self.healed_early.update((record,) if is_healed else ())
            return RecordOutcome(record, "passed")
        return RecordOutcome(record, "failed" if failure else "done" if is_healed else "dropped", failure)


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
    return tuple(dict.fromkeys(record for record in records_in(value) if record in known)) or lineage


def joined_lineage(elements: Iterable[Element]) -> tuple[RecordId, ...]:
    """The records that several elements stand for, each once, in their order."""
    return tuple(dict.fromkeys(record for element in elements for record in element.lineage))
