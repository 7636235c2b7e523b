"""What the next turn of a mill would do, found out without touching anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from floodmark.errors import SourceChanged
from floodmark.hwm import Json
from floodmark.mill.feeds import elements_in
from floodmark.mill.progress import shown_level
from floodmark.step.looking import Outlook

if TYPE_CHECKING:
    from floodmark.mill.turning import MillStep
    from floodmark.stores.record import JobRecord


@dataclass(frozen=True)
class TurnPlan:
    """By stream the elements that are read and where the mark is and will be; how far the horizon rises.

    `held_reason`: whom it waits for. `changes`: streams that came or went, keys that are others now; where a decision
    is needed, the turn would stop with it. `open_turn`: its number, if a turn was begun that is finished first.
    """

    marks: Mapping[str, tuple[Json, Json]] = field(default_factory=dict)
    elements: Mapping[str, int] = field(default_factory=dict)
    horizon: object = None
    held_reason: str | None = None
    changes: tuple[str, ...] = ()
    open_turn: int | None = None

    @property
    def has_work(self) -> bool:
        return bool(self.elements) or self.open_turn is not None


def preview(step: MillStep) -> TurnPlan:
    """Look and compare; the record, the output and what the mill remembers stay as they are."""
    record, stored = step.read(), step.store.read(step.work.name)
    changes = changes_of(step, stored) if stored else ()
    if record.intent is not None:
        return TurnPlan(changes=changes, open_turn=record.intent.number)
    looking = replace(step, watch=step.watch.anew())
    try:
        outlook = looking.look(record)
    except SourceChanged as error:
        return TurnPlan(changes=(*changes, f"{error.stored} is now {error.found}: a decision is needed"))
    finally:
        looking.watch.shelf.clear()
    return plan_of(looking, record, outlook, changes)


def plan_of(step: MillStep, record: JobRecord, outlook: Outlook, changes: tuple[str, ...]) -> TurnPlan:
    """What a look found, in the words of a plan."""
    turn, spans = step.watch.turn, outlook.spans
    before = {name: mark.show() for name, mark in record.marks.items()}
    return TurnPlan(
        marks={name: (before.get(name), span.upto.show()) for name, span in spans.items()},
        elements={name: elements_in(span) for name, span in spans.items()},
        horizon=shown_level(turn.until) if turn is not None else None,
        held_reason=outlook.held_reason,
        changes=changes,
    )


def changes_of(step: MillStep, stored: JobRecord) -> tuple[str, ...]:
    """Streams that the record has and the tree has not, and the other way round."""
    gone = [f"{name} left the tree: its mark is dropped" for name in sorted(stored.marks.keys() - step.planner.feeds)]
    new = [name for name in step.planner.feeds if stored.marks and name not in stored.marks]
    return (*gone, *(f"{name} is new in the tree and begins at its start" for name in new))
