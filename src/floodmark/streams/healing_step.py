"""`healing` and `healing_batch`: the step that makes records done, how it works, and what follows it gets.

What becomes of records that fail is in `policy`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from floodmark.errors import ConfigError
from floodmark.streams.elements import Element, HealedElement, RecordId, RecordTracker, record_of, records_in
from floodmark.streams.operators import Call, Function, Heal
from floodmark.streams.workers import ImmediateWorker

if TYPE_CHECKING:
    from floodmark.streams.stream import Stream

    Result = dict[str, object]


def healing(
    row: tuple[object, object], stream: Stream | None = None, ignore: bool = False, asynchronous: bool = False
) -> Result:
    """Make the record of a row done; to be given to `map`, `sink`, `foreach_map` or `foreach_async`.

    What follows gets `{data, success, reason, partition, offset, topic}`, in the driver, after the commit.

    row: `(uuid, value)`, with the uuid that the source gave.
    stream: the source that the records come from.
    ignore: a failed publication to the Kafka group is a warning and `success: False`; else it raises.
    asynchronous: publish the group's offsets in the background.

    >>> source = Stream()
    >>> source.map(healing, stream=source).pluck("offset").sink(print)
    >>> source.emit(({"topic": "orders", "partition": 0, "offset": 7}, "value"))
    7
    """
    raise _not_a_function("healing")


def healing_batch(
    rows: tuple[tuple[object, object], ...],
    stream: Stream | None = None,
    ignore: bool = False,
    asynchronous: bool = False,
) -> list[Result]:
    """As `healing`, for several rows at once; what follows gets a list of results.

    >>> source = Stream()
    >>> source.partition(2).map(healing_batch, stream=source).map(len).sink(print)
    >>> for offset in (7, 8):
    ...     source.emit(({"topic": "orders", "partition": 0, "offset": offset}, "value"))
    2
    """
    raise _not_a_function("healing_batch")


_TAKES: dict[object, Literal["row", "rows"]] = {healing: "row", healing_batch: "rows"}


def _not_a_function(name: str) -> ConfigError:
    return ConfigError(
        f"{name} was called as a function; it is a step of a stream.",
        hint=f"give it to a step: source.map(work).sink({name}, stream=source)",
    )


def as_healing(call: Call, source: Stream, *, each: bool = False) -> Heal | None:
    """The healing step that a call of `healing` or `healing_batch` stands for; None for any other function."""
    func, arguments = _unwrap(call)
    takes = _TAKES.get(func)
    if takes is None:
        return None
    names = ("stream", "ignore", "asynchronous")
    arguments |= dict(zip(names, call.args, strict=False))
    _refuse_unknown(func.__name__, arguments, names)
    _refuse_other_stream(func.__name__, arguments.get("stream"), source)
    return Heal(takes, each, bool(arguments.get("ignore")), bool(arguments.get("asynchronous")))


def _unwrap(call: Call) -> tuple[Function, dict[str, object]]:
    func: object = call.func
    if isinstance(func, partial):
        return func.func, {**func.keywords, **call.kwargs}
    return call.func, dict(call.kwargs)


def _refuse_unknown(name: str, arguments: dict[str, object], known: tuple[str, ...]) -> None:
    unknown = next((field for field in arguments if field not in known), None)
    if unknown is not None:
        raise ConfigError(f"{name} has no parameter '{unknown}'.", hint=f"one of: {', '.join(known)}")


def _refuse_other_stream(name: str, stream: object, source: Stream) -> None:
    if stream is None:
        raise ConfigError(
            f"{name} does not know whose marks to move: stream is None.",
            hint=f"pass the source: .sink({name}, stream=source)",
        )
    if getattr(stream, "source", None) is not source:
        raise ConfigError(
            f"{name} was given a stream that its rows do not come from.",
            hint="pass the source that this branch begins at, as from_kafka returned it",
        )


class UuidLost(Exception):
    """A row reached healing without the uuid that names its record.

    >>> source = Stream()
    >>> source.map(lambda row: row[1]).sink(healing, stream=source)
    >>> source.emit(({"topic": "orders", "partition": 0, "offset": 7}, "value"))
    Traceback (most recent call last):
    floodmark.streams.healing_step.UuidLost: the row has no uuid at healing; map(<lambda>) lost it. ...
    """


class HealStep(ImmediateWorker):
    """Marks the records that its rows name as healed; keeps the rows only when something follows in the driver."""

    def __init__(self, operator: Heal, index: int, *, is_followed: bool) -> None:
        self.operator, self.index, self.is_followed = operator, index, is_followed

    def take(self, element: Element, tracker: RecordTracker) -> Sequence[Element]:
        tracker.heal(healed_records(self.operator, element))
        if self.is_followed:
            at = element.lineage[0].offset if element.lineage else 0
            tracker.healed_elements.append(HealedElement(self.index, element.value, at))
        return ()


def healed_records(operator: Heal, element: Element) -> list[RecordId]:
    """The records that the element proves done. Raises UuidLost when a row names none of those it was made of."""
    records = named_records(operator, element)
    strange = set(records).difference(element.lineage)
    if strange:
        raise UuidLost(f"the row names {min(strange)}, which is not a record that this element was made of")
    return records


def named_records(operator: Heal, element: Element) -> list[RecordId]:
    """The record of every row in the element. Raises UuidLost, with the step that lost it, when a row names none."""
    try:
        groups = _items(element.value) if operator.each else (element.value,)
        rows = groups if operator.takes == "row" else [row for group in groups for row in _items(group)]
        return [_record_of_row(row) for row in rows]
    except UuidLost:
        step = step_that_lost_the_uuid(element) or element.step
        raise UuidLost(
            f"the row has no uuid at healing; {step} lost it. Let it return (row[0], result), and rows to healing_batch"
        ) from None


def _items(value: object) -> Sequence[object]:
    if not isinstance(value, (tuple, list)):
        raise UuidLost
    return value


def _record_of_row(row: object) -> RecordId:
    record = record_of(row[0]) if isinstance(row, (tuple, list)) and len(row) == 2 else None
    if record is None:
        raise UuidLost
    return record


def step_that_lost_the_uuid(element: Element) -> str | None:
    """The first step, going back, whose input still named a record; None if the element itself names one."""
    if next(records_in(element.value), None):
        return None
    while element.parents:
        if any(next(records_in(parent.value), None) for parent in element.parents):
            return element.step
        element = element.parents[0]
    return element.step


class Verdict(NamedTuple):
    """What is said of a healed record after the commit."""

    success: bool
    reason: str


def results_of(healer: Heal, value: object, verdict: Callable[[RecordId], Verdict]) -> object:
    """What healing returns for a row (a dict), for rows (a list), and in a foreach step (a tuple of either)."""
    if healer.each:
        once = Heal(healer.takes)
        return tuple(results_of(once, part, verdict) for part in _items(value))
    if healer.takes == "rows":
        return [_result(row, verdict) for row in _items(value)]
    return _result(value, verdict)


def _result(row: object, verdict: Callable[[RecordId], Verdict]) -> Result:
    record = _record_of_row(row)
    success, reason = verdict(record)
    return {
        "data": row[1],  # type: ignore[index]  # it is a pair, as _record_of_row found
        "success": success,
        "reason": reason,
        "partition": record.partition,
        "offset": record.offset,
        "topic": record.topic,
    }


class UnmarkedHealStep(ImmediateWorker):
    """Healing where there is no mark: the rows are looked at and become results, so that a pipeline can be tried."""

    NO_MARK = Verdict(success=False, reason="pushed by emit: there is no mark to move")

    def __init__(self, operator: Heal) -> None:
        self.operator = operator

    def take(self, element: Element, tracker: RecordTracker) -> Sequence[Element]:
        named_records(self.operator, element)  # a row without a uuid is refused here as it is by the real step
        return (element.child(results_of(self.operator, element.value, lambda _: self.NO_MARK), str(self.operator)),)
