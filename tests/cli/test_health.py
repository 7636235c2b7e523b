"""`floodmark health` and `alerts`: the document, the exit code, alerts that are told once."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from floodmark import stores
from floodmark.cli.invocation import LazySession, Tools
from floodmark.errors import RecordsFailed
from floodmark.hwm import ColumnIntHWM
from floodmark.stores.lease import hold
from floodmark.stores.record import JobRecord, Receipt
from floodmark.streams import Stream, healing, retry
from floodmark.streams.healer.unsettled import TurnLimit
from floodmark.streams.running import run_once
from tests.cli.conftest import CommandResult
from tests.streams.local_cluster import LocalCluster, Log

Floodmark = Callable[..., CommandResult]
PROJECT = """store: sqlite:///marks.db
jobs:
  - name: orders
    source: {type: files, path: in}
    sinks: [{type: delta, path: lake/orders}]
health: {tables: {prices: {path: lake/prices, min_rows: 5}}}
alerts: [{to: file, path: alerts.jsonl}]
"""


@pytest.fixture
def project(folder: Path) -> Path:
    """A job that ran once, and two tables."""
    (folder / "floodmark.yaml").write_text(PROJECT)
    write_deltalake(folder / "lake" / "orders", pa.table({"id": [1, 2, 3]}))
    write_deltalake(folder / "lake" / "prices", pa.table({"sku": ["a"]}))
    store, now = stores.open("sqlite:///marks.db", folder=folder), datetime.now(timezone.utc)
    with hold(store, "orders") as held:
        record = JobRecord("orders", 1, {"files": ColumnIntHWM(name="seq", value=3)}, modified_time=now)
        receipt = Receipt("orders", "r", "done", now, 1.0, 1, 1, 3, {"delta": 3})
        store.commit(record, expected=0, lease=held.lease, receipt=receipt)
    store.close()
    return folder


def test_the_document_has_the_five_checks_and_the_worst_of_them(project: Path, floodmark: Floodmark) -> None:
    """A warning does not fail the command."""
    said = floodmark("health", "--json")
    document = json.loads(said.out)
    assert (said.code, document["overall_status"]) == (0, "WARNING")
    assert {name: check["status"] for name, check in document["checks"].items()} == {
        "data_freshness": "HEALTHY",
        "record_counts": "WARNING",
        "data_quality": "HEALTHY",
        "processing_offsets": "HEALTHY",
        "performance_metrics": "HEALTHY",
    }
    assert document["checks"]["record_counts"]["subjects"]["prices"]["message"] == "1 row, at least 5 expected"
    assert len(document["recommendations"]) == 1
    assert project.exists()


def test_a_critical_finding_is_exit_1(project: Path, floodmark: Floodmark) -> None:
    """A table that is gone."""
    (project / "lake" / "orders").rename(project / "lake" / "elsewhere")
    said = floodmark("health")
    assert (said.code, said.out.splitlines()[0]) == (1, "CRITICAL")


def test_an_alert_is_told_once_and_again_when_it_ends(project: Path, floodmark: Floodmark) -> None:
    """Five looks, two lines: a count that a batch changed too much is told until the next batch, not the next look."""
    floodmark("health")
    floodmark("health")
    assert floodmark("alerts", "list").out.splitlines()[1] == "warning   count:prices"
    write_deltalake(project / "lake" / "prices", pa.table({"sku": list("abcdefgh")}), mode="append")
    floodmark("health")
    floodmark("health")
    assert floodmark("alerts", "list").out.splitlines()[1] == "warning   count:prices"
    write_deltalake(project / "lake" / "prices", pa.table({"sku": ["i"]}), mode="append")
    floodmark("health")
    lines = [json.loads(line) for line in (project / "alerts.jsonl").read_text().splitlines()]
    assert [(line["id"], line["status"]) for line in lines] == [("count:prices", "open"), ("count:prices", "resolved")]


class Hook(BaseHTTPRequestHandler):
    """Keeps what it is posted."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.alerts.append((body["id"], body["status"]))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
        """Quiet."""


