"""Sinks that are asked which batches they have, and do not answer: nobody waits for them longer than asked."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from deltalake import write_deltalake

import floodmark as fm
from floodmark.errors import SinkBehind
from floodmark.health.alerts import judge
from floodmark.health.report import SinkUnseen
from floodmark.health.tables import TableLooks
from floodmark.patience import answers_in_time
from floodmark.project.backlog import rows_behind, sinks_behind
from floodmark.project.health import examine_project
from floodmark.project.kinds import Site
from floodmark.project.models import Project
from floodmark.stores.extras import RecordExtras, SinkLedger
from floodmark.stores.lease import hold
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import JobRecord


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield silent.getsockname()[1]


@pytest.fixture
def project(silent_port: int) -> Project:
    """A job with a topic of a broker that does not answer, and with a table."""
    topic = {"type": "kafka", "bootstrap": f"127.0.0.1:{silent_port}", "topic": "orders", "name": "topic"}
    table = {"type": "delta", "path": "lake", "name": "lake"}
    job = {"name": "orders", "source": {"type": "files", "path": "in"}, "sinks": [topic, table]}
    return Project.model_validate({"jobs": [job]})


@pytest.fixture
def store(tmp_path: Path) -> MemoryMarkStore:
    """The table had confirmed two batches."""
    target = fm.sinks.Delta(str(tmp_path / "lake")).describe()
    confirmed = RecordExtras().with_sinks({"lake": SinkLedger("floodmark.default.orders.lake", target, 2)})
    store = MemoryMarkStore()
    with hold(store, "orders") as held:
        store.commit(JobRecord("orders", 2, extras=confirmed), expected=0, lease=held.lease)
    return store


def test_a_sink_that_does_not_answer_in_time_is_unseen_with_that_reason(
    project: Project, store: MemoryMarkStore, tmp_path: Path
) -> None:
    """The other sinks of the job are asked all the same."""
    begin = time.monotonic()
    topic, table = sinks_behind(project.jobs, Site(tmp_path), store, patience_seconds=1.0)["orders"]
    assert time.monotonic() - begin < 8
    assert topic == SinkUnseen("orders", "topic", "no answer within 1 s")
    assert isinstance(table, SinkBehind)
    assert (table.sink, table.confirmed) == ("lake", 2)


def test_a_table_that_only_spark_finds_is_unknown_and_alerts_nobody(store: MemoryMarkStore, tmp_path: Path) -> None:
    """A run asks it before each batch, and fails if batches are lost; an alert that nobody can end helps nobody."""
    table = {"type": "delta", "table": "main.shop.lake", "name": "lake"}
    job = {"name": "orders", "source": {"type": "files", "path": "in"}, "sinks": [table]}
    project = Project.model_validate({"jobs": [job]})
    report, memory = examine_project(project, Site(tmp_path), store, datetime.now(timezone.utc))
    [found] = [each for each in report.findings if each.subject == "job orders, sink lake"]
    assert (found.status, report.overall) == ("UNKNOWN", "WARNING")
    assert "it can only be looked at with a Spark session" in found.message
    assert [alert.id for alert in judge(report, memory.alerts)[0]] == ["lag:orders"]  # of a record without a time


def test_health_does_not_wait_for_a_broker_that_is_down(
    project: Project, store: MemoryMarkStore, tmp_path: Path
) -> None:
    """It says UNKNOWN, and has more to tell; `report`, the first page and a loop's alerts ask the same."""
    begin = time.monotonic()
    report, _ = examine_project(project, Site(tmp_path), store, datetime.now(timezone.utc))
    assert time.monotonic() - begin < 10
    [unseen] = [each for each in report.findings if each.subject == "job orders, sink topic"]
    assert (unseen.status, unseen.message) == (
        "UNKNOWN",
        "could not ask which batches it has: no answer within 3 s",
    )


def test_many_that_answer_are_all_heard_however_long_they_take_together() -> None:
    """Patience is with silence: it begins again with every answer."""
    questions = {number: lambda number=number: (time.sleep(0.1), number)[1] for number in range(8)}
    assert answers_in_time(questions, 0.4, at_once=1) == {number: number for number in range(8)}


def test_those_that_are_silent_do_not_keep_others_from_being_asked() -> None:
    """Their places are taken by the next ones."""
    questions = {"silent": lambda: time.sleep(5), "last": lambda: None}
    assert answers_in_time(questions, 0.2, at_once=1) == {"last": None}


def test_a_look_opens_the_log_of_a_table_once_whoever_asks(
    store: MemoryMarkStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is looked at, its ledger is compared, and the job that reads it is asked how far it is behind."""
    table = {"type": "delta", "path": "lake", "name": "lake"}
    filling = {"name": "orders", "source": {"type": "files", "path": "in"}, "sinks": [table]}
    reading = {"name": "reader", "source": table, "sinks": [{"type": "console"}]}
    project = Project.model_validate({"jobs": [filling, reading]})
    write_deltalake(tmp_path / "lake", pa.table({"id": [1, 2, 3]}))
    opened: list[str] = []

    class Opened(deltalake.DeltaTable):
        def __init__(self, place: str, **options: object) -> None:
            opened.append(place)
            super().__init__(place, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(deltalake, "DeltaTable", Opened)
    looks, site = TableLooks(), Site(tmp_path)
    for _ in range(2):
        report, _ = examine_project(project, site, store, datetime.now(timezone.utc), looks)
        assert [each.subject for each in report.findings if "batch 2" in each.message] == ["job orders, sink lake"]
        assert rows_behind(project.jobs, site, store, tables=looks) == {"reader": 3}
    assert opened == [str(tmp_path / "lake")]
