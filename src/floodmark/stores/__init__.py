"""Where marks are kept. `open` gives the store of a text; backends are loaded when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.lazy import export_lazily

if TYPE_CHECKING:
    from floodmark.machine import replace_file as replace_file
    from floodmark.stores.contract import LevelStore as LevelStore
    from floodmark.stores.contract import MarkStore as MarkStore
    from floodmark.stores.file import FileMarkStore as FileMarkStore
    from floodmark.stores.layered import LayeredMarkStore as LayeredMarkStore
    from floodmark.stores.lease import HeldLease as HeldLease
    from floodmark.stores.lease import Patience as Patience
    from floodmark.stores.lease import hold as hold
    from floodmark.stores.lease import this_process as this_process
    from floodmark.stores.memory import MemoryMarkStore as MemoryMarkStore
    from floodmark.stores.memory import MemoryPage as MemoryPage
    from floodmark.stores.opening import open as open  # noqa: A004 - it is read as stores.open
    from floodmark.stores.opening import register as register
    from floodmark.stores.paged import PagedMarkStore as PagedMarkStore
    from floodmark.stores.postgres import PostgresMarkStore as PostgresMarkStore
    from floodmark.stores.record import Intent as Intent
    from floodmark.stores.record import JobRecord as JobRecord
    from floodmark.stores.record import Lease as Lease
    from floodmark.stores.record import Owner as Owner
    from floodmark.stores.record import Receipt as Receipt
    from floodmark.stores.sqlite import SqliteMarkStore as SqliteMarkStore
    from floodmark.stores.wire import Entry as Entry
    from floodmark.stores.wire import ItemRow as ItemRow

export_lazily(__name__)
