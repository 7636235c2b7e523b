"""What the program stored when receipts said by which way a sink was written, and records had an identity.

`version_2` holds the formats that changed since `version_1`, and records with all that they had learnt to keep. It was
written by the program of that day; never change what is there. `health_store` and `health.db` hold what health
remembered when it began to keep which channel has heard of what.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from floodmark.cli.marks.transfer import read_export
from floodmark.health.alerts import AlertLog, HealthMemory, Subscription, announce, recall, remember
from floodmark.health.report import Finding, Report
from floodmark.sinks.kafka.ledger import LedgerPage
from floodmark.stores import FileMarkStore, SqliteMarkStore, hold
from floodmark.stores.extras import RecordIdentity, SinkLedger
from floodmark.stores.paged import PagedMarkStore
from floodmark.streams.elements import HealedElement, PassedElement, RecordId
from floodmark.streams.healer.dead_letters import DeadLetters
from floodmark.streams.task.folder import StateFolder
from floodmark.streams.task.journal import DONE, FAILED, UNTOUCHED, Journal, RawRecord, read_failures
from floodmark.streams.task.kept import last_memory, read_healed_rows, read_waiting

SECOND = Path(__file__).with_name("version_2")
ORDERS = "orders", 0
NOON = datetime(2026, 11, 15, 12, tzinfo=timezone.utc)
RAW = RawRecord(b"k", b"v", (("h", b"x"),), 1_790_000_000_000)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A copy, since some of it is written to."""
    return Path(shutil.copytree(SECOND, tmp_path / "stored"))


@pytest.fixture(params=["file", "sqlite"])
def store(request: pytest.FixtureRequest, stored: Path) -> PagedMarkStore:
    """The same records in either store."""
    if request.param == "file":
        return FileMarkStore(stored / "file_store")
    return SqliteMarkStore(stored / "marks.db")


@pytest.fixture(params=["file", "sqlite"])
def health_store(request: pytest.FixtureRequest, stored: Path) -> PagedMarkStore:
    """What health remembered, in either store."""
    if request.param == "file":
        return FileMarkStore(stored / "health_store")
    return SqliteMarkStore(stored / "health.db")


def test_what_each_channel_has_heard_is_read(health_store: PagedMarkStore) -> None:
    """Who heard of an alert hears of its end, also after an upgrade; a channel that heard of nothing is told it."""
    heard = {"log": {"stale:orders": "critical"}, "webhook 0123456789ab": {}}
    memory = HealthMemory({"lake/orders": 12}, {"stale:orders": "critical"}, heard)
    assert recall(health_store) == memory
    well = Report(NOON, (Finding("data_freshness", "orders", "HEALTHY", "FRESH", {}, "stale"),))
    after = announce(well, memory, [Subscription(AlertLog())])
    remember(health_store, after)
    assert (after.deliveries, recall(health_store)) == ({"log": {}}, after)


def test_a_record_is_read_with_its_identity_and_what_its_sinks_confirmed(store: PagedMarkStore) -> None:
    """By these a run knows its own batches, and notices a sink that lost one."""
    record = store.read("orders")
    assert record is not None
    assert (record.number, record.marks["orders"].value) == (2, 200)
    assert record.extras.identity == RecordIdentity("aaaabbbbcccc", ("ddddeeeeffff",))
    assert record.extras.sinks == {
        "lake": SinkLedger("floodmark.default.orders.lake", "delta /lake/orders", 2),
        "@dead_letters": SinkLedger("floodmark.default.orders.dead_letters", "delta /lake/dead", 2),
    }
    assert record.extras.source("orders").held_rows == {"rows": 3}


def test_an_open_batch_is_read_with_where_it_goes_and_whose_it_is(store: PagedMarkStore) -> None:
    """Its digest is compared with those that sinks keep: another one would stop the run."""
    record = store.read("orders")
    assert record is not None
    assert record.intent is not None
    extras = record.intent.extras
    assert (record.intent.number, record.intent.spool) == (3, "spool/3-attempt-1")
    assert record.intent.digest == "82be03e479f61b7b@aaaabbbbcccc"
    assert {name: sink.number for name, sink in (extras.sinks or {}).items()} == {"lake": 3, "@dead_letters": 3}
    assert extras.sources == {"orders": "postgres orders"}


def test_a_receipt_says_by_which_way_a_sink_was_written(store: PagedMarkStore) -> None:
    """Since its second version."""
    [receipt] = store.runs("orders")
    assert (receipt.written_by, receipt.rows_quarantined, receipt.rows_dead) == ({"lake": "arrow"}, 1, 1)


def test_a_record_is_saved_on_top_of_what_was_there(store: PagedMarkStore) -> None:
    """Nothing that it learnt is lost by the first save after an upgrade."""
    with hold(store, "orders") as lease:
        before = store.read("orders")
        assert before is not None
        lease.save(replace(before, marks={"orders": before.marks["orders"].update(300)}), after=before)
    after = store.read("orders")
    assert after is not None
    assert (after.number, after.marks["orders"].value, after.extras) == (4, 300, before.extras)


def test_an_export_has_the_identity_too() -> None:
    """Whoever takes the marks over goes on with the sinks of the record."""
    [record] = read_export(SECOND / "export.json")
    assert record.extras.identity == RecordIdentity("aaaabbbbcccc", ("ddddeeeeffff",))


def test_a_page_of_the_ledger_of_a_topic_is_read() -> None:
    """Its second version names fences, and has a hash of the rows."""
    from confluent_kafka import TopicPartition

    page = LedgerPage.from_offset(TopicPartition("orders", 0, 4, (SECOND / "kafka_page.json").read_text()))
    assert page == LedgerPage(4, 10, True, 2, 2, 3, "d1ge5t@aaaabbbbcccc", "token", False, "abc123")


def test_what_a_stream_keeps_in_its_third_version_is_read(stored: Path) -> None:
    """Journal and failures as ever; healed rows by share, what waits for the stream, and what steps know."""
    folder = StateFolder(stored / "stream_state")
    with Journal.open(folder.states(2, ORDERS), 10) as journal:
        states = [journal.offsets(state) for state in (DONE, FAILED, UNTOUCHED)]
    healed = [row for path in folder.all_healed_rows(2, ORDERS) for row in read_healed_rows(path)]
    [waiting] = read_waiting(folder.all_passed_elements(2, ORDERS))
    assert states == [[10, 12, 13], [11], [14, 15]]
    assert read_failures(folder.failures(ORDERS))[11].error == "ValueError: still no"
    assert healed == [HealedElement(4, {"id": 5}, 12)]
    assert waiting.passed == PassedElement(3, {"id": 6}, (RecordId("orders", 0, 13),), "map")
    assert (waiting.raw_records, waiting.call) == ((RAW,), "call-1")
    assert last_memory(folder.memories, 2) == {"2 unique": ["a", "b"]}


def test_dead_letters_of_a_stream_in_todays_shape_are_read(stored: Path) -> None:
    """As rows of a job that were put aside."""
    [letter] = DeadLetters(stored / "stream_state" / "dead").all()
    assert (letter.record, letter.attempts, letter.status, letter.number) == (RecordId("orders", 0, 9), 3, "open", 1)
