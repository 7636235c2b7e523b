"""What went wrong with one element on an executor, on its way through Spark's own errors to the driver."""

from __future__ import annotations

import json
import re

from floodmark.errors import ElementFailed, ElementInvalid, FloodmarkError

BEGIN, END = "[floodmark element]", "[/floodmark element]"
LONGEST_SHOWN = 200
FOUND = re.compile(re.escape(BEGIN) + r"(?P<told>.*?)" + re.escape(END), re.DOTALL)


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
    found = FOUND.search(str(error))
    if found is None:
        return None
    told = json.loads(found["told"])
    kind = told.pop("kind")
    return ElementInvalid(**told) if kind == "invalid" else ElementFailed(**told)


def _told(kind: str, facts: dict[str, str]) -> Mishap:
    return Mishap(f"{BEGIN}{json.dumps({'kind': kind, **facts})}{END}")
