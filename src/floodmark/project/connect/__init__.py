"""A configuration of Redpanda Connect that polls a table, as a project file that does the same.

`translate` reads it; whatever has no counterpart becomes a note, and what would change which rows arrive is refused.
The parts stand beside it: `polling` for how a table is read, `outputs` for where rows go and where the mark is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from floodmark.errors import ConfigError
from floodmark.inputs import LARGEST_DOCUMENT, read_text
from floodmark.inputs.yaml import parse
from floodmark.project.connect.configuration import Component, Configuration, Note
from floodmark.project.connect.outputs import delivery_of, store_of
from floodmark.project.connect.polling import polling_of
from floodmark.project.file import Document, Variables
from floodmark.project.loading import load

if TYPE_CHECKING:
    from floodmark.project.connect.outputs import Delivery
    from floodmark.project.connect.polling import Polling

__all__ = ["Component", "Note", "Translation", "translate"]

IGNORED = {
    "http": "Connect's own HTTP server: `floodmark run --metrics-addr` has the metrics",
    "logger": "logs are chosen by `--log-level` and `--log-format`",
    "metrics": "`floodmark run --metrics-addr HOST:PORT` has them for Prometheus",
    "tracer": "there are no traces; every run leaves a receipt",
    "shutdown_timeout": "SIGTERM finishes the current batch",
    "shutdown_delay": "SIGTERM finishes the current batch",
}
KNOWN = {"input", "pipeline", "output", "cache_resources", *IGNORED}


@dataclass(frozen=True)
class Translation:
    """The project file as values, and what its reader has to know."""

    origin: str
    values: dict[str, Any]
    notes: tuple[Note, ...]

    def text(self) -> str:
        """The project file: every note as a comment, then the project."""
        lines = [f"# Made from {self.origin}, a configuration of Redpanda Connect, by `floodmark import-config`."]
        lines += ["# What is not the same here:"] * bool(self.notes) + [f"# - {note}" for note in self.notes]
        body = yaml.safe_dump(self.values, sort_keys=False, default_flow_style=False, allow_unicode=True, width=1000)
        return "\n".join(lines) + "\n" + body


def translate(file: Path) -> Translation:
    """The project that does what the configuration does. Raises ConfigError with file and line."""
    text = read_text(file, hint="floodmark import-config pipeline.yaml", largest=LARGEST_DOCUMENT)
    values, lines = parse(text, file.name)
    if not isinstance(values, dict) or not {"input", "output"} <= values.keys():
        raise ConfigError(
            f"{file.name} has no input and output.", hint="give the configuration that `rpk connect run` runs"
        )
    configuration = Configuration(file.name, values, lines)
    _note_the_rest(configuration)
    polling, delivery = polling_of(configuration), delivery_of(configuration)
    _compare(polling, delivery, configuration)
    project = {"store": store_of(configuration, polling, delivery), "jobs": [_job(polling, delivery)]}
    made = Translation(file.name, project, tuple(configuration.notes))
    load(Document(Path("floodmark.yaml"), *_reparsed(made), Variables(_AnyValue())))
    return made


def _note_the_rest(configuration: Configuration) -> None:
    for name in configuration.values:
        if name not in KNOWN:
            configuration.note((name,), f"{name}: it has no counterpart and is left out")
        elif name in IGNORED:
            configuration.note((name,), f"{name}: {IGNORED[name]}")


def _compare(polling: Polling, delivery: Delivery, configuration: Configuration) -> None:
    """The mark that is read has to be the one that is written."""
    if delivery.mark is None:
        configuration.note(
            ("output",), f"no output saves the mark '{polling.key}': here it is saved after every batch that arrived"
        )
        return
    mark = delivery.mark
    if (mark.cache, mark.key) != (polling.cache, polling.key):
        raise configuration.error(
            mark.place,
            f"the mark is read from {polling.cache}/{polling.key}, and saved to {mark.cache}/{mark.key}",
            hint="name the same cache and key in both places",
        )
    if mark.field != polling.field:
        raise configuration.error(
            mark.place,
            f"the query is given the field '{polling.field}', and the field '{mark.field}' is saved",
            hint="name the same field in both places",
        )
    if mark.column != polling.column:
        raise configuration.error(
            mark.place,
            f"the query compares the column '{polling.column}', and the mark is taken from '{mark.column}'",
            hint="take the mark from the column that the query compares",
        )


def _job(polling: Polling, delivery: Delivery) -> dict[str, Any]:
    every = {"every": polling.every} if polling.every else {}
    transform = {"transform": {"sql": polling.transform}} if polling.transform else {}
    return {"name": polling.job_name, "source": polling.source, **transform, "sinks": delivery.sinks, **every}


def _reparsed(made: Translation) -> tuple[Any, Any]:
    return parse(made.text(), "floodmark.yaml")


class _AnyValue(dict[str, str]):
    """Every variable has a value, so that a project can be checked where its variables are not set."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return "value"
