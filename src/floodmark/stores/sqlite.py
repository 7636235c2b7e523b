"""Marks in one SQLite file: the embedded default, safe between the threads and processes of one machine."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, StoreUnreachable
from floodmark.formats import require_known
from floodmark.logs import get_logger
from floodmark.machine import ensure_folder, file_lock, mount_of, sync_folder
from floodmark.patience import SILENT_SECONDS, saying_after
from floodmark.stores.memory import MemoryPage
from floodmark.stores.paged import PagedMarkStore, utc_now
from floodmark.stores.wire import Entry, ItemRow, compact, end_facts, is_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from floodmark.stores.wire import Page


log = get_logger(__name__)
MINE = "namespace = :namespace and job = :job"
MARK = "namespace = :namespace and key = :job"
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
RECORDED_NAMES = "select key from floodmark_marks where namespace = :namespace"
NAMES = f"{RECORDED_NAMES} union select job from floodmark_runs where namespace = :namespace"


class SqliteMarkStore(PagedMarkStore):
    """Marks in an SQLite database; `select key, val from floodmark_marks` shows them.

    >>> SqliteMarkStore(f"{folder}/floodmark.db", namespace="prod").read("orders") is None
    True
    """

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


class SqlitePages:
    """One connection, used by one thread at a time: the heartbeat has a thread of its own."""

    def __init__(self, path: Path, namespace: str, patience_seconds: float) -> None:
        self._path, self._namespace, self._patience_seconds = path, namespace, patience_seconds
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._is_local = False

    def describe(self) -> str:
        return f"sqlite:///{self._path}"

    def names(self) -> Sequence[str]:
        return self._names_in(NAMES)

    def recorded_names(self) -> Sequence[str]:
        return self._names_in(RECORDED_NAMES)

    def _names_in(self, query: str) -> list[str]:
        if not self._exists():
            return []
        with self._lock, self._reachable():
            return [job for (job,) in self._open().execute(query, {"namespace": self._namespace})]

    @contextmanager
    def reading(self, job: str) -> Iterator[Page]:
        if not self._exists():  # a look or a plan creates nothing
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

    def _exists(self) -> bool:
        """Whether the database is there. Raises ConfigError where it cannot be kept safe."""
        there = self._path.exists()
        if not self._is_local:
            require_local(self._path)  # only now: a disk may be mounted by the first question for a file on it
            self._is_local = True
        return there

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        try:
            with saying_after(SILENT_SECONDS, self._say_that_it_waits):
                yield
        except (sqlite3.Error, OSError) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> StoreUnreachable:
        reason, hint = f"{type(error).__name__}: {error}", ""
        if self._path.is_dir():
            reason, hint = "it is a folder", f"name a file in it: sqlite:///{self._path.name}/marks.db"
        elif "file is not a database" in str(error):
            hint = "name another file: this one is something else, and is left alone"
        return StoreUnreachable(self.describe(), reason=reason, hint=hint)

    def _say_that_it_waits(self) -> None:
        log.warning("waiting for the store: another process may hold its lock", store=self.describe())

    def _open(self) -> sqlite3.Connection:
        """The connection; a new one if the file was replaced, since the old one would write into a deleted file."""
        if not self._exists():
            create(self._path, self._patience_seconds)
        file = self._path.stat()
        if file.st_size == 0:
            raise OSError("the file is empty, and a store never is: it was cut off, or another program made it")
        if self._connection and self._file == (file.st_dev, file.st_ino):
            return self._connection
        self.close()
        self._connection, self._file = connect(self._path, self._patience_seconds), (file.st_dev, file.st_ino)
        return self._connection


class SqlitePage:
    """The rows of one job, inside a transaction."""

    def __init__(self, connection: sqlite3.Connection, namespace: str, job: str) -> None:
        self._connection, self._me = connection, {"namespace": namespace, "job": job}

    def stamp(self) -> str | None:
        return self._text(f"select stamp from floodmark_marks where {MARK}")

    def entry(self) -> Entry | None:
        columns = "select stamp, number, modified_time, val from floodmark_marks"
        row = self._do(f"{columns} where {MARK}").fetchone()
        return Entry(*row) if row else None

    def save(self, entry: Entry) -> None:
        self._do(
            "insert or replace into floodmark_marks (namespace, key, val, number, modified_time, stamp) "
            "values (:namespace, :job, :val, :number, :modified_time, :stamp)",
            val=entry.val,
            number=entry.number,
            modified_time=entry.modified_time,
            stamp=entry.stamp,
        )

    def items(self, source: str, base: int, after: int, upto: int) -> Iterator[tuple[str, str]]:
        # a later base has higher numbers than all rows of an earlier one, so the numbers alone tell them apart
        rows = self._do(
            f"select item, value from floodmark_items where {MINE} and source = :source "
            "and number > :after and number <= :upto order by number",
            source=source,
            after=max(after, base - 1),
            upto=upto,
        )
        return ((_text_of(item), value) for item, value in rows)

    def add_items(self, rows: Sequence[ItemRow]) -> None:
        me = (self._me["namespace"], self._me["job"])
        self._connection.executemany(
            "insert or replace into floodmark_items (namespace, job, source, item, number, value) "
            "values (?, ?, ?, ?, ?, ?)",
            ((*me, row.source, _storable(row.item), row.number, row.value) for row in rows),
        )

    def keep_bases(self, used: frozenset[tuple[str, int]]) -> None:
        sources = self._do(f"select distinct source from floodmark_items where {MINE}").fetchall()
        for (source,) in sources:
            lowest = min((base for name, base in used if name == source), default=None)
            if lowest is None:
                self._do(f"delete from floodmark_items where {MINE} and source = :source", source=source)
            else:
                older = f"delete from floodmark_items where {MINE} and source = :source and number < :lowest"
                self._do(older, source=source, lowest=lowest)

    def history(self, limit: int) -> Sequence[str]:
        newest = f"select val from floodmark_history where {MARK} order by number desc limit :limit"
        return [val for (val,) in self._do(newest, limit=limit)]

    def add_history(self, number: int, val: str, keep: int) -> None:
        self._do(
            "insert or replace into floodmark_history values (:namespace, :job, :number, :val)", number=number, val=val
        )
        self.trim_history(keep)

    def trim_history(self, keep: int) -> None:
        surplus = f"select number from floodmark_history where {MARK} order by number desc limit 1 offset :keep"
        self._do(f"delete from floodmark_history where {MARK} and number <= ({surplus})", keep=keep)

    def runs(self, limit: int) -> Sequence[str]:
        newest = f"select val from floodmark_runs where {MINE} order by id desc limit :limit"
        return [val for (val,) in self._do(newest, limit=limit)]

    def count_runs(self) -> int:
        return int(self._do(f"select count(*) from floodmark_runs where {MINE}").fetchone()[0])

    def run_ends(self, limit: int) -> Sequence[Sequence[object]]:
        return [end_facts(text) for text in self.runs(limit)]

    def runs_named(self, begin: str, limit: int) -> Sequence[str]:
        newest = f"select id, val from floodmark_runs where {MINE} order by id desc limit :limit"
        alike = f"select val from ({newest}) where instr(val, :part) order by id desc"  # parsed are those few alone
        found = self._do(alike, limit=limit, part=compact(begin)[1:-1])
        return [val for (val,) in found if is_named(val, begin)]

    def add_run(self, text: str, keep: int) -> None:
        self._do("insert into floodmark_runs (namespace, job, val) values (:namespace, :job, :val)", val=text)
        self.trim_runs(keep)

    def trim_runs(self, keep: int) -> None:
        surplus = f"select id from floodmark_runs where {MINE} order by id desc limit 1 offset :keep"
        self._do(f"delete from floodmark_runs where {MINE} and id <= ({surplus})", keep=keep)

    def lease(self) -> str | None:
        return self._text(f"select val from floodmark_leases where {MINE}")

    def put_lease(self, text: str | None) -> None:
        if text is None:
            self._do(f"delete from floodmark_leases where {MINE}")
        else:
            self._do("insert or replace into floodmark_leases values (:namespace, :job, :val)", val=text)

    def looked(self) -> str | None:
        return self._text(f"select at from floodmark_looked where {MINE}")

    def put_looked(self, text: str) -> None:
        self._do("insert or replace into floodmark_looked values (:namespace, :job, :at)", at=text)

    def forget(self) -> None:
        for table in ("items", "runs", "leases", "looked"):
            self._do(f"delete from floodmark_{table} where {MINE}")
        for table in ("history", "marks"):
            self._do(f"delete from floodmark_{table} where {MARK}")

    def _do(self, statement: str, **values: str | int) -> sqlite3.Cursor:
        return self._connection.execute(statement, {**self._me, **values})

    def _text(self, query: str) -> str | None:
        row = self._do(query).fetchone()
        return str(row[0]) if row else None


def _storable(item: str) -> str | bytes:
    """Names that are not text (a file's name may be any bytes) are kept as those bytes."""
    try:
        item.encode()
    except UnicodeEncodeError:
        return item.encode("utf-8", "surrogateescape")
    return item


def _text_of(item: str | bytes) -> str:
    return item if isinstance(item, str) else item.decode("utf-8", "surrogateescape")


def require_local(path: Path) -> None:
    """Raise ConfigError for a network disk, where two hosts may both have SQLite's lock.

    Then two runs could both take the lease, or spoil the file. A disk of which nothing is known is taken.
    """
    mount = mount_of(path)
    if mount is not None and mount.is_network_disk:
        raise ConfigError(
            f"store sqlite:///{path} lies on a network disk ({mount.folder} is {mount.kind}), where SQLite's locks do "
            "not keep two hosts apart.",
            hint="put it on a local disk, or use postgresql://… for marks that several hosts share",
        )


def create(path: Path, patience_seconds: float) -> None:
    """Make the database in one piece: built beside its place and renamed, so that nobody ever sees half of it."""
    ensure_folder(path.parent)
    with file_lock(path.with_name(f"{path.name}.lock"), exclusive=True, patience_seconds=patience_seconds):
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
        require_known(version, "the database of the marks", where=str(path), known=FORMAT)
    except BaseException:
        connection.close()
        raise
    return connection
