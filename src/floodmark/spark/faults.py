"""A word of ours inside a Spark plan, and how it is found again in Spark's long error.

Spark hands on nothing of an executor's error but its text. So whatever stops a plan on purpose (a row that a sink
refuses, a value that no column holds, an element that cannot be read) puts its message between marks, with the kind of
the fault; the driver looks for exactly that kind.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Literal

from floodmark.errors import ElementFailed, ElementInvalid, FloodmarkError

if TYPE_CHECKING:
    from pyspark.sql import Column


Kind = Literal["sink", "value", "malformed", "rewritten", "element"]
"""A row that a sink refuses; a value of a source that Spark has no place for; a record that cannot be parsed; a commit
that changed rows where only added ones are taken; an element of a mill."""
END = "[/floodmark]"
LONGEST_ELEMENT = 200
POSITION = "partition %d, offset %d"


def fault_begin(kind: Kind) -> str:
    """What stands before the message; END stands behind it."""
    return f"[floodmark {kind}]"


def fault_text(kind: Kind, message: str) -> str:
    """The message as an error's text carries it."""
    return f"{fault_begin(kind)}{message}{END}"


def raise_in_plan(kind: Kind, message: str | Column) -> Column:
    """An expression that stops the job when it is evaluated: a bad batch is found in the pass that writes it."""
    from pyspark.sql import functions as F

    text = F.lit(message) if isinstance(message, str) else message
    return F.raise_error(F.concat(F.lit(fault_begin(kind)), text, F.lit(END)))


def fault_in(error: Exception, kind: Kind) -> str | None:
    """The message of such a fault, if that is what stopped the job."""
    match = re.search(f"{re.escape(fault_begin(kind))}(.*?){re.escape(END)}", str(error), re.DOTALL)
    return match[1] if match else None


class ElementFault(Exception):
    """What went wrong with one element on an executor: an error of ours, as text that `element_error_in` reads."""

    @classmethod
    def invalid(cls, error: ElementInvalid, partition: int, offset: int) -> ElementFault:
        """An element that cannot be read, with its place."""
        facts = {"stream": error.stream, "field": error.field, "reason": error.reason}
        return cls._of("invalid", {**facts, "position": position_text(partition, offset)})

    @classmethod
    def failed(cls, stream: str, position: str, error: Exception, element: object) -> ElementFault:
        """A process function that raised, with the element that it was given, or with how it begins."""
        reason, text = f"{type(error).__name__}: {error}", repr(element)
        text = text if len(text) <= LONGEST_ELEMENT else f"{text[: LONGEST_ELEMENT - 1]}…"
        return cls._of("failed", {"stream": stream, "position": position, "reason": reason, "element": text})

    @classmethod
    def _of(cls, kind: str, facts: dict[str, str]) -> ElementFault:
        return cls(fault_text("element", json.dumps({"kind": kind, **facts})))


def element_fault(stream: str, reason: str, partition: str, offset: str) -> Column:
    """An expression that stops the job as `ElementFault.invalid` does, at the place that two columns name."""
    from pyspark.sql import functions as F

    facts = {"kind": "invalid", "stream": stream, "field": "", "reason": reason}
    place = F.format_string(POSITION, partition, offset)
    text = F.to_json(F.struct(*(F.lit(fact).alias(name) for name, fact in facts.items()), place.alias("position")))
    return raise_in_plan("element", text)


def element_error_in(error: Exception) -> FloodmarkError | None:
    """The error that an executor met with an element, if it did."""
    text = fault_in(error, "element")
    if text is None:
        return None
    facts = json.loads(text)
    kind = facts.pop("kind")
    return ElementInvalid(**facts) if kind == "invalid" else ElementFailed(**facts)


def position_text(partition: int, offset: int) -> str:
    """Where an element stands, in words."""
    return POSITION % (partition, offset)
