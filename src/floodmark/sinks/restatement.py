"""What a batch would write anew in a target, as `plan` tells it before anything is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from floodmark.sinks.modes import TableSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Restatement:
    """What a batch would write anew in a target: keys or dates; `count` is how many, where that is known cheaply.

    `at_most`: several rows may be of one key. `values` names dates; `whole`: everything that is there.
    """

    sink: str
    what: Literal["keys", "dates", "rows"]
    count: int | None = None
    at_most: bool = False
    values: tuple[int, ...] = ()
    whole: bool = False


@runtime_checkable
class Restated(Protocol):
    """A sink that does not only add rows."""

    def restatement(self, rows: Callable[[], DataFrame], expected_rows: int | None) -> Restatement | None:
        """What a batch of such rows would restate, without reading one; None if it only adds. Asked by `plan`.

        Rows are described by Spark, which has to be started for it: most sinks know it without.
        """


def restatement_of(sink: TableSink, expected_rows: int | None) -> Restatement | None:
    """What a batch would restate by the mode of a table; an append only adds."""
    if sink.mode == "merge":
        return Restatement(sink.name, "keys", expected_rows, at_most=True)
    return Restatement(sink.name, "rows", whole=not sink.by) if sink.mode == "replace" else None
