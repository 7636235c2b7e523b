"""Running dead letters through their stream again, in this process, one by one, without Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from floodmark.streams.compiling import Program, Verdict
from floodmark.streams.dead_letters import DeadLetter, DeadLetters
from floodmark.streams.elements import Element, Failure, RecordId

REPLAYED = Verdict(success=True, reason="replayed from the dead letters: the mark had passed it")


@dataclass
class Replayed:
    """What became of the letters: `failed` with the new reason of each."""

    healed: list[RecordId] = field(default_factory=list)
    dropped: list[RecordId] = field(default_factory=list)
    failed: dict[RecordId, Failure] = field(default_factory=dict)


def replay(
    letters: DeadLetters,
    chosen: Iterable[DeadLetter],
    program: Program,
    *,
    as_list: bool = False,
    now: Callable[[], float] = time.time,
) -> Replayed:
    """Run each letter alone; what is healed or dropped is dealt with at once, what fails stays open with its reason.

    `as_list`: the stream takes lists of rows (`from_kafka_batched`). What follows healing gets the results as always;
    the first error that it raises is raised at the end.
    """
    told, driver = Replayed(), program.driver.start()
    for letter in chosen:
        failure = _run(letter, program, told, driver.push, as_list=as_list)
        if failure is None:
            letters.resolve(letter.record, "replayed", at=now())
        else:
            letters.fail_again(letter.record, step=failure.step, error=failure.error, at=now())
    driver.flush()
    for error in driver.take_errors():
        raise error
    return told


def _run(
    letter: DeadLetter, program: Program, told: Replayed, hand_on: Callable[..., None], *, as_list: bool
) -> Failure | None:
    running = program.tasks.start()
    row = (uuid_of(letter), letter.value)
    settled = running.push(Element([row] if as_list else row, (letter.record,)))
    [(record, kind, failure)] = [*settled, *running.await_io(), *running.flush()]
    if failure is not None:
        told.failed[record] = failure
        return failure
    (told.healed if kind == "done" else told.dropped).append(record)
    for arrival in running.take_arrivals():
        hand_on(arrival, lambda record: REPLAYED)
    return None


def uuid_of(letter: DeadLetter) -> Mapping[str, object]:
    """The uuid that the record had in the stream; `attempt` counts on."""
    place = letter.record._asdict()
    message = {"key": letter.key, "headers": letter.headers, "timestamp": letter.timestamp}
    return {**place, "attempt": letter.attempts + 1, **message}