@contextmanager
def hook_at(port: int) -> Iterator[list[tuple[str, str]]]:
    """A webhook on this port, and what it hears: the id and status of each alert."""
    server = HTTPServer(("127.0.0.1", port), Hook)
    server.alerts = alerts = []  # type: ignore[attr-defined, var-annotated]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield alerts
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_channel_that_was_down_hears_of_the_alert_once_it_is_up(project: Path, floodmark: Floodmark) -> None:
    """What it still has to hear is in the store; the other channel hears nothing twice."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    hook = f'{{to: webhook, url: "http://127.0.0.1:{port}/hook"}}'
    (project / "floodmark.yaml").write_text(PROJECT.replace("alerts: [", f"alerts: [{hook}, "))
    floodmark("health")
    with hook_at(port) as alerts:
        floodmark("health")
        floodmark("health")
    assert alerts == [("count:prices", "open")]
    assert len((project / "alerts.jsonl").read_text().splitlines()) == 1


def test_quiet_sends_nothing_and_remembers_nothing(project: Path, floodmark: Floodmark) -> None:
    """For whoever only wants to look."""
    floodmark("health", "--quiet")
    assert not (project / "alerts.jsonl").exists()
    assert floodmark("alerts", "list").out == "no alert is open\n"


def test_channels_can_be_tried(project: Path, floodmark: Floodmark) -> None:
    """Before the night in which they are needed."""
    said = floodmark("alerts", "test")
    assert (said.code, said.out.endswith("alerts.jsonl: sent\n")) == (0, True)
    assert json.loads((project / "alerts.jsonl").read_text())["id"] == "test:floodmark"


@pytest.mark.usefixtures("project")
def test_alerts_without_a_place_are_refused(folder: Path, floodmark: Floodmark) -> None:
    """A webhook needs an address."""
    (folder / "floodmark.yaml").write_text("alerts: [{to: webhook}]\n")
    said = floodmark("health")
    assert (said.code, "alerts to webhook need `url`" in said.err) == (2, True)


@pytest.mark.usefixtures("folder")
def test_two_tables_of_one_folder_name_are_told_apart_by_their_jobs(folder: Path, floodmark: Floodmark) -> None:
    """Neither hides the other, here and in `optimize`, which takes its tables from the same list."""
    jobs = [
        f"{{name: {name}, source: {{type: files, path: in}}, sinks: [{{type: delta, path: {name}/t}}]}}"
        for name in "ab"
    ]
    (folder / "floodmark.yaml").write_text(f"store: memory\njobs: [{', '.join(jobs)}]\n")
    checks = json.loads(floodmark("health", "--json").out)["checks"]
    assert list(checks["data_freshness"]["subjects"]) == ["a.t", "b.t"]
    assert "one of: a.t, b.t" in floodmark("optimize", "--select", "t").err


@pytest.mark.usefixtures("folder")
def test_optimize_before_the_first_run_says_so_without_spark(folder: Path, floodmark: Floodmark) -> None:
    """There is nothing to look after yet, which is no failure."""
    job = "{name: orders, source: {type: files, path: in}, sinks: [{type: delta, path: lake/orders}]}"
    (folder / "floodmark.yaml").write_text(f"store: memory\njobs: [{job}]\n")
    no_spark = LazySession(lambda: pytest.fail("no session is needed"))
    said = floodmark("optimize", tools=Tools(session=lambda _settings: no_spark))
    assert (said.code, said.out.splitlines()[1].split("  ")[-1]) == (0, "no run has written to it yet")


def stuck_at_b(source: Stream) -> None:
    """Steps that fail on one record."""
    source.map(lambda row: row if row[1] != b"b" else int("b")).sink(healing, stream=source)


def test_a_stream_that_failed_is_named_with_its_record_and_is_no_job_to_run(
    project: Path, floodmark: Floodmark
) -> None:
    """No project file knows it: partition, offset, age, attempts, error, and what to do about a stream."""
    cluster = LocalCluster(project / "state", Log({0: {0: b"a", 1: b"b"}}, {0: 2}), stores.open("sqlite:///marks.db"))
    with pytest.raises(RecordsFailed):
        run_once(cluster.healer(stuck_at_b))
    said = floodmark("health", "--json")
    found = json.loads(said.out)["checks"]["processing_offsets"]["subjects"]["g"]
    assert (said.code, found["status"]) == (1, "CRITICAL")
    where = re.escape("stream 'g' is stuck at t/0, offset 1, since ")
    error = re.escape(" s, 1 attempt: map(<lambda>) (step 1): ValueError: invalid")
    assert re.search(rf"{where}\d+{error}", found["message"])
    assert "g: fix what its last run says, then start the program of this stream" in said.out


def test_a_stream_that_tries_again_is_a_warning_with_its_record(project: Path, floodmark: Floodmark) -> None:
    """It runs on, and says what it waits for."""
    cluster = LocalCluster(project / "state", Log({0: {0: b"a", 1: b"b"}}, {0: 2}), stores.open("sqlite:///marks.db"))
    healer = cluster.healer(stuck_at_b, retry(3, "1h"))
    healer.begin()
    healer.turn(TurnLimit())
    said = floodmark("health", "--json")
    found = json.loads(said.out)["checks"]["processing_offsets"]["subjects"]["g"]
    assert (found["status"], "t/0, offset 1, since 0 s, 1 attempt: map" in found["message"]) == ("WARNING", True)
    assert found["message"].startswith("records wait to be healed, as of 20")


@pytest.mark.usefixtures("project")
def test_metrics_name_every_job_and_table(floodmark: Floodmark) -> None:
    """Printed for a collector; nothing is judged, so nothing fails."""
    said = floodmark("health", "--metrics")
    assert said.code == 0
    assert 'table_files{table="orders"} 1.0' in said.out.splitlines()
    assert 'pipeline_records_processed{job="orders"} 3.0' in said.out.splitlines()


def test_what_is_said_of_many_jobs_in_the_same_words_is_one_line(folder: Path, floodmark: Floodmark) -> None:
    """A project whose 200 jobs have yet to run is read at a glance; the document has every one of them."""
    job = "  - {{name: j{0}, source: {{type: files, path: in}}, sinks: [{{type: delta, path: lake/t{0}}}]}}\n"
    (folder / "floodmark.yaml").write_text("store: memory\njobs:\n" + "".join(job.format(n) for n in range(200)))
    (folder / "in").mkdir()
    assert [re.split(r"  +", line) for line in floodmark("health", "--quiet").out.splitlines()[2:]] == [
        ["CRITICAL", "data_freshness", "t0, t1, t2 and 197 more", "there is no such table"],
        ["CRITICAL", "record_counts", "t0, t1, t2 and 197 more", "there is no such table"],
        ["WARNING", "processing_offsets", "j0, j1, j2 and 197 more", "it has never run"],
        ["Try: t0, t1, t2 and 197 more: run the job that fills it, and look at `floodmark runs` for why it did not"],
        ["Try: j0, j1, j2 and 197 more: `floodmark run --select NAME`"],
    ]
    document = json.loads(floodmark("health", "--quiet", "--json").out)
    assert len(document["checks"]["record_counts"]["subjects"]) == 200
