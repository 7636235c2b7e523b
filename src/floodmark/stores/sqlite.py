"""Marks in one SQLite file: the embedded default, safe between the threads and processes of one machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.stores.paged import PagedMarkStore, utc_now
from floodmark.stores.sqlite_pages import SqlitePages

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime


class SqliteMarkStore(PagedMarkStore):
    """Marks in an SQLite database; `select key, val from floodmark_marks` shows them."""

    def __init__(
        self,
        path: str | Path,
        *,
        namespace: str = "default",
        keep_history: int = 100,
        keep_runs: int = 1000,
        patience_seconds: float = 10.0,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.folder = Path(path).parent
        pages = SqlitePages(Path(path), namespace, patience_seconds)
        super().__init__(pages, namespace=namespace, keep_history=keep_history, keep_runs=keep_runs, now=now)
