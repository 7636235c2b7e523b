"""What the SQLite store makes of databases that are locked, damaged, or not its own."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from floodmark.errors import ConfigError, FormatTooNew, MarkUnreadable, StoreUnreachable
from floodmark.stores import SqliteMarkStore
from floodmark.testing.laws.records import ME, files, record, save


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "marks.db"


def test_the_mark_is_seen_with_plain_sql(path: Path) -> None:
    """Without Floodmark."""
    save(SqliteMarkStore(path), record(3))
    query = (
        "select namespace, key, json_extract(val, '$.marks.table.value'), number, modified_time from floodmark_marks"
    )
    shown = sqlite3.connect(path).execute(query).fetchall()
    assert shown == [("default", "orders", 30, 3, "2024-05-01T12:00:00+00:00")]


def test_rows_of_lists_that_no_record_has_any_more_are_gone(path: Path) -> None:
    """Of one that began anew, and of a source that the job reads no more: else they would stay for ever."""
    store = SqliteMarkStore(path, keep_history=1)
    save(store, record(1, landing=files("/in/a")), record(2, landing=files("/in/b")))
    query = "select source, item from floodmark_items order by item"
    assert [(source, item[-1]) for source, item in sqlite3.connect(path).execute(query)] == [("landing", "b")]
    save(store, record(3))
    assert sqlite3.connect(path).execute(query).fetchall() == []


def test_a_growing_list_adds_rows_and_touches_no_other(path: Path) -> None:
    """Each row has the number of the commit that added it."""
    save(
        SqliteMarkStore(path),
        record(1, landing=files("/in/a", "/in/b")),
        record(2, landing=files("/in/a", "/in/b", "/in/c")),
    )
    rows = sqlite3.connect(path).execute("select item, number from floodmark_items order by item").fetchall()
    assert rows == [("/in/a", 1), ("/in/b", 1), ("/in/c", 2)]


def test_rows_that_no_record_needs_are_removed(path: Path) -> None:
    """A list that was refreshed many times does not fill the disk."""
    save(SqliteMarkStore(path, keep_history=2), *(record(at, landing=files(f"/in/{at}")) for at in range(1, 8)))
    rows = sqlite3.connect(path).execute("select item from floodmark_items order by item").fetchall()
    assert rows == [("/in/6",), ("/in/7",)]


def test_a_list_with_missing_rows_is_unreadable(path: Path) -> None:
    """A list with fewer files would read some of them again."""
    save(SqliteMarkStore(path), record(1, landing=files("/in/a", "/in/b")))
    with sqlite3.connect(path) as connection:
        connection.execute("delete from floodmark_items where item = '/in/a'")
    with pytest.raises(MarkUnreadable, match="1 of 2 items"):
        SqliteMarkStore(path).read("orders")


def test_a_file_name_that_is_not_text_is_kept(path: Path) -> None:
    """A file's name may be any bytes."""
    odd = files("/in/caf\udce9", "/in/plain")
    save(SqliteMarkStore(path), record(1, landing=odd))
    assert SqliteMarkStore(path).read("orders") == record(1, landing=odd)


def test_a_file_that_is_no_database_cannot_be_used(path: Path) -> None:
    """Never taken for "no marks"."""
    path.parent.mkdir()
    path.write_text("these are not the marks you are looking for, " * 100)
    with pytest.raises(StoreUnreachable):
        SqliteMarkStore(path).read("orders")


def test_an_empty_file_cannot_be_used(path: Path) -> None:
    """SQLite would take it for a new database, and a first run would read everything again."""
    save(SqliteMarkStore(path), record(1))
    path.write_bytes(b"")
    with pytest.raises(StoreUnreachable, match="the file is empty"):
        SqliteMarkStore(path).read("orders")


@pytest.mark.parametrize("left", [100, 4096, 8192, 20_000])
def test_a_database_that_was_cut_off_cannot_be_used(left: int, path: Path) -> None:
    """Whatever part is gone."""
    save(SqliteMarkStore(path), record(1))
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises((StoreUnreachable, MarkUnreadable)):
        SqliteMarkStore(path).read("orders")


def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    """No table of ours is put into it."""
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("create table theirs (x)")
    with pytest.raises(StoreUnreachable, match="was not made by Floodmark"):
        save(SqliteMarkStore(path), record(1))
    assert sqlite3.connect(path).execute("select name from sqlite_master").fetchall() == [("theirs",)]


def test_a_file_that_is_no_database_is_left_alone(path: Path) -> None:
    """The hint is for that, and not for every other trouble with a file."""
    path.parent.mkdir()
    path.write_text("name,amount\n" * 1000)
    with pytest.raises(StoreUnreachable) as stop:
        SqliteMarkStore(path).read("orders")
    assert "name another file" in stop.value.hint
    path.write_text("")
    with pytest.raises(StoreUnreachable) as stop:
        SqliteMarkStore(path).read("orders")
    assert "name another file" not in stop.value.hint


