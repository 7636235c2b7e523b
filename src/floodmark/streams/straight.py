"""The short way for the usual stream, a line of plain steps that ends in `healing`: one call per record."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from floodmark.streams import nodes
from floodmark.streams.elements import Failure, StepFailed, record_of, records_in
from floodmark.streams.mending import UuidLost, lost_at, record_of_row
from floodmark.streams.plain import GONE, PlainFunction, plain_function
from floodmark.streams.together import CAUGHT

Row = tuple[object, object]
Straight = Callable[[Row], "Row | None"]


def straight_of(operators: Sequence[nodes.Operator], names: Sequence[str]) -> Straight | None:
    """One function from a row to the row that is healed, or to None when a filter took it out.

    It raises StepFailed when a step raised or the row lost its uuid. None when these steps are not so simple.
    """
    functions = [function for function in map(plain_function, operators[:-1]) if function is not None]
    if len(functions) < len(operators) - 1 or not _heals_a_row(operators[-1]):
        return None
    return _walk(functions[1:], names[1:])  # the first is where the row enters


def _heals_a_row(operator: nodes.Operator) -> bool:
    return isinstance(operator, nodes.Heal) and operator.takes == "row" and not operator.each


def _walk(functions: Sequence[PlainFunction], names: Sequence[str]) -> Straight:
    def straight(row: Row) -> Row | None:
        value: object = row
        passed: list[object] = [row]
        try:
            for function in functions:
                value = function(value)
                if value is GONE:
                    return None
                passed.append(value)
        except CAUGHT as error:
            raise StepFailed(Failure.of(names[len(passed) - 1], error)) from None
        if type(value) is tuple and len(value) == 2 and value[0] is row[0]:
            return value  # the very uuid that came in: there is nothing to compare
        return _compared(value, passed, names)

    return straight


def _compared(value: object, passed: Sequence[object], names: Sequence[str]) -> Row:
    row = passed[0]
    try:
        record = record_of_row(value)
    except UuidLost:
        raise StepFailed(Failure.of(names[-1], UuidLost(lost_at(_step_that_lost(passed, names))))) from None
    if record != record_of(row[0]):  # type: ignore[index]  # a row is a pair
        raise StepFailed(Failure.of(names[-1], UuidLost(f"the row names {record}, which is another record")))
    return value  # type: ignore[return-value]  # record_of_row saw a pair


def _step_that_lost(passed: Sequence[object], names: Sequence[str]) -> str:
    named = [at for at, value in enumerate(passed) if next(records_in(value), None)]
    return names[named[-1]]
