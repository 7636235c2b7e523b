"""Where rows go; a sink's module is loaded only when it is asked for, and none of them loads pyspark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floodmark.sinks.console import Console
    from floodmark.sinks.delta import Delta
    from floodmark.sinks.delta.dates import DeltaDates
    from floodmark.sinks.files import Files
    from floodmark.sinks.kafka import Kafka
    from floodmark.sinks.postgres import Postgres
    from floodmark.sinks.scd import Scd1, Scd2


__all__ = ["Console", "Delta", "DeltaDates", "Files", "Kafka", "Postgres", "Scd1", "Scd2"]

HOMES = {
    "Console": "console",
    "Delta": "delta",
    "DeltaDates": "delta.dates",
    "Files": "files",
    "Kafka": "kafka",
    "Postgres": "postgres",
    "Scd1": "scd",
    "Scd2": "scd",
}


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *HOMES])
