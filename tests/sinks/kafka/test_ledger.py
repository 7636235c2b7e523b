"""What the pages of a Kafka ledger say together, without a broker."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition

from floodmark.sinks.contract import Recorded
from floodmark.sinks.kafka.ledger import LedgerPage, half_batch, is_whole, newest_batch, rows_of

WRITTEN = LedgerPage(2, 5, True, 2, 2, 1, "d2", "t2")
BEGUN = replace(WRITTEN, done=False)
EARLIER = LedgerPage(1, 7, True, 2, 2, 0, "d1", "t1")
FENCE = LedgerPage.fence(2, 2, over=EARLIER)

STORIES: dict[str, tuple[dict[int, LedgerPage], Recorded | None, int | None]] = {
    "nothing": ({}, None, None),
    "a whole batch": ({0: WRITTEN, 1: WRITTEN}, Recorded(2, "d2"), None),
    "one writer is done": ({0: WRITTEN, 1: EARLIER}, Recorded(1), 2),
    "one writer is on its way": ({0: BEGUN, 1: EARLIER}, Recorded(1), 2),
    "one writer has begun the first batch": ({0: replace(BEGUN, before=0)}, None, 2),
    "all are on their way": ({0: BEGUN, 1: BEGUN}, Recorded(1), 2),
    "one is done without rows": ({0: replace(WRITTEN, rows=0), 1: EARLIER}, Recorded(1), None),
    "a fence": ({0: FENCE, 1: FENCE}, Recorded(2, is_fence=True), None),
    "half a fence": ({0: FENCE, 1: EARLIER}, Recorded(2, is_fence=True), None),
    "a fence over half a batch": (
        {0: LedgerPage.fence(2, 2, over=BEGUN), 1: FENCE},
        Recorded(2, is_fence=True),
        2,
    ),
    "a fence beside a writer that was done": ({0: WRITTEN, 1: FENCE}, Recorded(2, is_fence=True), 2),
    "a partition that was added": ({0: WRITTEN, 1: WRITTEN, 2: EARLIER}, Recorded(2, "d2"), None),
}


@pytest.mark.parametrize("story", STORIES)
def test_what_is_recorded_and_what_is_half_out(story: str) -> None:
    """A batch counts when all its pages are done; a fence counts from its first page, and hides no part that is out."""
    pages, recorded, half = STORIES[story]
    assert (newest_batch(pages), half_batch(pages)) == (recorded, half)


def test_a_fence_keeps_what_it_is_laid_over() -> None:
    """The batch before it, and the rows of a part under its own number; not those of another number."""
    assert (FENCE.number, FENCE.rows, FENCE.before, FENCE.highest_done) == (2, 0, 1, 2)
    assert (LedgerPage.fence(2, 2, over=BEGUN).rows, LedgerPage.fence(3, 2, over=BEGUN).rows) == (5, 0)
    assert LedgerPage.fence(2, 2, over=None).before == 0


def test_a_batch_is_whole_over_the_partitions_that_it_was_spread_over() -> None:
    """And so is every batch below it."""
    whole = {0: WRITTEN, 1: WRITTEN}
    assert [is_whole(whole, number) for number in (1, 2, 3)] == [True, True, False]
    assert not is_whole({0: WRITTEN}, 2)


def test_rows_are_counted_once_per_writer() -> None:
    """A writer has a page under each of its partitions; a later batch has forgotten what the one before wrote."""
    one_writer = {0: replace(WRITTEN, writers=1), 1: replace(WRITTEN, writers=1)}
    assert (rows_of(one_writer, 2), rows_of({0: WRITTEN, 1: WRITTEN}, 2), rows_of(one_writer, 1)) == (5, 10, None)


def test_a_page_is_read_as_it_was_written() -> None:
    """With its fence and its hash; what somebody else committed there is none of ours."""
    page = replace(WRITTEN, rows_hash="0a-0b")
    assert LedgerPage.from_offset(page.offset("orders", 1)) == page
    assert LedgerPage.from_offset(FENCE.offset("orders", 1)) == FENCE
    assert LedgerPage.from_offset(TopicPartition("orders", 0, 7, "somebody's")) is None
    assert LedgerPage.from_offset(TopicPartition("orders", 0, -1001)) is None
