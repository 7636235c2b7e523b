"""What earlier versions stored is read, and what a later one stored is refused.

`version_1` was written by the program as it was before formats had versions (0.1.0 in development). Never change what
is there: a new version of a format gets a folder of its own, made by the program that first writes it.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import socket
import sqlite3
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.cli.marks.transfer import read_export
from floodmark.errors import FormatTooNew
from floodmark.health.alerts import HealthMemory, recall
from floodmark.hwm import FileListHWM, FileMoment, FileStat, is_same_batch
from floodmark.jobs.workflow.running import Memory
from floodmark.machine import start_of_process, this_machine
from floodmark.probes.delta import Commit
from floodmark.sinks.delta.lock import LOCK_FILE, Holder, TableBusy, table_lock
from floodmark.sinks.files.folders import Manifest, manifest_of
from floodmark.sinks.kafka.ledger import LedgerPage
from floodmark.step.spool import RowCounts, Spool
from floodmark.stores import FileMarkStore, Receipt, SqliteMarkStore, hold
from floodmark.stores.record import JobRecord, RuleOutcome
from floodmark.streams.elements import HealedElement, RecordId
from floodmark.streams.healer.dead_letters import DeadLetters
from floodmark.streams.task.folder import StateFolder
from floodmark.streams.task.journal import DONE, FAILED, UNTOUCHED, Journal, read_failures
from floodmark.streams.task.kept import read_healed_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from floodmark.stores.paged import PagedMarkStore

FIRST = Path(__file__).with_name("version_1")
NOON = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)
ORDERS = "orders", 0


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A copy of everything that version 1 stored: some of it is written to."""
    return Path(shutil.copytree(FIRST, tmp_path / "stored"))


@pytest.fixture(params=["file", "sqlite"])
def store(request: pytest.FixtureRequest, stored: Path) -> PagedMarkStore:
    if request.param == "file":
        return FileMarkStore(stored / "file_store")
    return SqliteMarkStore(stored / "marks.db")


def test_every_kind_of_mark_is_read(store: PagedMarkStore) -> None:
    """A mark's value is what decides which rows come next."""
    record = store.read("kinds")
    assert record is not None
    assert {name: mark.value for name, mark in record.marks.items()} == {
        "int": 2**60,
        "decimal": Decimal("1.10"),
        "date": date(2026, 10, 31),
        "datetime": datetime(2026, 10, 31, 1, 2, 3, 456789, tzinfo=timezone.utc),
        "text": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "version": 7,
        "composite": (datetime(2026, 10, 31, tzinfo=timezone.utc), 5),
        "modified": FileMoment(1_793_000_000_123_456_789, "/in/a.json"),
        "offsets": {0: 10, 1: 20},
        "topics": {"orders": {0: 10}, "clicks": {0: 3, 1: 4}},
        "tables": {"orders": 3, "clicks": 9},
    }
    assert record.marks["int"].entity == "orders"


def test_an_open_batch_is_read_with_everything_that_finishes_it(store: PagedMarkStore) -> None:
    """A crash before an upgrade is finished after it: same span, same number, same spool."""
    record = store.read("orders")
    assert record is not None
    assert record.intent is not None
    span = record.intent.spans["orders"]
    assert (record.number, record.marks["orders"].value) == (2, 200)
    assert (record.intent.number, record.intent.spool, record.intent.attempt) == (3, "spool/attempt-1", "attempt-1")
    assert (span.after, span.upto.value, span.detail) == (record.marks["orders"], 300, {"split": 4})
    assert record.extras.source("orders").held_rows == {"rows": 3}


def test_lists_of_files_history_receipts_leases_and_looks_are_read(store: PagedMarkStore) -> None:
    """Nothing that a store kept is lost by an upgrade."""
    files = store.read("files")
    lease = store.lease("orders")
    newest = store.runs("orders")[0]
    assert files is not None
    assert lease is not None
    assert isinstance(files.marks["files"], FileListHWM)
    assert files.marks["files"].value == {"/in/a.json": FileStat(10, 1), "/in/b.json": FileStat(20, 2)}
    assert [old.number for old in store.history("files")] == [2, 1]
    assert [old.marks["orders"].value for old in store.history("orders")] == [200, 100]
    assert (lease.owner.pid, lease.owner.jvm_pid, lease.beat) == (1234, 5678, 0)
    assert store.last_looked("orders") == NOON
    assert (newest.run, newest.rows_read, newest.rows_written) == ("run-2", 100, {"lake": 98})
    assert newest.rules == (RuleOutcome("not_null(id)", "quarantine", 1, 100, ("{}",)),)


def test_a_receipt_of_the_second_version_is_read() -> None:
    """It knew by which way a sink was written, and neither restated dates nor what Spark used."""
    stored = Receipt("orders", "run-2", "done", NOON, written_by={"lake": "arrow"}).serialize()
    of_then = {name: fact for name, fact in stored.items() if name not in ("restated", "resources")}
    read = Receipt.deserialize(of_then)
    assert (read.written_by, read.restated, read.resources) == ({"lake": "arrow"}, {}, {})


