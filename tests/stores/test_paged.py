"""The laws, on every store that is claimed."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from floodmark.machine import file_name
from floodmark.stores import FileMarkStore, LayeredMarkStore, MemoryMarkStore, PostgresMarkStore, SqliteMarkStore
from floodmark.stores.memory import MemoryPages
from floodmark.testing.laws import MarkStoreLaws
from floodmark.testing.laws.records import OpenStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from floodmark.stores.contract import MarkStore


def sqlite_bytes(path: Path, job: str) -> bytes:
    """The row of a job, as another program sees it."""
    row = sqlite3.connect(path).execute("select * from floodmark_marks where key = ?", [job]).fetchone()
    return repr(row).encode()


def spoil_sqlite(path: Path, job: str) -> None:
    """Cut the record of a job in two."""
    with sqlite3.connect(path) as connection:
        connection.execute("update floodmark_marks set val = substr(val, 1, 40) where key = ?", [job])
        connection.execute("update floodmark_marks set stamp = 'spoiled' where key = ?", [job])


class TestMemory(MarkStoreLaws):
    """Memory: two stores over the same pages stand for two processes."""

    @pytest.fixture
    def pages(self) -> MemoryPages:
        return MemoryPages()

    @pytest.fixture
    def open_store(self, pages: MemoryPages) -> OpenStore:
        def opened(*, namespace: str = "default", keep_history: int = 100, keep_runs: int = 1000) -> MarkStore:
            return MemoryMarkStore(pages, namespace=namespace, keep_history=keep_history, keep_runs=keep_runs)

        return opened

    @pytest.fixture
    def stored_bytes(self, pages: MemoryPages) -> Callable[[str], bytes]:
        return lambda job: repr(pages.all["default", job].saved).encode()

    @pytest.fixture
    def spoil(self, pages: MemoryPages) -> Callable[[str], None]:
        def cut(job: str) -> None:
            page = pages.all["default", job]
            assert page.saved is not None
            page.saved = replace(page.saved, stamp="spoiled", val=page.saved.val[:40])

        return cut


class TestFile(MarkStoreLaws):
    """Files in a folder."""

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        def opened(*, namespace: str = "default", keep_history: int = 100, keep_runs: int = 1000) -> MarkStore:
            place = tmp_path / "marks"
            return FileMarkStore(place, namespace=namespace, keep_history=keep_history, keep_runs=keep_runs)

        return opened

    @pytest.fixture
    def stored_bytes(self, tmp_path: Path) -> Callable[[str], bytes]:
        return lambda job: (tmp_path / "marks" / "default" / f"{file_name(job)}.mark.jsonl").read_bytes()

    @pytest.fixture
    def spoil(self, tmp_path: Path) -> Callable[[str], None]:
        def cut(job: str) -> None:
            path = tmp_path / "marks" / "default" / f"{file_name(job)}.mark.jsonl"
            path.write_bytes(path.read_bytes()[:200])

        return cut


class TestSqlite(MarkStoreLaws):
    """One database file."""

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        def opened(*, namespace: str = "default", keep_history: int = 100, keep_runs: int = 1000) -> MarkStore:
            place = tmp_path / "state" / "marks.db"
            return SqliteMarkStore(place, namespace=namespace, keep_history=keep_history, keep_runs=keep_runs)

        return opened

    @pytest.fixture
    def stored_bytes(self, tmp_path: Path) -> Callable[[str], bytes]:
        return lambda job: sqlite_bytes(tmp_path / "state" / "marks.db", job)

    @pytest.fixture
    def spoil(self, tmp_path: Path) -> Callable[[str], None]:
        return lambda job: spoil_sqlite(tmp_path / "state" / "marks.db", job)


def postgres_bytes(url: str, job: str) -> bytes:
    """The row of a job, as another program sees it."""
    with psycopg.connect(url) as connection:
        return repr(connection.execute("select * from floodmark_marks where key = %s", [job]).fetchone()).encode()


def spoil_postgres(url: str, job: str) -> None:
    """Take the half of the record of a job away."""
    with psycopg.connect(url) as connection:
        connection.execute("update floodmark_marks set val = val - 'marks', stamp = 'spoiled' where key = %s", [job])


class TestPostgres(MarkStoreLaws):
    """A database of its own."""

    @pytest.fixture
    def open_store(self, database: str) -> Iterator[OpenStore]:
        def open_one(*, namespace: str = "default", keep_history: int = 100, keep_runs: int = 1000) -> MarkStore:
            store = PostgresMarkStore(database, namespace=namespace, keep_history=keep_history, keep_runs=keep_runs)
            return opened.enter_context(closing(store))

        with ExitStack() as opened:
            yield open_one

    @pytest.fixture
    def stored_bytes(self, database: str) -> Callable[[str], bytes]:
        return lambda job: postgres_bytes(database, job)

    @pytest.fixture
    def spoil(self, database: str) -> Callable[[str], None]:
        return lambda job: spoil_postgres(database, job)


class TestMemoryOverPostgres(TestPostgres):
    """The seed's two levels."""

    @pytest.fixture
    def open_store(self, database: str) -> Iterator[OpenStore]:
        def open_one(*, namespace: str = "default", keep_history: int = 100, keep_runs: int = 1000) -> MarkStore:
            truth = PostgresMarkStore(database, namespace=namespace, keep_history=keep_history, keep_runs=keep_runs)
            opened.enter_context(closing(truth))
            return LayeredMarkStore([MemoryMarkStore(namespace=namespace), truth])

        with ExitStack() as opened:
            yield open_one


class TestLayered(MarkStoreLaws):
    """Memory over a database: every process has a memory of its own."""

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        def opened(*, namespace: str = "default", keep_history: int = 100, keep_runs: int = 1000) -> MarkStore:
            place = tmp_path / "marks.db"
            truth = SqliteMarkStore(place, namespace=namespace, keep_history=keep_history, keep_runs=keep_runs)
            return LayeredMarkStore([MemoryMarkStore(namespace=namespace), truth])

        return opened

    @pytest.fixture
    def stored_bytes(self, tmp_path: Path) -> Callable[[str], bytes]:
        return lambda job: sqlite_bytes(tmp_path / "marks.db", job)

    @pytest.fixture
    def spoil(self, tmp_path: Path) -> Callable[[str], None]:
        return lambda job: spoil_sqlite(tmp_path / "marks.db", job)


class TestFileOverSqlite(TestLayered):
    """Files that outlive the process over a database: a level that other processes fill too."""

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        def opened(*, namespace: str = "default", keep_history: int = 100, keep_runs: int = 1000) -> MarkStore:
            place = tmp_path / "marks.db"
            truth = SqliteMarkStore(place, namespace=namespace, keep_history=keep_history, keep_runs=keep_runs)
            return LayeredMarkStore([FileMarkStore(tmp_path / "near", namespace=namespace), truth])

        return opened
