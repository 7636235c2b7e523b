"""Where rows come from. Each source is imported only when it is asked for, so that the command line starts fast."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floodmark.sources.delta import Delta
    from floodmark.sources.files import Files
    from floodmark.sources.kafka import Kafka
    from floodmark.sources.tables.cursor import Cursor
    from floodmark.sources.tables.jdbc import Jdbc
    from floodmark.sources.tables.postgres import Postgres
    from floodmark.sources.tables.sqlite import Sqlite


__all__ = ["Cursor", "Delta", "Files", "Jdbc", "Kafka", "Postgres", "Sqlite"]

HOMES = {
    **{name: f"floodmark.sources.{name.lower()}" for name in ("Delta", "Files", "Kafka")},
    **{name: f"floodmark.sources.tables.{name.lower()}" for name in ("Jdbc", "Postgres", "Sqlite")},
    "Cursor": "floodmark.sources.tables.cursor",
}


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *HOMES])
