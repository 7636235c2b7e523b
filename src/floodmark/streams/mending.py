"""The healing step at work: which records an element proves done, and what it says when a row lost its uuid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from floodmark.streams import nodes
from floodmark.streams.elements import Arrival, Element, RecordId, record_of, records_in
from floodmark.streams.tally import Tally
from floodmark.streams.workers import Prompt


class UuidLost(Exception):
    """A row reached healing without the uuid that names its record."""


class Healing(Prompt):
    """Marks the records that its rows name as healed; keeps the rows only when something follows in the driver."""

    def __init__(self, operator: nodes.Heal, step: str, index: int, *, followed: bool) -> None:
        self.operator, self.step, self.index, self.followed = operator, step, index, followed

    def take(self, element: Element, tally: Tally) -> Sequence[Element]:
        try:
            records = named_records(self.operator, element.value)
        except UuidLost:
            raise UuidLost(lost_text(element)) from None
        strange = set(records).difference(element.lineage)
        if strange:
            raise UuidLost(f"the row names {min(strange)}, which is not a record that this element was made of")
        tally.heal(records)
        if self.followed:
            tally.arrivals.append(Arrival(self.index, element.value))
        return ()


def named_records(operator: nodes.Heal, value: object) -> list[RecordId]:
    """The record of every row in the value; raises UuidLost when a row names none."""
    return [record for rows in _groups(operator, value) for record in _records(operator, rows)]


def _groups(operator: nodes.Heal, value: object) -> Sequence[object]:
    if not operator.each:
        return (value,)
    if not isinstance(value, (tuple, list)):
        raise UuidLost
    return value


def _records(operator: nodes.Heal, value: object) -> Iterator[RecordId]:
    if operator.takes == "row":
        yield record_of_row(value)
        return
    if not isinstance(value, (tuple, list)):
        raise UuidLost
    for row in value:
        yield record_of_row(row)


def record_of_row(row: object) -> RecordId:
    """The record that a row `(uuid, value)` names."""
    if not isinstance(row, (tuple, list)) or len(row) != 2:
        raise UuidLost
    record = record_of(row[0])
    if record is None:
        raise UuidLost
    return record


def lost_text(element: Element) -> str:
    """Which step lost the uuid: the first one, going back, whose input still named a record."""
    return lost_at(_step_that_lost(element))


def lost_at(step: str) -> str:
    """What to say about a row that came to healing without its uuid."""
    return f"the row has no uuid at healing; {step} lost it. Let it return (row[0], result), and rows to healing_batch"


def _step_that_lost(element: Element) -> str:
    while element.parents:
        if any(next(records_in(parent.value), None) for parent in element.parents):
            return element.step
        element = element.parents[0]
    return element.step
