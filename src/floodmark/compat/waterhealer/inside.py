"""`healing` as a function that is called: inside a step of one's own, which runs in this program for that."""

from __future__ import annotations

import types
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from floodmark.errors import ConfigError
from floodmark.streams.elements import Element, RecordId, RecordTracker, record_of
from floodmark.streams.operators import NO_VALUE, CallOperator
from floodmark.streams.workers import ImmediateWorker

Result = dict[str, object]
HEALED = "committed"
NAMES = frozenset({"healing", "healing_batch"})


def healing(row: Any, stream: object = None, ignore: bool = False, asynchronous: bool = False) -> Result:  # noqa: ANN401
    """Heal one row `(uuid, value)`; as a step, or called in a function of a step."""
    record = record_of(row[0]) if isinstance(row, (tuple, list)) and len(row) == 2 else None
    if record is None:
        return _result(row, RecordId("", -1, -1), success=False, reason="invalid uuid")
    calls = _calls.get()
    if calls is None:
        raise ConfigError(
            "healing was called outside a step of the stream.",
            hint="give it to a step, or call it in a function that a step was given",
        )
    return _result(row, record, success=True, reason=HEALED) if calls.heal(record) else _unknown(row, record)


def healing_batch(
    rows: Sequence[Any], stream: object = None, ignore: bool = False, asynchronous: bool = False
) -> list[Result]:
    """Heal several rows."""
    return [healing(row, stream, ignore, asynchronous) for row in rows]


def _unknown(row: Any, record: RecordId) -> Result:  # noqa: ANN401 (a row)
    return _result(row, record, success=False, reason="offset expired or not exist")


def _result(row: Any, record: RecordId, *, success: bool, reason: str) -> Result:  # noqa: ANN401 (a row)
    return {
        "data": row[1],
        "success": success,
        "reason": reason,
        "partition": record.partition,
        "offset": record.offset,
        "topic": record.topic,
    }


def calls_healing(function: object) -> bool:
    """Whether a function, or one of its module or closure that it calls, names `healing` or `healing_batch`."""
    return _names_healing(function, set())


def _names_healing(function: object, seen: set[int]) -> bool:
    while isinstance(function, partial):
        function = function.func
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType) or id(function) in seen:
        return False
    seen.add(id(function))
    names = set(_names(function.__code__))
    if names & NAMES:
        return True
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    called = [function.__globals__[name] for name in names if name in function.__globals__]
    return any(_names_healing(each, seen) for each in (*cells, *called))


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from code.co_freevars
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


@dataclass
class HealingCalls:
    """What a function heals while it runs: records that reached its step, now or earlier."""

    known: Collection[RecordId]
    healed: list[RecordId] = field(default_factory=list)

    def heal(self, record: RecordId) -> bool:
        """Whether the record is one that waits here."""
        if record not in self.known:
            return False
        self.healed.append(record)
        return True


_calls: ContextVar[HealingCalls | None] = ContextVar("healing calls", default=None)


@contextmanager
def healing_calls(known: Collection[RecordId]) -> Iterator[HealingCalls]:
    """Let `healing` know what may be healed inside the block."""
    calls = HealingCalls(known)
    token = _calls.set(calls)
    try:
        yield calls
    finally:
        _calls.reset(token)


@dataclass(frozen=True)
class OwnFunction(CallOperator):
    """A step whose function heals by itself; a record that it has not healed waits, and keeps the mark."""

    word = "function"
    heals: ClassVar[bool] = True
    spans_stream: ClassVar[bool] = True
    keeps: ClassVar[bool] = True
    runs_in_driver: ClassVar[bool] = True
    heals_all: bool = False
    """For streams of plain values: whoever comes through is healed, since no row has a uuid to heal by."""
    ends: bool = False

    def own_worker(self, step: str) -> OwnFunctionWorker:
        return OwnFunctionWorker(self, step)


class OwnFunctionWorker(ImmediateWorker):
    """Calls the function in the order of the stream, in the program that built it."""

    def __init__(self, operator: OwnFunction, step: str) -> None:
        self.operator, self.step = operator, step
        self.waiting: dict[RecordId, Element] = {}
        """Records that came and are not healed yet."""

    def take(self, element: Element, tracker: RecordTracker) -> Sequence[Element]:
        with healing_calls({*self.waiting, *element.lineage}) as calls:
            value = self.operator.call(element.value)
        healed = element.lineage if self.operator.heals_all else calls.healed
        tracker.heal(healed)
        for record in set(healed) & set(self.waiting):
            tracker.let_go((self.waiting.pop(record),))
        self._wait_for(set(element.lineage) - set(healed), element, tracker)
        return () if self.operator.ends or value is NO_VALUE else (element.child(value, self.step),)

    def _wait_for(self, records: set[RecordId], element: Element, tracker: RecordTracker) -> None:
        for record in records - set(self.waiting):
            self.waiting[record] = Element(None, (record,), self.step)
            tracker.hold(self.waiting[record])
