"""What becomes of a record that fails: the stream stops at it, tries it again, or puts it aside as a dead letter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

from floodmark.errors import ConfigError, UnknownKind
from floodmark.hwm.parsing import seconds_in
from floodmark.patience import doubling_pause
from floodmark.streams import operators as nodes
from floodmark.streams.elements import Arrival, Element, Failure, RecordId, StepFailed, Tally, record_of, records_in
from floodmark.streams.operators import GONE, PlainFunction, plain_function
from floodmark.streams.workers import CAUGHT, Prompt

if TYPE_CHECKING:
    from floodmark.streams.stream import Stream


# `healing` and `healing_batch`: what a stream's steps are given so that the mark follows what succeeded.
if TYPE_CHECKING:
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
    """
    raise _called("healing")


def healing_batch(
    rows: tuple[tuple[object, object], ...],
    stream: Stream | None = None,
    ignore: bool = False,
    asynchronous: bool = False,
) -> list[Result]:
    """As `healing`, for several rows at once; what follows gets a list of results."""
    raise _called("healing_batch")


def _called(name: str) -> ConfigError:
    return ConfigError(
        f"{name} was called as a function; it is a step of a stream.",
        hint=f"give it to a step: source.map(work).sink({name}, stream=source)",
    )


def as_healing(call: nodes.Call, source: Stream, *, each: bool = False) -> nodes.Heal | None:
    """The healing step that a call of `healing` or `healing_batch` stands for; None for any other function."""
    func, given = _unwrapped(call)
    takes = _TAKES.get(func)
    if takes is None:
        return None
    names = ("stream", "ignore", "asynchronous")
    given |= dict(zip(names, call.args, strict=False))
    _refuse_unknown(func.__name__, given, names)
    _refuse_other_stream(func.__name__, given.get("stream"), source)
    return nodes.Heal(takes, each, bool(given.get("ignore")), bool(given.get("asynchronous")))


def _unwrapped(call: nodes.Call) -> tuple[nodes.Function, dict[str, object]]:
    func: object = call.func
    if isinstance(func, partial):
        return func.func, {**func.keywords, **call.kwargs}
    return call.func, dict(call.kwargs)


_TAKES: dict[object, Literal["row", "rows"]] = {healing: "row", healing_batch: "rows"}


def _refuse_unknown(name: str, given: dict[str, object], known: tuple[str, ...]) -> None:
    unknown = next((field for field in given if field not in known), None)
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


# The healing step at work: which records an element proves done, and what it says when a row lost its uuid.
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


# The short way for the usual stream, a line of plain steps that ends in `healing`: one call per record.
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
        raise StepFailed(Failure.of(names[-1], UuidLost(lost_at(_straight_step_that_lost(passed, names))))) from None
    if record != record_of(row[0]):  # type: ignore[index]  # a row is a pair
        raise StepFailed(Failure.of(names[-1], UuidLost(f"the row names {record}, which is another record")))
    return value  # type: ignore[return-value]  # record_of_row saw a pair


def _straight_step_that_lost(passed: Sequence[object], names: Sequence[str]) -> str:
    named = [at for at, value in enumerate(passed) if next(records_in(value), None)]
    return names[named[-1]]


Then = Literal["stop", "dead_letter"]
LONGEST_PAUSE_SECONDS = 300.0


@dataclass(frozen=True)
class OnError:
    """How often a record runs, how long the pauses are (each twice the last), and what is done when all have failed."""

    attempts: int = 1
    backoff_seconds: float = 0.0
    then: Then = "stop"

    def pause_seconds(self, attempts: int) -> float:
        """How long to wait after so many failed attempts."""
        return doubling_pause(self.backoff_seconds, attempts, LONGEST_PAUSE_SECONDS)


stop = OnError()
"""The others of the batch finish, the mark stops at the failed record, and the run ends with an error."""

dead_letter = OnError(then="dead_letter")
"""A failed record is put aside at once, and the mark goes on."""


def retry(times: int, backoff: str | float = 1.0, *, then: Then = "stop") -> OnError:
    """Try a failed record so many times again, after `backoff` (seconds, or text like '1s'), twice that, and so on."""
    if times < 1:
        raise ConfigError(f"retry({times}) tries nothing again.", hint="retry(3, backoff='1s'), or on_error='stop'")
    return on_error_of(OnError(times + 1, seconds_in(backoff, field="backoff"), then))


def on_error_of(given: str | OnError) -> OnError:
    """The policy, however it was written."""
    if isinstance(given, OnError):
        if given.then not in get_args(Then):
            raise UnknownKind("end of on_error", str(given.then), known=get_args(Then))
        return given
    words = {"stop": stop, "dead_letter": dead_letter}
    if given not in words:
        raise UnknownKind("on_error", str(given), known=[*words, "retry(n, backoff)"])
    return words[given]
