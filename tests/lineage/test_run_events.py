"""OpenLineage's events of runs, held against OpenLineage's own Python model."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    column_lineage_dataset,
    error_message_run,
    output_statistics_output_dataset,
    schema_dataset,
)
from openlineage.client.serde import Serde

from floodmark import sinks, sources
from floodmark.lineage.flows import Parts
from floodmark.lineage.run_events import EventFile, EventServer, RunEvents
from floodmark.step.transform import Sql
from floodmark.stores.record import Receipt

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
PARTS = Parts(
    "orders",
    (sources.Files("/incoming", schema="id long, amount double"),),
    Sql("select id, amount * 100 as cents from source"),
    (sinks.Delta("/lake/orders", name="lake"),),
)
DONE = Receipt("orders", "abc123", "done", NOON, 2.5, 1, 7, 100, {"lake": 98})
FAILED = Receipt("orders", "def456", "failed", NOON, 1.0, error="postgresql://me:hunter2@host is away")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the events go."""
    return tmp_path / "lineage" / "events.jsonl"


@pytest.fixture
def events(path: Path) -> RunEvents:
    """The listener of a project with one job."""
    return RunEvents(EventFile(path), "prod", [PARTS])


def told(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_is_told_when_it_begins_and_when_its_mark_has_moved(events: RunEvents, path: Path) -> None:
    """Both with the same id, which is a UUID as the specification asks."""
    events.began("orders", "abc123", NOON)
    events.ended(DONE)
    start, complete = told(path)
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert (start["eventTime"], complete["eventTime"]) == (
        "2026-01-01T12:00:00+00:00",
        "2026-01-01T12:00:02.500000+00:00",
    )


def test_a_failed_run_is_told_with_its_error_and_without_a_secret(events: RunEvents, path: Path) -> None:
    """One that failed before it began has a START all the same."""
    events.failed(FAILED)
    start, fail = told(path)
    assert (start["eventType"], fail["eventType"]) == ("START", "FAIL")
    assert fail["run"]["facets"]["errorMessage"]["message"] == "postgresql://me:***@host is away"


@pytest.mark.parametrize(("place", "state"), [(0, RunState.START), (1, RunState.COMPLETE)])
def test_the_begin_and_the_end_of_a_run_are_events_of_openlineages_own_model(
    events: RunEvents, path: Path, place: int, state: RunState
) -> None:
    """Every field around the datasets, whose facets are held against the model one by one."""
    events.began("orders", "abc123", NOON)
    events.ended(DONE)
    found = told(path)[place]
    modelled = RunEvent(
        eventTime=found["eventTime"], producer=found["producer"], run=Run(found["run"]["runId"]),
        job=Job("prod", "orders"), eventType=state, inputs=[InputDataset("file", "/incoming")],
        outputs=[OutputDataset("file", "/lake/orders")],
    )  # fmt: skip
    output = {name: value for name, value in found["outputs"][0].items() if name in ("namespace", "name")}
    assert plain({**found, "outputs": [output]}) == plain(Serde.to_dict(modelled))


def test_the_end_of_a_run_is_what_openlineages_own_model_makes_of_it(events: RunEvents, path: Path) -> None:
    """Field by field: rows, schema, and where each column comes from."""
    events.ended(DONE)
    [told_event] = told(path)
    [output] = told_event["outputs"]
    producer, lineage = told_event["producer"], output["facets"]["columnLineage"]
    fields = {
        name: column_lineage_dataset.Fields(
            inputFields=[
                column_lineage_dataset.InputField(
                    each["namespace"], each["name"], each["field"],
                    [column_lineage_dataset.Transformation(**change) for change in each["transformations"]],
                )
                for each in column["inputFields"]
            ]
        )
        for name, column in lineage["fields"].items()
    }  # fmt: skip
    listed = [schema_dataset.SchemaDatasetFacetFields(each["name"]) for each in output["facets"]["schema"]["fields"]]
    modelled = OutputDataset(
        "file",
        "/lake/orders",
        {
            "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                98, producer=producer
            )
        },
        facets={
            "columnLineage": column_lineage_dataset.ColumnLineageDatasetFacet(fields, [], producer=producer),
            "schema": schema_dataset.SchemaDatasetFacet(listed, producer=producer),
        },
    )
    assert output["facets"]["columnLineage"]["fields"]["cents"]["inputFields"][0]["field"] == "amount"
    assert plain(output) == plain(Serde.to_dict(modelled))


def test_a_failure_is_what_openlineages_own_model_makes_of_it(events: RunEvents, path: Path) -> None:
    """The whole event, but for what it reads and fills."""
    events.failed(FAILED)
    fail = told(path)[-1]
    error = error_message_run.ErrorMessageRunFacet(
        "postgresql://me:***@host is away", "python", producer=fail["producer"]
    )
    modelled = RunEvent(
        eventTime=fail["eventTime"], producer=fail["producer"], run=Run(fail["run"]["runId"], {"errorMessage": error}),
        job=Job("prod", "orders"), eventType=RunState.FAIL,
    )  # fmt: skip
    assert plain({**fail, "inputs": [], "outputs": []}) == plain(Serde.to_dict(modelled))


def plain(event: object) -> object:
    """Without what is empty, which the model leaves out, and which version of a schema it knows."""
    if isinstance(event, dict):
        kept = {key: plain(value) for key, value in event.items() if key != "_schemaURL" and value not in ("", [], {})}
        return {key: value for key, value in kept.items() if value not in ({}, [], None)}
    return [plain(each) for each in event] if isinstance(event, list) else event


class Collector(BaseHTTPRequestHandler):
    """Takes events as Marquez does."""

    received: list[tuple[str | None, dict[str, Any]]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append((self.headers.get("Authorization"), json.loads(body)))
        self.send_response(201)
        self.end_headers()

    def log_message(self, format: str, *values: object) -> None:  # noqa: A002 - its name there
        """Quietly."""


@pytest.fixture
def collector() -> Iterator[HTTPServer]:
    """On a port of its own."""
    Collector.received = []
    server = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_events_are_posted_with_the_key(collector: HTTPServer) -> None:
    """As a bearer token."""
    events = RunEvents(EventServer(f"http://127.0.0.1:{collector.server_port}/api/v1/lineage", "key1"), "prod", [PARTS])
    events.began("orders", "abc123", NOON)
    [(key, event)] = Collector.received
    assert (key, event["eventType"], event["job"]) == ("Bearer key1", "START", {"namespace": "prod", "name": "orders"})


def test_the_key_is_not_shown() -> None:
    """Not even in a traceback."""
    assert "key1" not in repr(EventServer("http://host", "key1"))
