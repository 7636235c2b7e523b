"""The frame of every batch, with an engine whose verbs only note that they were called."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from floodmark import stores
from floodmark.errors import LeaseLost
from floodmark.hwm import FileListHWM
from floodmark.step.engine import Clock, Engine, OpenBatch, session_under
from floodmark.stores.lease import HeldLease, hold, this_process
from floodmark.stores.record import Intent, JobRecord, Receipt
from floodmark.stores.run_logs import RunLogs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from floodmark.stores.contract import MarkStore

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def no_session() -> SparkSession:
    raise AssertionError("nothing here needs Spark")


@dataclass(frozen=True)
class Rows:
    """A look that found so many rows."""

    count: int
    held_back: int = 0
    idle_notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.count


@dataclass(frozen=True)
class NotingEngine(Engine[Rows]):
    """Plans a batch over whatever the next look finds, and notes the verbs."""

    looks: list[Rows]
    calls: list[str] = field(default_factory=list)
    finishes: bool = True
    meanwhile: Callable[[], None] = lambda: None

    @property
    def job(self) -> str:
        return "orders"

    def look(self, record: JobRecord) -> Rows:
        self.calls.append("look")
        found = self.looks.pop(0)
        self.meanwhile()
        return found

    def remember(self, record: JobRecord, look: Rows) -> None:
        self.calls.append("remember")

    def recover(self, record: JobRecord) -> OpenBatch[Rows] | None:
        self.calls.append("recover")
        intent = record.intent
        return OpenBatch(record, replace(intent, attempt="again"), None) if intent and self.finishes else None

    def plan(self, record: JobRecord, look: Rows) -> OpenBatch[Rows]:
        self.calls.append(f"plan {look.count}")
        return OpenBatch(record, intent_of(record.number + 1), look)

    def carry_out(self, batch: OpenBatch[Rows], lease: HeldLease, clock: Clock) -> Receipt:
        stored = self.store.read(self.job)
        self.calls.append(f"carry out {stored.intent.attempt if stored and stored.intent else None}")
        receipt = Receipt(self.job, "r", "done", clock.started, number=batch.intent.number)
        done = replace(batch.record, number=batch.intent.number, modified_time=NOON)
        self.store.commit(done, expected=batch.record.number, lease=lease.lease, receipt=receipt)
        return receipt


def intent_of(number: int) -> Intent:
    return Intent(number, "batch", {}, NOON, "first", None, {})


@pytest.fixture
def store(tmp_path: Path) -> MarkStore:
    return stores.open(f"file://{tmp_path}/marks")


def begin(store: MarkStore, number: int) -> None:
    """An earlier run was killed after it had intended this batch."""
    with hold(store, "orders") as lease:
        store.intend(JobRecord("orders", intent=intent_of(number)), expected=0, lease=lease.lease)


def test_a_look_that_finds_nothing_takes_no_lease(store: MarkStore) -> None:
    """Another run may hold it: there is nothing to wait for."""
    engine = NotingEngine(store, no_session, [Rows(0, held_back=2, idle_notes=("somebody writes",))])
    with hold(store, "orders"):
        receipt = engine.run()
    assert (receipt.status, receipt.rows_held_back, receipt.notes) == ("nothing_new", 2, ("somebody writes",))
    assert (engine.calls, store.jobs()) == (["look", "remember"], [])


def test_a_batch_is_durable_before_it_is_carried_out(store: MarkStore) -> None:
    """The intent is in the store when the first write may happen."""
    engine = NotingEngine(store, no_session, [Rows(3)])
    assert (engine.run().number, engine.calls) == (1, ["look", "plan 3", "carry out first"])


def test_an_open_batch_is_finished_without_a_look(store: MarkStore) -> None:
    """What came since is for the next batch."""
    begin(store, 1)
    engine = NotingEngine(store, no_session, [])
    assert (engine.run().number, engine.calls) == (1, ["recover", "carry out again"])


def test_an_open_batch_that_is_dropped_uses_up_its_number(store: MarkStore) -> None:
    """Whoever still holds it is fenced; the next batch is planned under a number above it."""
    begin(store, 4)
    engine = NotingEngine(store, no_session, [Rows(2)], finishes=False)
    assert (engine.run().number, engine.calls) == (5, ["recover", "look", "plan 2", "carry out first"])


def test_a_look_is_void_if_the_record_changed_before_the_lease_was_held(store: MarkStore) -> None:
    """Another run moved the mark meanwhile: its rows must not be read again."""
    other = NotingEngine(store, no_session, [Rows(3)])
    engine = NotingEngine(store, no_session, [Rows(3), Rows(0)], meanwhile=lambda: other.run() if other.looks else None)
    assert (engine.run().status, engine.calls, other.calls[-1]) == ("nothing_new", ["look", "look"], "carry out first")


def test_a_store_that_reads_its_record_anew_each_time_costs_no_second_look(
    store: MarkStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the record changed is asked by its value, and not by which object the store returns."""
    NotingEngine(store, no_session, [Rows(1)]).run()
    read = store.read
    monkeypatch.setattr(store, "read", lambda job, known=None: (record := read(job)) and replace(record))
    engine = NotingEngine(store, no_session, [Rows(3)])
    assert (engine.run().number, engine.calls) == (2, ["look", "plan 3", "carry out first"])


