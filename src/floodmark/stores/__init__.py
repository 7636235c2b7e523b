"""Where marks are kept. `open` gives the store of a text; backends are loaded when they are asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from floodmark.stores.opening import open_store as open  # noqa: A004 - it is read as stores.open
from floodmark.stores.opening import register

if TYPE_CHECKING:
    from floodmark.stores.contract import LevelStore, MarkStore
    from floodmark.stores.file import FileMarkStore
    from floodmark.stores.layered import LayeredMarkStore
    from floodmark.stores.lease import HeldLease, Patience, hold
    from floodmark.stores.memory import MemoryMarkStore
    from floodmark.stores.owner import this_process
    from floodmark.stores.postgres import PostgresMarkStore
    from floodmark.stores.record import Intent, JobRecord, Lease, Owner, Receipt
    from floodmark.stores.sqlite import SqliteMarkStore

__all__ = [
    "FileMarkStore",
    "HeldLease",
    "Intent",
    "JobRecord",
    "LayeredMarkStore",
    "Lease",
    "LevelStore",
    "MarkStore",
    "MemoryMarkStore",
    "Owner",
    "Patience",
    "PostgresMarkStore",
    "Receipt",
    "SqliteMarkStore",
    "hold",
    "open",
    "register",
    "this_process",
]

_HOMES = {
    "contract": ("LevelStore", "MarkStore"),
    "file": ("FileMarkStore",),
    "layered": ("LayeredMarkStore",),
    "lease": ("HeldLease", "Patience", "hold"),
    "memory": ("MemoryMarkStore",),
    "owner": ("this_process",),
    "postgres": ("PostgresMarkStore",),
    "record": ("Intent", "JobRecord", "Lease", "Owner", "Receipt"),
    "sqlite": ("SqliteMarkStore",),
}


def __getattr__(name: str) -> object:
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
