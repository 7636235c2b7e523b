"""What went wrong with one element on an executor, on its way through Spark's own errors to the driver."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from floodmark.errors import ElementFailed, ElementInvalid, FloodmarkError, SourceUnreadable

if TYPE_CHECKING:
    from pyspark.sql import Column


# Refusing a row from inside a Spark plan, so that a bad batch is found in the pass that writes it.
BEGIN, END = "[floodmark sink]", "[/floodmark sink]"
FOUND = re.compile(rf"{re.escape(BEGIN)} (.*?) {re.escape(END)}", re.DOTALL)


def refuse(reason: str | Column) -> Column:
    """An expression that stops the job when it is evaluated."""
    from pyspark.sql import functions as F

    text = F.lit(reason) if isinstance(reason, str) else reason
    return F.raise_error(F.concat(F.lit(f"{BEGIN} "), text, F.lit(f" {END}")))


def refusal_in(error: Exception) -> str | None:
    """The reason, if the job was stopped by one of ours."""
    found = FOUND.search(str(error))
    return found.group(1) if found else None


# Words that a guard within a read fails with, and how they are found again in Spark's long error.
GUARD_BEGIN, GUARD_END = "[floodmark] ", " [/floodmark]"
GUARDED = re.compile(re.escape(GUARD_BEGIN) + "(.*?)" + re.escape(GUARD_END), re.DOTALL)


def explained(error: Exception, source: str) -> SourceUnreadable | None:
    """What one of our guards met, if that is what failed."""
    found = GUARDED.search(str(error))
    if not found:
        return None
    hint = "say how the column shall be read, as in `types: {column: string}`, or mend the row"
    return SourceUnreadable(source, reason=found[1], hint=hint)


ELEMENT_BEGIN, ELEMENT_END = "[floodmark element]", "[/floodmark element]"
LONGEST_SHOWN = 200
ELEMENT_FOUND = re.compile(re.escape(ELEMENT_BEGIN) + r"(?P<told>.*?)" + re.escape(ELEMENT_END), re.DOTALL)


class Mishap(Exception):
    """Carries an error of ours as text: Spark hands on nothing else."""


def position(partition: int, offset: int) -> str:
    """Where an element stands, in words."""
    return f"partition {partition}, offset {offset}"


def mishap(error: ElementInvalid, partition: int, offset: int) -> Mishap:
    """An element that cannot be read, with its place."""
    facts = {"stream": error.stream, "field": error.field, "reason": error.reason}
    return _told("invalid", {**facts, "position": position(partition, offset)})


def failure(stream: str, place: str, error: Exception, element: object) -> Mishap:
    """A process function that raised, with the element that it was given, or with how it begins."""
    reason, shown = f"{type(error).__name__}: {error}", repr(element)
    shown = shown if len(shown) <= LONGEST_SHOWN else f"{shown[: LONGEST_SHOWN - 1]}…"
    return _told("failed", {"stream": stream, "position": place, "reason": reason, "element": shown})


def mishap_in(error: Exception) -> FloodmarkError | None:
    """The error that an executor told of, if it did."""
    found = ELEMENT_FOUND.search(str(error))
    if found is None:
        return None
    told = json.loads(found["told"])
    kind = told.pop("kind")
    return ElementInvalid(**told) if kind == "invalid" else ElementFailed(**told)


def _told(kind: str, facts: dict[str, str]) -> Mishap:
    return Mishap(f"{ELEMENT_BEGIN}{json.dumps({'kind': kind, **facts})}{ELEMENT_END}")
