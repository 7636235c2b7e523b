"""Where rows come from. Each source is imported only when it is asked for, so that the command line starts fast."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floodmark.sources.delta import Delta
    from floodmark.sources.files import Files
    from floodmark.sources.jdbc import Jdbc
    from floodmark.sources.kafka import Kafka
    from floodmark.sources.postgres import Postgres
    from floodmark.sources.sqlite import Sqlite
    from floodmark.sources.table_cursor import Cursor

__all__ = ["Cursor", "Delta", "Files", "Jdbc", "Kafka", "Postgres", "Sqlite"]

HOMES = {
    **{name: f"floodmark.sources.{name.lower()}" for name in __all__},
    "Cursor": "floodmark.sources.table_cursor",
}


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *HOMES])
