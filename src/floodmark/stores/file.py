"""Marks in plain files: one file per job, replaced by rename, so that a reader sees the old record or the new one."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.errors import StoreUnreachable
from floodmark.stores.durable import ensure_folder, locked
from floodmark.stores.file_page import FilePage
from floodmark.stores.mark_file import peek
from floodmark.stores.names import file_name
from floodmark.stores.paged import PagedMarkStore, utc_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from floodmark.stores.page import Page


class FileMarkStore(PagedMarkStore):
    """Marks in a folder; a folder of its own below it for every namespace."""

    def __init__(
        self,
        folder: str | Path,
        *,
        namespace: str = "default",
        keep_history: int = 100,
        keep_runs: int = 1000,
        patience_seconds: float = 10.0,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.folder = Path(folder)
        pages = FilePages(self.folder, namespace, patience_seconds)
        super().__init__(pages, namespace=namespace, keep_history=keep_history, keep_runs=keep_runs, now=now)


class FilePages:
    """The files of one namespace."""

    def __init__(self, root: Path, namespace: str, patience_seconds: float) -> None:
        self._root, self._folder = root, root / file_name(namespace)
        self._patience_seconds = patience_seconds

    def describe(self) -> str:
        return f"file:{self._root}"

    def names(self) -> Sequence[str]:
        with self._reachable():
            firsts = [peek(path, path.name, self.describe()) for path in self._folder.glob("*.mark.jsonl")]
            return [first["job"] for first in firsts if first]

    @contextmanager
    def reading(self, job: str) -> Iterator[Page]:
        stem = file_name(job)
        lock = self._folder / f"{stem}.lock"
        with self._reachable():
            if not lock.exists():  # nobody has written here yet, and a look writes nothing
                yield FilePage(self._folder, stem, job, self.describe())
                return
            with locked(lock, exclusive=False, patience_seconds=self._patience_seconds):
                yield FilePage(self._folder, stem, job, self.describe())

    @contextmanager
    def writing(self, job: str) -> Iterator[Page]:
        stem = file_name(job)
        with self._reachable():
            ensure_folder(self._folder)
            with locked(self._folder / f"{stem}.lock", exclusive=True, patience_seconds=self._patience_seconds):
                page = FilePage(self._folder, stem, job, self.describe())
                yield page
                page.flush()

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreUnreachable(self.describe(), reason=f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Nothing stays open between two calls."""