def test_what_health_and_workflows_remember_is_read(store: PagedMarkStore) -> None:
    """The next examination compares with the last one, and the next run of a workflow goes on where it stopped."""
    assert recall(store) == HealthMemory({"lake/orders": 12}, {"late:orders": "critical"})
    with hold(store, "workflow.nightly") as lease:
        last = Memory(store, lease).last()
    assert last is not None
    assert {key: task.state for key, task in last.tasks.items()} == {"load": "SUCCESS", "report": "FAILED"}


def test_a_store_of_the_first_version_is_written_on(store: PagedMarkStore) -> None:
    """The first save after an upgrade needs no migration by hand."""
    with hold(store, "files") as lease:
        before = store.read("files")
        assert before is not None
        mark = before.marks["files"].update({"/in/c.json": (30, 3)})
        lease.save(replace(before, marks={"files": mark}), after=before)
    store.add_run(Receipt("files", "run-3", "done", NOON))
    after = store.read("files")
    assert after is not None
    assert (after.number, len(after.marks["files"].value)) == (3, 3)
    assert [run.run for run in store.runs("files")] == ["run-3"]


def test_exported_marks_are_read() -> None:
    """An export may lie for years."""
    records = {record.job: record for record in read_export(FIRST / "export.json")}
    assert records["orders"].marks["orders"].value == 200
    assert set(records) == {"files", "floodmark.health", "kinds", "orders", "stream", "workflow.nightly"}


def test_the_ledgers_of_sinks_are_read() -> None:
    """By them a repeated batch is known, also across an upgrade."""
    from confluent_kafka import TopicPartition

    note = {"version": 3, "userMetadata": (FIRST / "delta_note.json").read_text()}
    commit = Commit.parse(note)
    page = LedgerPage.from_offset(TopicPartition("orders", 0, 4, (FIRST / "kafka_page.json").read_text()))
    manifest = Manifest("floodmark.default.orders.out", 4, "d1ge5t", "orders", 2, {"part-0.json": 2})
    assert manifest_of(FIRST / "files_sink", 4) == manifest
    assert (commit.ledger, commit.number, commit.digest) == ("floodmark.default.orders.lake", 4, "d1ge5t")
    assert page == LedgerPage(4, 10, True, 2, 2, 3, "d1ge5t", "token")


def test_the_digest_of_an_earlier_version_is_taken_for_its_batch() -> None:
    """A sink that it wrote has a digest without an identity; the open batch gets one when this version finishes it."""
    assert is_same_batch("b0cbc47b90465091", "b0cbc47b90465091@87bff7044a0e")
    assert not is_same_batch("b0cbc47b90465091@aaaabbbbcccc", "b0cbc47b90465091@87bff7044a0e")
    assert not is_same_batch("0000c47b90465091", "b0cbc47b90465091@87bff7044a0e")


def test_a_finished_spool_is_read() -> None:
    """A batch that was frozen before an upgrade is delivered from its spool."""
    assert Spool(str(FIRST / "spool")).counts() == RowCounts(read=100, dead=2)


def test_what_a_stream_keeps_is_read(stored: Path) -> None:
    """Journals, failures and dead letters: who waits, who failed and how often, who was given up."""
    folder = StateFolder(stored / "stream_state")
    letters = DeadLetters(folder.dead_letters).all()
    failed = read_failures(folder.failures(ORDERS))
    with Journal.open(folder.states(2, ORDERS), 10) as journal:
        states = [journal.offsets(state) for state in (DONE, FAILED, UNTOUCHED)]
    assert states == [[10, 12, 13], [11], [14, 15]]
    assert (failed[11].attempts, failed[11].error, failed[11].raw.value) == (2, "ValueError: still no", b"v")
    assert [(letter.record, letter.status) for letter in letters] == [
        (RecordId("orders", 0, 11), "open"),
        (RecordId("orders", 0, 15), "discarded"),
    ]


def test_the_healed_rows_of_a_turn_that_version_2_began_are_found(tmp_path: Path) -> None:
    """It had one file for a partition; a turn that an upgrade cut off still gives its results to what follows."""
    folder = StateFolder(tmp_path)
    folder.prepare(2)
    old = folder.turn(2) / "orders.0.arrivals"
    old.write_bytes(pickle.dumps((4, ({"offset": 11}, b"v"))))
    rows = [row for path in folder.all_healed_rows(2, ORDERS) for row in read_healed_rows(path)]
    assert rows == [HealedElement(4, ({"offset": 11}, b"v"))]


