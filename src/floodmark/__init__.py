"""Incremental pipelines on Spark: read what lies above the mark, write it to every sink, and only then raise the mark.

The names below load on first use, so that `import floodmark` costs nothing and needs no Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floodmark import hwm, rules, sinks, sources, stores, streams
    from floodmark.jobs.job import Job
    from floodmark.spark.session import spark_session
    from floodmark.stores.record import Receipt
    from floodmark.streams.records import heal


__version__ = "0.1.0"

__all__ = [
    "Job",
    "Receipt",
    "__version__",
    "heal",
    "hwm",
    "rules",
    "sinks",
    "sources",
    "spark_session",
    "stores",
    "streams",
]

_HOMES = {
    "Job": "floodmark.jobs.job",
    "Receipt": "floodmark.stores.record",
    "heal": "floodmark.streams.records",
    "spark_session": "floodmark.spark.session",
}
_FOLDERS = frozenset({"hwm", "rules", "sinks", "sources", "stores", "streams"})


def __getattr__(name: str) -> object:
    """Import the module behind a public name when it is first asked for."""
    if name in _FOLDERS:
        return import_module(f"floodmark.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'floodmark' has no attribute '{name}'")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted(__all__)
