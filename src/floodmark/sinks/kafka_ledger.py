"""What a Kafka sink remembers of a job: offsets of a consumer group, whose metadata says how far each writer got."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from floodmark.sinks.contract import Batch, Recorded

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

STABLE_SECONDS = 60.0
"""How long to wait for offsets that an open transaction is about to change."""


@dataclass(frozen=True)
class Page:
    """One partition's entry: how many rows of batch `number` its writer has committed, over all its partitions.

    `before` is the batch that this writer had finished earlier; `partitions`, `writers` and `token` are the layout's.
    """

    number: int
    rows: int
    done: bool
    partitions: int
    writers: int
    before: int = 0
    digest: str | None = None
    token: str | None = None

    def offset(self, topic: str, partition: int) -> TopicPartition:
        """As the group keeps it. The offset only grows with the number; what counts is the metadata."""
        from confluent_kafka import TopicPartition

        return TopicPartition(topic, partition, self.number, json.dumps(asdict(self), separators=(",", ":")))

    @property
    def finished(self) -> int:
        """The highest batch that is whole."""
        return self.number if self.done else self.before


def read_pages(consumer: Consumer, topic: str, partitions: Iterable[int]) -> dict[int, Page]:
    """The pages that are there; the consumer's group is the ledger, and it waits for offsets to be settled."""
    from confluent_kafka import TopicPartition

    asked = [TopicPartition(topic, partition) for partition in partitions]
    answers = consumer.committed(asked, timeout=STABLE_SECONDS)
    for answer in answers:
        if answer.error:
            from confluent_kafka import KafkaException

            raise KafkaException(answer.error)
    pages = {answer.partition: _page(answer) for answer in answers}
    return {partition: page for partition, page in pages.items() if page is not None}


def recorded_in(pages: Mapping[int, Page]) -> Recorded | None:
    """The highest batch that every partition of its layout has."""
    if not pages:
        return None
    newest = max(pages.values(), key=lambda page: (page.number, page.done))
    if has_all(pages, newest.number):
        return Recorded(newest.number, newest.digest)
    earlier = [page.before if page.number == newest.number else page.finished for page in pages.values()]
    return Recorded(max(earlier)) if max(earlier) else None


def has_all(pages: Mapping[int, Page], number: int) -> bool:
    """Whether all rows of this batch are out, in every partition that it was spread over."""
    of_batch = [page for page in pages.values() if page.number >= number]
    if not of_batch:
        return False
    spread = max(page.partitions for page in of_batch)
    return all(partition in pages and pages[partition].finished >= number for partition in range(spread))


def rows_of(pages: Mapping[int, Page], number: int) -> int | None:
    """What a finished batch wrote: a page counts all rows of its writer, so each writer is asked once."""
    if pages[0].number != number:
        return None
    return sum(pages[partition].rows for partition in range(pages[0].writers))


def other_digest(pages: Mapping[int, Page], batch: Batch) -> str | None:
    """Which other rows this number was recorded for, if it was."""
    recorded = (page.digest for page in pages.values() if page.number == batch.number)
    return next((digest for digest in recorded if digest not in (None, batch.digest)), None)


def _page(answer: TopicPartition) -> Page | None:
    """An entry that is not ours is as good as none: then the topic itself is asked."""
    if answer.offset < 0 or not answer.metadata:
        return None
    try:
        return Page(**json.loads(answer.metadata))
    except (TypeError, ValueError):
        return None