def test_letters_of_a_stream_are_gone_on_with_in_todays_shape(stored: Path) -> None:
    """What was kept stays, and an older program is told that it cannot read what was added."""
    letters = DeadLetters(stored / "stream_state" / "dead")
    [waiting] = letters.open_letters()
    letters.add([replace(waiting, record=RecordId("orders", 0, 20), number=3)])
    letters.resolve(waiting.record, "replayed", at=9.0)
    assert [(row.id, row.status, row.number) for row in letters.rows()] == [
        ("orders/0/11", "replayed", 0),
        ("orders/0/15", "discarded", 0),
        ("orders/0/20", "open", 3),
    ]
    assert (stored / "stream_state" / "format").read_text() == "3\n"


def test_the_lock_of_a_table_is_read(tmp_path: Path) -> None:
    """Two versions side by side on one machine still commit one after the other; one of another host is passed over."""
    stored = json.loads((FIRST / "delta_lock.json").read_text())
    me = {"host": socket.gethostname(), "boot": this_machine().boot, "pid": os.getpid()}
    here = {**stored, **me, "started": start_of_process(os.getpid())}
    (tmp_path / LOCK_FILE).write_text(json.dumps(here))
    with pytest.raises(TableBusy) as busy, table_lock(tmp_path, None, patience_seconds=0):
        pass
    assert busy.value.holder == Holder(**{name: here[name] for name in ("host", "boot", "pid", "started", "token")})
    (tmp_path / LOCK_FILE).write_text(json.dumps(stored))
    with table_lock(tmp_path, None, patience_seconds=0):
        pass


def newer(text: str, version: int = 2) -> str:
    """The same JSON as a later version would mark it."""
    return json.dumps({**json.loads(text), "format": version})


def rewrite(file: Path, change: Callable[[str], str] = newer) -> None:
    file.write_text(change(file.read_text()))


def newer_first_line(text: str) -> str:
    first, rest = text.split("\n", 1)
    return f"{newer(first)}\n{rest}"


def newer_record(text: str) -> str:
    first, record, rest = text.split("\n", 2)
    return f"{first}\n{newer(record)}\n{rest}"


def newer_receipts(text: str) -> str:
    return text.replace('{"run":{', '{"run":{"format":4,')


def kafka_page(text: str) -> LedgerPage | None:
    from confluent_kafka import TopicPartition

    return LedgerPage.from_offset(TopicPartition("orders", 0, 4, text))


MARK_FILE = "file_store/default/orders.mark.jsonl"
READERS: dict[str, Callable[[Path], Any]] = {
    "mark file": lambda home: (rewrite(home / MARK_FILE, newer_first_line), store_in(home).read("orders")),
    "record": lambda home: (rewrite(home / MARK_FILE, newer_record), store_in(home).read("orders")),
    "receipt": lambda home: (rewrite(home / MARK_FILE, newer_receipts), store_in(home).runs("orders")),
    "lease": lambda home: (rewrite(home / "file_store/default/orders.lease.json"), store_in(home).lease("orders")),
    "database": lambda home: newer_database(home / "marks.db").read("orders"),
    "export": lambda home: (rewrite(home / "export.json", newer_export), read_export(home / "export.json")),
    "files sink": lambda home: (
        rewrite(home / "files_sink/batch=4/_floodmark.json"),
        manifest_of(home / "files_sink", 4),
    ),
    "delta commit": lambda _: Commit.parse({"version": 1, "userMetadata": '{"floodmark": {"format": 2}}'}),
    "kafka ledger": lambda home: kafka_page(newer((home / "kafka_page.json").read_text(), 3)),
    "spool": lambda home: (rewrite(home / "spool/_floodmark.json"), Spool(str(home / "spool")).counts()),
    "stream": lambda home: (
        (home / "stream_state/format").write_text("4\n"),
        StateFolder(home / "stream_state").prepare(3),
    ),
    "dead letters": lambda home: (
        (home / "stream_state/format").write_text("4\n"),
        DeadLetters(home / "stream_state/dead").all(),
    ),
}


def store_in(home: Path) -> FileMarkStore:
    return FileMarkStore(home / "file_store")


def newer_database(path: Path) -> SqliteMarkStore:
    with sqlite3.connect(path) as connection:
        connection.execute("pragma user_version = 2")
    return SqliteMarkStore(path)


def newer_export(text: str) -> str:
    return text.replace("floodmark-marks/1", "floodmark-marks/2")


@pytest.mark.parametrize("what", READERS)
def test_a_newer_format_is_refused_by_name(what: str, stored: Path) -> None:
    """An older program says what it met and what helps; it never guesses."""
    with pytest.raises(FormatTooNew) as refused:
        READERS[what](stored)
    assert refused.value.found == refused.value.known + 1
    assert "upgrade floodmark" in refused.value.hint
    assert refused.value.exit_code == 5


def test_a_reset_does_not_replace_what_a_newer_version_wrote(stored: Path) -> None:
    """It replaces a record that is damaged; one that this program is too old for is whole."""
    rewrite(stored / MARK_FILE, newer_record)
    store = store_in(stored)
    lease = store.lease("orders")
    assert lease is not None
    with pytest.raises(FormatTooNew):
        store.commit(JobRecord("orders", 9, origin="reset"), expected=0, lease=lease)
