"""How the steps of a stream work: each takes an element and gives what follows from it, and says what it holds back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from floodmark.streams.elements import Element, joined_lineage, lineage_within
from floodmark.streams.plain import GONE, PlainFunction
from floodmark.streams.tally import Tally
from floodmark.streams.together import Raised

Clock = Callable[[], float]


class Worker(Protocol):
    """One step at work; what it raises fails the records of the element that it was given."""

    def take(self, element: Element, tally: Tally) -> Sequence[Element]:
        """What the element becomes; what is kept for later is told to the tally."""

    def due(self, tally: Tally) -> Sequence[Element]:
        """What has to go on by now though no element came; called at every poll."""

    def await_io(self, tally: Tally) -> Sequence[Element]:
        """What can go on once what is under way outside has been confirmed; called at the end of a batch."""

    def flush(self, tally: Tally) -> Sequence[Element]:
        """Everything that is held, complete or not; called when the stream stops."""


class Prompt:
    """A step that holds nothing back."""

    def due(self, tally: Tally) -> Sequence[Element]:
        return ()

    def await_io(self, tally: Tally) -> Sequence[Element]:
        return ()

    def flush(self, tally: Tally) -> Sequence[Element]:
        return ()


class Plain(Prompt):
    """One function from a value to a value, or to nothing."""

    def __init__(self, step: str, function: PlainFunction) -> None:
        self.step, self.function = step, function

    def take(self, element: Element, tally: Tally) -> Sequence[Element]:
        value = self.function(element.value)
        return () if value is GONE else (element.child(value, self.step),)


class Flattening(Prompt):
    """Each item stands for the records that it names."""

    def __init__(self, step: str) -> None:
        self.step = step

    def take(self, element: Element, tally: Tally) -> Sequence[Element]:
        items = list(element.value)  # type: ignore[call-overload]  # what is no iterable fails its records
        return [Element(item, lineage_within(item, element.lineage), self.step, (element,)) for item in items]


class Foreach(Prompt):
    """A failing item fails the records that it names; the others go on, in a shorter tuple."""

    def __init__(self, step: str, results: Callable[[Sequence[object]], list[object]]) -> None:
        self.step, self.results = step, results

    def take(self, element: Element, tally: Tally) -> Sequence[Element]:
        items = list(element.value)  # type: ignore[call-overload]  # what is no iterable fails its records
        results = self.results(items)
        for item, result in zip(items, results, strict=True):
            if isinstance(result, Raised):
                tally.fail(lineage_within(item, element.lineage), self.step, result.error)
        kept = tuple(result for result in results if not isinstance(result, Raised))
        if results and not kept:
            return ()
        return (element.child(kept, self.step),)


class Holding(Prompt):
    """A step that keeps elements and gives them on as one tuple."""

    def __init__(self, step: str) -> None:
        self.step = step
        self.kept: deque[Element] = deque()

    def keep(self, element: Element, tally: Tally) -> None:
        tally.hold(element)
        self.kept.append(element)

    def tuple_of_kept(self) -> Element:
        parts = tuple(self.kept)
        return Element(tuple(part.value for part in parts), joined_lineage(parts), self.step, parts)

    def flush(self, tally: Tally) -> Sequence[Element]:
        if not self.kept:
            return ()
        together = self.tuple_of_kept()
        tally.let_go(self.kept)
        self.kept.clear()
        return (together,)


class Partitioning(Holding):
    """Tuples of a fixed size."""

    def __init__(self, step: str, size: int) -> None:
        super().__init__(step)
        self.size = size

    def take(self, element: Element, tally: Tally) -> Sequence[Element]:
        self.keep(element, tally)
        return self.flush(tally) if len(self.kept) == self.size else ()


class PartitioningTime(Holding):
    """Tuples that close when an element or a poll comes late enough after their first element."""

    def __init__(self, step: str, seconds: float, clock: Clock) -> None:
        super().__init__(step)
        self.seconds, self.clock = seconds, clock
        self.began_at = 0.0

    def take(self, element: Element, tally: Tally) -> Sequence[Element]:
        now = self.clock()
        closed = self._closed(now, tally)
        if not self.kept:
            self.began_at = now
        self.keep(element, tally)
        return closed

    def due(self, tally: Tally) -> Sequence[Element]:
        return self._closed(self.clock(), tally)

    def due_in_seconds(self) -> float | None:
        """How long until `due` gives something; None when nothing is held."""
        return max(0.0, self.began_at + self.seconds - self.clock()) if self.kept else None

    def _closed(self, now: float, tally: Tally) -> Sequence[Element]:
        return self.flush(tally) if self.kept and now - self.began_at >= self.seconds else ()


class Sliding(Holding):
    """Windows over the last elements: an element is let go when no later window can hold it."""

    def __init__(self, step: str, size: int, *, return_partial: bool) -> None:
        super().__init__(step)
        self.size, self.return_partial = size, return_partial

    def take(self, element: Element, tally: Tally) -> Sequence[Element]:
        self.keep(element, tally)
        full = len(self.kept) == self.size
        window = (self.tuple_of_kept(),) if full or self.return_partial else ()
        if full:
            tally.let_go((self.kept.popleft(),))
        return window

    def flush(self, tally: Tally) -> Sequence[Element]:
        tally.let_go(self.kept)
        self.kept.clear()
        return ()