def test_a_run_that_lost_its_lease_does_not_decide_about_an_open_batch(
    store: MarkStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would fence the batch that its successor is writing."""
    begin(store, 1)
    engine = NotingEngine(store, no_session, [])
    monkeypatch.setattr(store, "lease", lambda job: None)
    with pytest.raises(LeaseLost):
        engine.run()
    assert engine.calls == []


def test_every_part_of_a_run_is_timed(store: MarkStore) -> None:
    """A person who wants to know where the time went finds it under these names."""
    engine, clock = NotingEngine(store, no_session, [Rows(3)]), Clock()
    engine.run_timed(clock)
    assert list(clock.seconds) == ["look", "plan", "intent"]


def test_a_mark_is_shown_once_and_again_when_it_has_moved(store: MarkStore, caplog: pytest.LogCaptureFixture) -> None:
    """A loop that finds nothing would else fill its log with the same line."""
    engine = NotingEngine(store, no_session, [Rows(0), Rows(0), Rows(1), Rows(0)])
    levels = []
    for _ in range(4):
        with caplog.at_level(logging.DEBUG):
            engine.run()
        levels.append([each.levelname for each in caplog.records if "using the mark" in each.getMessage()])
        caplog.clear()
    assert levels == [["INFO"], ["DEBUG"], ["DEBUG"], ["INFO"]]


def test_a_list_of_files_is_logged_as_people_read_it(store: MarkStore, caplog: pytest.LogCaptureFixture) -> None:
    """How many, and their names; the whole paths of six files were cut in the middle of one."""
    engine = NotingEngine(store, no_session, [Rows(0)])
    with caplog.at_level(logging.INFO):
        engine.log_mark(
            JobRecord("orders", number=1, marks={"files": FileListHWM("in", ["/in/a.jsonl", "/in/b.jsonl"])})
        )
    assert "2 files: a.jsonl, b.jsonl" in caplog.text


def test_a_run_that_writes_keeps_its_log_and_one_that_only_looked_does_not(store: MarkStore) -> None:
    """Under the id of its clock, from its first line on."""
    looked, wrote = Clock(), Clock()
    logs = RunLogs.of(store)
    assert logs is not None
    NotingEngine(store, no_session, [Rows(0)]).run_timed(looked)
    engine = NotingEngine(store, no_session, [Rows(1), Rows(1)])
    engine.run_timed(wrote)
    engine.run()
    assert logs.lines("orders", looked.run) is None
    assert logs.lines("orders", wrote.run), "not kept by a batch of its own"
    _, last = logs.find("last", "orders")
    lines = logs.lines("orders", last) or []
    assert last != wrote.run
    assert [line["event"] for line in lines][:2] == ["the log begins", "using the mark"]


def left_by_a_dead_client(store: MarkStore) -> None:
    """The lease of a process that is gone, with a session of a server that may still work for it."""
    dead = replace(this_process(), started="1", remote=("sc://elsewhere:15002/;session_id=1",))
    store.take_lease("orders", dead, over=None)


def test_work_that_a_dead_client_left_on_a_server_is_ended_before_a_session_is_used(
    store: MarkStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Once: after that the lease does not speak of it any more. Here it cannot be reached, which is said."""
    local = cast("Any", SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=None))))
    left_by_a_dead_client(store)
    with hold(store, "orders") as lease:
        use = session_under(lease, lambda: local)
        assert (use(), use()) == (local, local)
        stored = store.lease("orders")
        assert stored is not None
        assert (lease.left_over, stored.owner.remote) == ((), ())
    assert caplog.text.count("worked on another server") == 1


def test_a_lease_knows_the_session_of_a_server_before_it_is_used(store: MarkStore) -> None:
    """Whoever comes after a kill has to find it."""
    remote_type = type("RemoteDouble", (SimpleNamespace,), {"__module__": "pyspark.sql.connect.session"})
    client = SimpleNamespace(_user_id="ann", _session_id="7", host="spark.example:15002", _builder=None)
    with hold(store, "orders") as lease:
        session_under(lease, lambda: cast("Any", remote_type(client=client)))()
        stored = store.lease("orders")
    assert stored is not None
    assert stored.owner.remote == ("sc://spark.example:15002/;user_id=ann;session_id=7",)
