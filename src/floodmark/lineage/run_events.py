"""OpenLineage's events of runs: START, COMPLETE and FAIL, as a line of a file or a POST to whoever collects them.

The events are the documented JSON and not objects of a client library: they are a few names and numbers beside what
`floodmark lineage --json` prints already, and a library for that would be the heaviest part of a small install. The
tests hold them against OpenLineage's own model.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from floodmark.errors import ConfigError
from floodmark.lineage.flows import Parts, dataset_of
from floodmark.lineage.graph import PRODUCER, SPEC, facets_of, lineage_of, name_parts
from floodmark.logs import redact

if TYPE_CHECKING:
    from floodmark.hwm import Json
    from floodmark.lineage.datasets import Dataset
    from floodmark.lineage.flows import Flow
    from floodmark.project.kinds import Site
    from floodmark.project.kinds.monitoring import OpenLineage
    from floodmark.stores.record import Receipt


RUN_EVENT = f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
ERROR = f"{SPEC}/facets/1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet"
STATISTICS = f"{SPEC}/facets/1-0-2/OutputStatisticsOutputDatasetFacet.json#/$defs/OutputStatisticsOutputDatasetFacet"
RUNS = uuid.uuid5(uuid.NAMESPACE_URL, "urn:floodmark:run")
"""Run ids of OpenLineage are UUIDs: ours become one by name, the same for all events of a run."""
PATIENCE_SECONDS = 5.0
"""A run waits no longer for whoever collects its events."""


class EventPlace(Protocol):
    """Where events go."""

    def send(self, event: Mapping[str, Json]) -> None:
        """Hand one over; raises OSError if it was not taken."""


@dataclass(frozen=True)
class EventFile:
    """One JSON object per line."""

    path: Path

    def send(self, event: Mapping[str, Json]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(event, ensure_ascii=False) + "\n")


@dataclass(frozen=True)
class EventServer:
    """A POST to an address such as `https://marquez:5000/api/v1/lineage`, with a key in its header if there is one."""

    url: str
    api_key: str | None = field(default=None, repr=False)

    def send(self, event: Mapping[str, Json]) -> None:
        from urllib.error import HTTPError
        from urllib.request import Request, urlopen

        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        request = Request(self.url, json.dumps(event).encode(), headers, method="POST")  # noqa: S310
        try:
            with urlopen(request, timeout=PATIENCE_SECONDS):  # noqa: S310 - the operator's own address
                return
        except HTTPError as error:
            error.close()
            raise ConnectionError(f"it answered {error.code}") from None


@dataclass
class RunEvents:
    """Listens to runs and tells OpenLineage; a job whose SQL only Spark can read is told without what it reads."""

    place: EventPlace
    namespace: str
    parts: Sequence[Parts]
    _begun: set[str] = field(default_factory=set)

    def began(self, job: str, run: str, at: datetime) -> None:
        self._begun.add(run)
        self.place.send(self._event("START", job, run, at))

    def ended(self, receipt: Receipt) -> None:
        self._begun.discard(receipt.run)
        event = self._event("COMPLETE", receipt.job, receipt.run, end_time(receipt))
        self.place.send({**event, "outputs": self._counted(receipt)})

    def failed(self, receipt: Receipt) -> None:
        """A run that failed before it began is told from its beginning: each has one START and one end."""
        if receipt.run not in self._begun:
            self.place.send(self._event("START", receipt.job, receipt.run, receipt.started))
        self._begun.discard(receipt.run)
        event = self._event("FAIL", receipt.job, receipt.run, end_time(receipt))
        facts = {"message": redact(receipt.error or ""), "programmingLanguage": "python"}
        error: dict[str, Json] = {"errorMessage": {"_producer": PRODUCER, "_schemaURL": ERROR, **facts}}
        self.place.send(
            {**event, "run": {"runId": run_uuid(self.namespace, receipt.job, receipt.run), "facets": error}}
        )

    def _event(self, kind: str, job: str, run: str, at: datetime) -> dict[str, Json]:
        flow = self._flows.get(job)
        return {
            "eventType": kind,
            "eventTime": at.isoformat(),
            "producer": PRODUCER,
            "schemaURL": RUN_EVENT,
            "run": {"runId": run_uuid(self.namespace, job, run)},
            "job": {"namespace": self.namespace, "name": job},
            "inputs": [name_parts(dataset) for dataset in flow.inputs] if flow else [],
            "outputs": [self._output(dataset, flow) for dataset in flow.outputs] if flow else [],
        }

    def _output(self, dataset: Dataset, flow: Flow) -> dict[str, Json]:
        return {**name_parts(dataset), "facets": facets_of(flow.outputs[dataset])}

    def _counted(self, receipt: Receipt) -> list[Json]:
        flow = self._flows.get(receipt.job)
        if flow is None:
            return []
        by_sink = {str(getattr(sink, "name", "")): dataset_of(sink) for sink in self._sinks(receipt.job)}
        rows = {by_sink[sink]: count for sink, count in receipt.rows_written.items() if sink in by_sink}
        return [
            {**self._output(dataset, flow), **({"outputFacets": _row_count(rows[dataset])} if dataset in rows else {})}
            for dataset in flow.outputs
        ]

    def _sinks(self, job: str) -> Sequence[object]:
        return next((part.sinks for part in self.parts if part.name == job), ())

    @cached_property
    def _flows(self) -> dict[str, Flow]:
        """By job; found when the first run has something to do, since the tables' logs are read for it."""
        try:
            return {flow.job: flow for flow in lineage_of(self.parts).flows}
        except ConfigError:
            return {part.name: flow for part in self.parts for flow in _flow_alone(part)}


def _flow_alone(part: Parts) -> Sequence[Flow]:
    try:
        return lineage_of([part]).flows
    except ConfigError:
        return ()


def run_events_of(settings: OpenLineage, parts: Sequence[Parts], site: Site, namespace: str) -> RunEvents:
    """The listener that a project asks for."""
    server = EventServer(settings.url, settings.api_key) if settings.url else None
    return RunEvents(server or EventFile(Path(site.path(settings.file or ""))), namespace, parts)


def run_uuid(namespace: str, job: str, run: str) -> str:
    """The run as OpenLineage knows it."""
    return str(uuid.uuid5(RUNS, f"{namespace}/{job}/{run}"))


def end_time(receipt: Receipt) -> datetime:
    """When the run was over."""
    return receipt.started + timedelta(seconds=receipt.seconds)


def _row_count(rows: int) -> dict[str, Json]:
    return {"outputStatistics": {"_producer": PRODUCER, "_schemaURL": STATISTICS, "rowCount": rows}}