def test_who_waits_for_a_locked_database_is_told_so(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else it is taken for dead."""
    monkeypatch.setattr("floodmark.stores.sqlite.SILENT_SECONDS", 0.05)
    store = SqliteMarkStore(path, patience_seconds=0.5)
    save(store, record(1))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin exclusive")
    with pytest.raises(StoreUnreachable):
        store.read("orders")
    assert "waiting for the store" in caplog.text


@pytest.mark.parametrize("ask", ["names", "jobs"])
def test_a_list_of_jobs_that_cannot_be_read_is_not_empty(path: Path, ask: str) -> None:
    """As everything else that is asked."""
    store = SqliteMarkStore(path, patience_seconds=0.2)
    save(store, record(1))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin exclusive")
    with pytest.raises(StoreUnreachable, match="database is locked"):
        getattr(store, ask)()


OPEN_FILES = Path("/proc/self/fd")


@pytest.mark.skipif(not OPEN_FILES.is_dir(), reason="this system does not say which files a process has open")
def test_a_store_that_was_closed_holds_no_file(path: Path) -> None:
    """Its database may be moved or deleted then."""
    store = SqliteMarkStore(path)
    save(store, record(1))
    assert path in [each.resolve() for each in OPEN_FILES.iterdir()]
    store.close()
    assert path not in [each.resolve() for each in OPEN_FILES.iterdir()]


def test_a_database_of_a_newer_version_is_left_alone(path: Path) -> None:
    """Its records may mean something that this version does not know."""
    save(SqliteMarkStore(path), record(1))
    with sqlite3.connect(path) as connection:
        connection.execute("pragma user_version = 99")
    with pytest.raises(FormatTooNew, match="has format 99"):
        SqliteMarkStore(path).read("orders")


def test_a_locked_database_is_waited_for_and_then_given_up(path: Path) -> None:
    """The run stops; it does not start from the beginning."""
    store = SqliteMarkStore(path, patience_seconds=0.2)
    lease = save(store, record(1))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin exclusive")
    with pytest.raises(StoreUnreachable, match="database is locked"):
        store.read("orders")
    with pytest.raises(StoreUnreachable, match="database is locked"):
        store.commit(record(2), expected=1, lease=lease)
    other.execute("rollback")
    store.commit(record(2), expected=1, lease=lease)
    assert store.read("orders") == record(2)


def test_a_database_that_was_put_in_its_place_is_seen(path: Path, tmp_path: Path) -> None:
    """A store restored from a copy while a loop has the old one open."""
    store = SqliteMarkStore(path)
    save(store, record(1))
    shutil.copy(path, tmp_path / "copy.db")
    save(store, record(2))
    known = store.read("orders")
    (tmp_path / "copy.db").replace(path)
    assert store.read("orders", known) == record(1)


def test_no_file_is_left_beside_the_database(path: Path) -> None:
    """It can be copied as one file."""
    SqliteMarkStore(path).close()
    save(SqliteMarkStore(path), record(1))
    assert sorted(file.name for file in path.parent.iterdir()) == ["marks.db", "marks.db.lock"]


def test_a_folder_that_may_not_be_made_stops_the_run(tmp_path: Path) -> None:
    """A file stands where the folder should be."""
    (tmp_path / "state").write_text("")
    with pytest.raises(StoreUnreachable):
        save(SqliteMarkStore(tmp_path / "state" / "marks.db"), record(1))


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "lustre", "ceph"])
def test_a_network_disk_is_refused_by_its_name(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hosts may both hold SQLite's lock there, and then two runs hold one lease: nothing is made or read."""
    proc, place = tmp_path / "proc", tmp_path / "shared"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "mounts").write_text(f"/dev/vda / ext4 rw 0 0\nfiler:/x {place} {kind} rw 0 0\n")
    monkeypatch.setattr("floodmark.machine.PROC", proc)
    store = SqliteMarkStore(place / "state" / "marks.db")
    for act in (lambda: store.read("orders"), store.jobs, lambda: store.take_lease("orders", ME, over=None)):
        with pytest.raises(ConfigError, match=f"{place} is {kind}") as refused:
            act()
    assert "postgresql://" in str(refused.value.hint)
    assert not place.exists()


def test_a_local_disk_within_a_network_disk_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is where the file itself lies."""
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "mounts").write_text(f"filer:/x / nfs4 rw 0 0\n/dev/vda {tmp_path} ext4 rw 0 0\n")
    monkeypatch.setattr("floodmark.machine.PROC", proc)
    store = SqliteMarkStore(tmp_path / "marks.db")
    assert store.take_lease("orders", ME, over=None) == store.lease("orders")


def test_a_folder_is_refused_with_a_file_to_name_in_it(path: Path) -> None:
    """SQLite says of it only that it cannot open a file."""
    path.mkdir(parents=True)
    with pytest.raises(StoreUnreachable) as stop:
        save(SqliteMarkStore(path), record(1))
    assert ("it is a folder" in stop.value.message, "marks.db/marks.db" in stop.value.hint) == (True, True)
