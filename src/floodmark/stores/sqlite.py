"""The tables of the SQLite store, how the file comes to be, and one transaction per page."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from floodmark.errors import StoreUnreachable
from floodmark.stores.durable import ensure_folder, locked, sync_folder
from floodmark.stores.memory import MemoryPage
from floodmark.stores.sqlite_page import SqlitePage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from floodmark.stores.page import Page

APPLICATION_ID = 0x464D524B
FORMAT = 1
SCHEMA = f"""
create table floodmark_marks (
    namespace text not null, key text not null, val text not null, number integer not null,
    modified_time text not null, stamp text not null, primary key (namespace, key));
create table floodmark_items (
    namespace text not null, job text not null, source text not null, item not null, number integer not null,
    value text not null, primary key (namespace, job, source, number, item)) without rowid;
create table floodmark_history (
    namespace text not null, key text not null, number integer not null, val text not null,
    primary key (namespace, key, number));
create table floodmark_runs (
    id integer primary key autoincrement, namespace text not null, job text not null, val text not null);
create index floodmark_runs_of_job on floodmark_runs (namespace, job, id);
create table floodmark_leases (namespace text not null, job text not null, val text, primary key (namespace, job));
create table floodmark_looked (
    namespace text not null, job text not null, at text not null, primary key (namespace, job));
pragma application_id = {APPLICATION_ID};
pragma user_version = {FORMAT};
"""
NAMES = """
select key from floodmark_marks where namespace = :namespace
union select job from floodmark_runs where namespace = :namespace
"""


class SqlitePages:
    """One connection, used by one thread at a time: the heartbeat has a thread of its own."""

    def __init__(self, path: Path, namespace: str, patience_seconds: float) -> None:
        self._path, self._namespace, self._patience_seconds = path, namespace, patience_seconds
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    def describe(self) -> str:
        return f"sqlite:///{self._path}"

    def names(self) -> Sequence[str]:
        if not self._path.exists():
            return []
        with self._lock, self._reachable():
            return [job for (job,) in self._open().execute(NAMES, {"namespace": self._namespace})]

    @contextmanager
    def reading(self, job: str) -> Iterator[Page]:
        if not self._path.exists():  # a look or a plan creates nothing
            yield MemoryPage()
            return
        with self._transaction("begin") as connection:
            yield SqlitePage(connection, self._namespace, job)

    @contextmanager
    def writing(self, job: str) -> Iterator[Page]:
        with self._transaction("begin immediate") as connection:
            yield SqlitePage(connection, self._namespace, job)

    def close(self) -> None:
        with self._lock:
            if self._connection:
                self._connection.close()
            self._connection = None

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._lock, self._reachable():
            connection = self._open()
            connection.execute(begin)
            try:
                yield connection
                connection.execute("commit")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("rollback")
                raise

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreUnreachable(self.describe(), reason=f"{type(error).__name__}: {error}") from error

    def _open(self) -> sqlite3.Connection:
        """The connection; a new one if the file was replaced, since the old one would write into a deleted file."""
        if not self._path.exists():
            create(self._path, self._patience_seconds)
        file = self._path.stat()
        if file.st_size == 0:
            raise OSError("the file is empty, and a store never is: it was cut off, or another program made it")
        if self._connection and self._file == (file.st_dev, file.st_ino):
            return self._connection
        self.close()
        self._connection, self._file = connect(self._path, self._patience_seconds), (file.st_dev, file.st_ino)
        return self._connection


def create(path: Path, patience_seconds: float) -> None:
    """Make the database in one piece: built beside its place and renamed, so that nobody ever sees half of it."""
    ensure_folder(path.parent)
    with locked(path.with_name(f"{path.name}.lock"), exclusive=True, patience_seconds=patience_seconds):
        if path.exists():
            return
        fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
        fresh.unlink(missing_ok=True)
        connection = sqlite3.connect(fresh, isolation_level=None)
        connection.executescript(SCHEMA)
        connection.close()
        fresh.replace(path)
        sync_folder(path.parent)


def connect(path: Path, patience_seconds: float) -> sqlite3.Connection:
    """Open a database that is there and ours.

    A rollback journal and not a WAL: the store stays one file that can be copied, also on disks without shared memory.
    `extra` makes the end of the journal durable too, or a power cut right after a commit could undo it.
    """
    uri = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, timeout=patience_seconds, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("pragma synchronous = extra")
        (application,) = connection.execute("pragma application_id").fetchone()
        (version,) = connection.execute("pragma user_version").fetchone()
        if application != APPLICATION_ID:
            raise OSError("this SQLite database was not made by Floodmark")
        if version > FORMAT:
            raise OSError(f"its format is {version}, and this version of Floodmark knows {FORMAT}")
    except BaseException:
        connection.close()
        raise
    return connection
