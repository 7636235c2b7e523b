"""What all writers of one batch are told, settled on the driver before the first of them begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from floodmark.sinks.kafka_layout import Layout
from floodmark.sinks.kafka_ledger import Page
from floodmark.sinks.kafka_lost import highest_stamps, records_since
from floodmark.sinks.kafka_producer import Place

Answer = TypeVar("Answer")
AT_ONCE = 8


@dataclass(frozen=True)
class Order:
    """One batch for one topic. `out` has, for writers without a page in the ledger, the rows that are out."""

    place: Place
    number: int
    digest: str
    layout: Layout
    chunk_rows: int
    chunk_seconds: float
    out: Mapping[int, int] = field(default_factory=dict)

    def label(self, writer: int) -> str:
        """What stamps in the topic call this writer's part of the batch."""
        return f"{self.place.ledger}:{self.number}:{writer}"

    def settled(self, pages: Mapping[int, Page]) -> Order:
        """With what the topic itself tells about writers that have no page: a new ledger, or one that was lost.

        Asked before any writer begins: afterwards their open transactions would hide each other. Raises CannotTell.
        """
        layout, options, topic = self.layout, self.place.options, self.place.topic
        unknown = [w for w in range(layout.writers) if any(p not in pages for p in layout.pages_of(w))]
        since = dict(enumerate(layout.ends))
        left = records_since(options, topic, since) if unknown else {}
        if not left:
            return replace(self, out=dict.fromkeys(unknown, 0))
        at_once(self.place.take_over, range(layout.writers))  # what any of them left open would hide all that follows
        stamps = highest_stamps(options, topic, since, left)
        return replace(self, out={writer: stamps.get(self.label(writer), 0) for writer in unknown})


def at_once(act: Callable[[int], Answer], writers: Iterable[int]) -> list[Answer]:
    """A few at a time: each of them waits for the broker most of the time."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(act, writers))
