"""Alerts beside runs: judged after every `run` and at the ticks of a loop; and what a loop shows to Prometheus."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest

from floodmark.errors import SinkFailed, StoreUnreachable
from floodmark.jobs.job import Retries
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import Receipt
from floodmark.testing import FailingStore
from tests.cli.conftest import CommandResult
from tests.cli.test_run import REWRITTEN, tools
from tests.jobs.fakes import ScriptedJob, done

Floodmark = Callable[..., CommandResult]
BROKEN = SinkFailed("a", sink="lake", reason="disk full")
JOB = "jobs:\n  - {name: a, source: {type: files, path: in}, sinks: [{type: console}]}\n"


@pytest.fixture
def project(folder: Path) -> Path:
    """A job, and a file that hears of its failures."""
    (folder / "floodmark.yaml").write_text(
        f"store: memory\n{JOB}alerts: [{{to: file, path: alerts.jsonl, on: [failed_run]}}]\n"
    )
    return folder


def heard(folder: Path) -> list[tuple[str, str, str]]:
    file = folder / "alerts.jsonl"
    sent = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [(alert["kind"], alert["status"], alert["subject"]) for alert in sent]


class Noting(ScriptedJob):
    """A job that leaves a receipt of its failure in the store, as a real one does."""

    def run_request(self, request: object, spark: object = None, store: MemoryMarkStore | None = None) -> Receipt:
        try:
            receipt = super().run_request(request, spark, store)  # type: ignore[arg-type]
        except SinkFailed as error:
            assert store is not None
            store.add_run(Receipt(self.name, "", "failed", done().started, error=str(error)))
            raise
        assert store is not None
        store.add_run(replace(receipt, job=self.name))
        return receipt


def test_a_failed_run_is_told_after_it(project: Path, floodmark: Floodmark) -> None:
    """Nobody has to call `health` for that."""
    assert floodmark("run", tools=tools(Noting("a", [BROKEN]))).code == 1
    assert heard(project) == [("failed_run", "open", "a")]


def test_a_loop_tells_a_failure_once_and_its_end(project: Path, floodmark: Floodmark) -> None:
    """At the tick that failed, and at the one that worked."""
    job = Noting("a", [BROKEN, BROKEN, replace(done(), job="a"), REWRITTEN], retries=Retries(backoff_seconds=0.01))
    floodmark("run", "--every", "1ms", tools=tools(job))
    assert heard(project) == [("failed_run", "open", "a"), ("failed_run", "resolved", "a")]


@pytest.fixture
def workflow(project: Path) -> Path:
    """A workflow file whose one task is the job, and which asks for no notification."""
    (project / "daily.json").write_text(json.dumps({"tasks": [{"task_key": "a", "max_retries": 0}]}))
    return project


def test_a_job_that_fails_in_a_workflow_is_told_after_it(workflow: Path, floodmark: Floodmark) -> None:
    """As after `run`, and whatever the file asks for."""
    assert floodmark("workflow", "run", "daily.json", tools=tools(Noting("a", [BROKEN]))).code == 1
    assert heard(workflow) == [("failed_run", "open", "a")]


def test_a_job_in_a_workflow_sends_the_events_of_its_runs(workflow: Path, floodmark: Floodmark) -> None:
    """To where the project says that `run` sends them."""
    file = workflow / "floodmark.yaml"
    file.write_text(f"{file.read_text()}openlineage: {{file: events.jsonl}}\n")
    floodmark("workflow", "run", "daily.json", tools=tools(Noting("a", [BROKEN])))
    events = [json.loads(line) for line in (workflow / "events.jsonl").read_text().splitlines()]
    assert [(event["eventType"], event["job"]["name"]) for event in events] == [("START", "a"), ("FAIL", "a")]


def test_a_channel_that_fails_does_not_fail_the_run(folder: Path, floodmark: Floodmark) -> None:
    """A broken pager must not break the pipeline."""
    (folder / "floodmark.yaml").write_text(
        f'store: memory\n{JOB}alerts: [{{to: webhook, url: "http://127.0.0.1:9/none"}}]\n'
    )
    said = floodmark("run", tools=tools(Noting("a", [replace(done(), job="a")])))
    assert said.code == 0


LOST = StoreUnreachable("sqlite marks.db", reason="disk gone")
STORE_ALERTS = [("failed_run", "open", "mark store"), ("failed_run", "resolved", "mark store")]


def no_store(_settings: object) -> MemoryMarkStore:
    raise LOST


WITHOUT_STORE = replace(tools(ScriptedJob("a", [done()])), open_store=no_store)


@pytest.mark.parametrize("command", [("run",), ("run", "--retry-failed"), ("health",)])
def test_a_store_that_cannot_be_reached_is_told_and_fails_the_command(
    project: Path, floodmark: Floodmark, command: tuple[str, ...]
) -> None:
    """There is no memory to judge by, but somebody has to know; error and exit code are those of the store."""
    said = floodmark(*command, tools=WITHOUT_STORE)
    assert (said.code, "marks.db cannot be used: disk gone" in said.err) == (1, True)
    assert heard(project) == STORE_ALERTS[:1]


@pytest.mark.parametrize("command", [("run", "--dry-run"), ("health", "--quiet"), ("health", "--select", "a")])
def test_a_command_that_alerts_nobody_tells_of_no_lost_store(
    project: Path, floodmark: Floodmark, command: tuple[str, ...]
) -> None:
    """Whoever only looks sees the error."""
    assert floodmark(*command, tools=WITHOUT_STORE).code == 1
    assert heard(project) == []


def test_a_store_that_was_lost_in_a_run_and_is_back_after_it_is_told_both(project: Path, floodmark: Floodmark) -> None:
    """The run failed, and its receipt could not be kept."""
    assert floodmark("run", tools=tools(ScriptedJob("a", [LOST]))).code == 1
    assert heard(project) == STORE_ALERTS


def test_a_loop_tells_once_that_its_store_is_lost_and_once_that_it_is_back(project: Path, floodmark: Floodmark) -> None:
    """The process remembers what the store cannot."""
    job = ScriptedJob("a", [LOST, LOST, replace(done(), job="a"), REWRITTEN], retries=Retries(backoff_seconds=0.01))
    failing = FailingStore(MemoryMarkStore(), {"read": 1})
    floodmark("run", "--every", "1ms", tools=replace(tools(job), open_store=lambda _: failing))
    assert heard(project) == STORE_ALERTS


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


@pytest.mark.usefixtures("project")
def test_a_loop_shows_its_numbers_where_it_is_asked_to(floodmark: Floodmark) -> None:
    """A scraper sees them between two ticks."""
    port = free_port()
    pages: list[str] = []

    def scrape() -> None:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            pages.append(page.read().decode())

    job = ScriptedJob("a", [done(), done(), REWRITTEN], during=scrape)
    floodmark("run", "--every", "1ms", "--metrics-addr", f"127.0.0.1:{port}", tools=tools(job))
    assert 'pipeline_records_processed_total{job="orders"} 4.0' in pages[-1]


@pytest.mark.usefixtures("project")
def test_a_loop_shows_the_lag_of_the_jobs_that_it_runs(folder: Path, floodmark: Floodmark) -> None:
    """The source is asked at each scrape: no run has read its only file yet."""
    (folder / "in").mkdir()
    (folder / "in" / "one.jsonl").write_text('{"id": 1}\n')
    port, pages = free_port(), list[str]()

    def scrape() -> None:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            pages.append(page.read().decode())

    job = ScriptedJob("a", [replace(done(), job="a"), REWRITTEN], during=scrape)
    floodmark("run", "--every", "1ms", "--metrics-addr", f"127.0.0.1:{port}", tools=tools(job))
    assert 'mark_lag_rows{job="a"} 1.0' in pages[-1]


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--metrics-addr", "127.0.0.1:9090"), "shows the numbers of a loop"),
        (("--loop", "--metrics-addr", "here"), "has no port"),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused(floodmark: Floodmark, options: tuple[str, ...], words: str) -> None:
    """Before anything runs."""
    said = floodmark("run", *options, tools=tools(ScriptedJob("a", [done()])))
    assert (said.code, words in said.err) == (2, True)
