"""What lies on disk when the power goes: the order in which files are synced and named.

No test can cut the power, but every call that decides what is left is seen: a file is synced before the rename that
makes it count, and its folder after it.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from floodmark.machine import append_after, ensure_folder, replace_file
from floodmark.stores import FileMarkStore, SqliteMarkStore
from floodmark.stores.memory import MemoryMarkStore, MemoryPages
from floodmark.stores.sqlite import connect, create
from floodmark.testing.laws.records import files, receipt, record, save
from tests.disk import note_disk


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every sync and rename of this process from now on, by the names of the files."""
    return note_disk(monkeypatch, "replace", without_pid, lambda path, to: f"{without_pid(path)} becomes {to.name}")


def without_pid(path: Path) -> str:
    return path.name.replace(f".{os.getpid()}.", ".")


def test_a_file_is_synced_before_it_takes_its_name_and_its_folder_after_it(tmp_path: Path, calls: list[str]) -> None:
    """Else a name that is there after a power cut may stand for an empty file, or be the old one."""
    replace_file(tmp_path / "mark", "new")
    assert calls == ["sync mark.tmp", "mark.tmp becomes mark", f"sync {tmp_path.name}"]


def test_what_is_appended_is_synced(tmp_path: Path, calls: list[str]) -> None:
    """The record that counts it is written after it."""
    assert (append_after(tmp_path / "items", 0, "one\n"), calls) == (4, ["sync items"])


def test_a_new_folder_is_synced_into_each_folder_above_it(tmp_path: Path, calls: list[str]) -> None:
    """A store that was made a moment ago is not lost with its first record."""
    ensure_folder(tmp_path / "a" / "b")
    assert calls == [f"sync {tmp_path.name}", "sync a"]


def test_a_folder_that_is_there_costs_no_sync(tmp_path: Path, calls: list[str]) -> None:
    """Every save asks for it."""
    ensure_folder(tmp_path)
    assert calls == []


def test_a_record_of_the_file_store_is_durable_before_it_counts(tmp_path: Path, calls: list[str]) -> None:
    """Its list of files first, then the folder that has the list's name, then the record that points to it."""
    store = FileMarkStore(tmp_path)
    save(store, record(1, landing=files("/in/a")))
    mark = calls.index("orders.mark.jsonl.tmp becomes orders.mark.jsonl")
    assert calls[mark - 3 : mark + 2] == [
        "sync orders.items.1.jsonl",
        "sync default",
        "sync orders.mark.jsonl.tmp",
        "orders.mark.jsonl.tmp becomes orders.mark.jsonl",
        "sync default",
    ]


def test_a_new_database_is_named_once_it_is_whole_and_its_folder_synced(tmp_path: Path, calls: list[str]) -> None:
    """SQLite syncs what is in it; the name is ours."""
    create(tmp_path / "marks.db", 1.0)
    assert calls == ["marks.db.new becomes marks.db", f"sync {tmp_path.name}"]


def test_a_commit_to_a_database_is_durable_with_the_end_of_its_journal(tmp_path: Path) -> None:
    """`extra`, which SQLite calls 3: with less, a power cut right after a commit could undo it."""
    create(tmp_path / "marks.db", 1.0)
    with closing(connect(tmp_path / "marks.db", 1.0)) as connection:
        assert connection.execute("pragma synchronous").fetchone() == (3,)


def test_nothing_of_a_job_that_is_forgotten_stays_on_disk(tmp_path: Path) -> None:
    """Its lists of files, too."""
    store = FileMarkStore(tmp_path)
    store.forget("orders", lease=save(store, record(1, landing=files("/in/a"))))
    assert [path.name for path in (tmp_path / "default").iterdir()] == ["orders.lock"]


def test_a_store_in_memory_keeps_no_more_than_it_shows() -> None:
    """A loop that runs for weeks does not fill the memory."""
    pages = MemoryPages()
    store = MemoryMarkStore(pages, keep_history=2, keep_runs=2)
    save(store, *(record(number) for number in range(1, 8)))
    store.add_run(receipt(8))
    store.add_run(receipt(9))
    [page] = pages.all.values()
    assert (len(page.committed), len(page.receipts)) == (2, 2)


def test_a_database_keeps_no_more_than_its_store_shows(tmp_path: Path) -> None:
    """Nor does its file grow, with history, receipts, or lists that no record needs."""
    store = SqliteMarkStore(tmp_path / "marks.db", keep_history=2, keep_runs=2)
    save(store, *(record(number, landing=files(f"/in/{number}")) for number in range(1, 8)))
    store.close()
    with closing(connect(tmp_path / "marks.db", 1.0)) as connection:
        tables = ("floodmark_history", "floodmark_runs", "floodmark_items")
        kept = [connection.execute(f"select count(*) from {table}").fetchone()[0] for table in tables]
    assert kept == [2, 2, 2]
