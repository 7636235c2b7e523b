"""A ledger that a killed run left a transaction open in: who holds the lease ends it, who only looks is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from floodmark.errors import SinkUnreachable
from floodmark.probes.kafka.client import KafkaOptions
from floodmark.sinks.contract import Recorded, answering_at_once, ledger_id
from floodmark.sinks.kafka import Kafka
from floodmark.sinks.kafka.ledger import Layout, LedgerPage
from floodmark.sinks.kafka.producer import LedgerAddress, TransactionalSession
from floodmark.sinks.kafka.writer import WritePlan, Writer
from floodmark.testing.servers import Broker
from tests.sinks.kafka.messages import messages

BROKER_ENDS_IT_SECONDS = 600


@pytest.fixture
def plan(kafka: Broker, topic: Callable[..., str]) -> WritePlan:
    """Batch 1 is out; of batch 2 a transaction is open, whose run is gone."""
    name = topic(partitions=2)
    address = LedgerAddress(KafkaOptions(kafka.bootstrap), name, ledger_id("prod", name, "kafka"))
    written = WritePlan(address, 1, "d1", Layout(2, 1, (0, 0), "intent-1"), chunk_rows=2, chunk_seconds=60)
    Writer(written.with_rows_out({}), 0).run(messages("a"))
    left = TransactionalSession(replace(address, transaction_seconds=BROKER_ENDS_IT_SECONDS), 1, [0, 1])
    left.open()
    left.begin()
    page, group = LedgerPage(2, 1, False, 2, 1, 1, "d2", "intent-2"), left._reader.consumer_group_metadata()
    left._producer.send_offsets_to_transaction([page.offset(name, 0)], group, 10)
    return written


def no_spark() -> None:
    raise AssertionError("Spark was asked for")


def test_what_a_killed_run_left_open_does_not_hide_the_ledger(plan: WritePlan) -> None:
    """The broker would end the transaction after minutes: under the lease its id is taken over first."""
    sink, since = Kafka(plan.address.options.servers, plan.address.topic), time.monotonic()
    sink.end_transactions(plan.address.ledger, no_spark)  # type: ignore[arg-type]
    assert sink.recorded(plan.address.ledger, no_spark) == Recorded(1, "d1")  # type: ignore[arg-type]
    assert time.monotonic() - since < 20


def test_who_only_looks_is_told_within_seconds_what_hides_the_ledger(plan: WritePlan) -> None:
    """Without the lease nobody may end it, and a run that lives would be waited for: the hint says who ends it."""
    sink, since = Kafka(plan.address.options.servers, plan.address.topic), time.monotonic()
    with pytest.raises(SinkUnreachable, match="was killed while it did") as stop:
        answering_at_once(sink).recorded(plan.address.ledger, no_spark)  # type: ignore[arg-type]
    assert ("floodmark run" in stop.value.hint, time.monotonic() - since < 30) == (True, True)
