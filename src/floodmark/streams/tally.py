"""Who is still on the way: which records a stream holds, healed or failed, and when each of them is settled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from floodmark.streams.elements import Arrival, Element, Failure, RecordId, Settled, SettledKind


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
