"""Publishing a group's offsets: what is waited for, and what is an answer."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from floodmark.probes.kafka.group import may_pass


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
