"""Publishing a group's offsets: what is sent, what is waited for, and what is an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from floodmark.errors import PublicationFailed
from floodmark.probes.kafka.group import GroupOffsets, may_pass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import TopicPartition


class Client:
    """The options of a client, and the consumer that they give: its first commits meet these errors."""

    def __init__(self, *errors: int) -> None:
        self.errors, self.commits = list(errors), list[dict[int, int]]()

    def consumer(self, **more: object) -> Client:
        return self

    def without_secrets(self, text: str) -> str:
        return text

    def commit(self, *, offsets: Sequence[TopicPartition], asynchronous: bool) -> None:
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        self.commits.append({place.partition: place.offset for place in offsets})

    def close(self) -> None:
        """Nothing is open."""


def group_of(client: Any) -> GroupOffsets:  # noqa: ANN401 (a double of the options)
    return GroupOffsets("billing", client)


@pytest.mark.parametrize(
    "code", [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError._TIMED_OUT]
)
def test_a_coordinator_that_is_not_ready_is_asked_again(code: int) -> None:
    """librdkafka calls none of these retriable: that word it keeps for transactions."""
    error = KafkaError(code)
    assert (may_pass(error), error.retriable()) == (True, False)


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_MEMBER_ID, KafkaError.GROUP_AUTHORIZATION_FAILED])
def test_a_refusal_is_final(code: int) -> None:
    """A group with other members, or without the right to it, is no better in a moment."""
    assert not may_pass(KafkaError(code))


def test_only_offsets_that_have_moved_are_published() -> None:
    """A turn of one partition does not send those of all the others."""
    client = Client()
    group = group_of(client)
    group.publish({("t", 0): 1, ("t", 1): 5})
    group.publish({("t", 0): 2, ("t", 1): 5})
    group.publish({("t", 0): 2, ("t", 1): 5})
    assert client.commits == [{0: 1, 1: 5}, {0: 2}]


def test_a_publication_waits_for_its_coordinator() -> None:
    """The first group of a broker has none yet."""
    client = Client(KafkaError.COORDINATOR_NOT_AVAILABLE)
    group_of(client).publish({("t", 0): 1})
    assert client.commits == [{0: 1}]


def test_offsets_that_were_refused_are_published_by_the_next_call() -> None:
    """A refusal is raised, and nothing counts as published that Kafka did not take."""
    client = Client(KafkaError.GROUP_AUTHORIZATION_FAILED)
    group = group_of(client)
    with pytest.raises(PublicationFailed, match="group 'billing'"):
        group.publish({("t", 0): 1})
    group.publish({("t", 0): 1})
    assert client.commits == [{0: 1}]


def test_what_failed_in_the_background_is_raised_by_the_next_call() -> None:
    """Nobody else would hear of it."""
    group = group_of(Client(KafkaError.GROUP_AUTHORIZATION_FAILED))
    group.publish_later({("t", 0): 1})
    with pytest.raises(PublicationFailed):
        group.flush()
    group.flush()
