"""What the file store leaves on disk, and what it makes of what it finds there."""

from __future__ import annotations

import fcntl
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from floodmark.errors import MarkUnreadable, StoreUnreachable
from floodmark.machine import file_name
from floodmark.stores import FileMarkStore
from floodmark.testing.laws.records import files, receipt, record, save

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> FileMarkStore:
    return FileMarkStore(tmp_path)


def on_disk(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "default").iterdir())


def test_a_job_has_one_file_and_small_ones_beside_it(store: FileMarkStore, tmp_path: Path) -> None:
    """No temporary file stays."""
    store.release(save(store, record(1, landing=files("/in/a")), record(2, landing=files("/in/a", "/in/b"))))
    assert on_disk(tmp_path) == ["orders.items.1.jsonl", "orders.lock", "orders.mark.jsonl"]


def test_the_record_can_be_read_by_people(store: FileMarkStore, tmp_path: Path) -> None:
    """The second line is the record as JSON."""
    save(store, record(1))
    second = (tmp_path / "default" / "orders.mark.jsonl").read_text().splitlines()[1]
    assert json.loads(second)["marks"]["table"]["value"] == 10


def test_rows_of_a_crashed_save_never_count(store: FileMarkStore, tmp_path: Path) -> None:
    """They stand in the log, but behind its committed length, and the next save cuts them off."""
    save(store, record(1, landing=files("/in/a")))
    log = tmp_path / "default" / "orders.items.1.jsonl"
    log.write_text(log.read_text() + '[2,"landing","/in/ghost",[7,1]]\n[2,"landing","/in/half",[7,1]]\n[')
    assert FileMarkStore(tmp_path).read("orders") == record(1, landing=files("/in/a"))
    save(store, record(2, landing=files("/in/a", "/in/b")))
    assert FileMarkStore(tmp_path).read("orders") == record(2, landing=files("/in/a", "/in/b"))
    assert "ghost" not in log.read_text()


@pytest.mark.parametrize("left", [0, 1, 20, 150, 400])
def test_a_mark_file_that_was_cut_off_is_unreadable(left: int, store: FileMarkStore, tmp_path: Path) -> None:
    """Also one that is empty."""
    save(store, record(1))
    path = tmp_path / "default" / "orders.mark.jsonl"
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(MarkUnreadable):
        FileMarkStore(tmp_path).read("orders")


@pytest.mark.parametrize("keep", [0, 10])
def test_a_log_that_was_cut_off_is_unreadable(keep: int, store: FileMarkStore, tmp_path: Path) -> None:
    """A list with fewer files would read some of them again."""
    save(store, record(1, landing=files("/in/a", "/in/b")))
    log = tmp_path / "default" / "orders.items.1.jsonl"
    log.write_bytes(log.read_bytes()[:keep])
    with pytest.raises(MarkUnreadable):
        FileMarkStore(tmp_path).read("orders")


def test_a_log_that_lost_its_last_lines_is_unreadable(store: FileMarkStore, tmp_path: Path) -> None:
    """What is left reads well, and would be a shorter list: its files would be read again."""
    save(store, record(1, landing=files("/in/a", "/in/b")))
    log = tmp_path / "default" / "orders.items.1.jsonl"
    log.write_bytes(log.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(MarkUnreadable, match="is shorter"):
        FileMarkStore(tmp_path).read("orders")


@pytest.mark.parametrize("left", [lambda lines: lines[0], lambda lines: lines[0] + lines[1][:-1]])
def test_a_mark_file_that_ends_before_its_record_does_is_told_so(
    left: Callable[[list[bytes]], bytes], store: FileMarkStore, tmp_path: Path
) -> None:
    """Without the record, and with all of it but the end of its line."""
    save(store, record(1))
    path = tmp_path / "default" / "orders.mark.jsonl"
    path.write_bytes(left(path.read_bytes().splitlines(keepends=True)))
    with pytest.raises(MarkUnreadable, match="middle of the record"):
        FileMarkStore(tmp_path).read("orders")


def test_a_reset_keeps_the_past_of_a_damaged_file_and_nothing_else(store: FileMarkStore, tmp_path: Path) -> None:
    """What cannot be told from damage is not carried along."""
    lease = save(store, record(1))
    path = tmp_path / "default" / "orders.mark.jsonl"
    path.write_bytes(b"damaged\n" + b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    store.commit(replace(record(5), origin="reset"), expected=0, lease=lease)
    assert [each.number for each in FileMarkStore(tmp_path).history("orders")] == [5, 1]
    assert "damaged" not in path.read_text()


def test_a_log_that_is_gone_is_unreadable(store: FileMarkStore, tmp_path: Path) -> None:
    """The list cannot be told, and nothing is guessed."""
    save(store, record(1, landing=files("/in/a")))
    (tmp_path / "default" / "orders.items.1.jsonl").unlink()
    with pytest.raises(MarkUnreadable):
        FileMarkStore(tmp_path).read("orders")


def test_a_receipt_does_not_replace_an_unreadable_record(store: FileMarkStore, tmp_path: Path) -> None:
    """A failed run notes its failure; it must not make a damaged record look like none."""
    save(store, record(1))
    path = tmp_path / "default" / "orders.mark.jsonl"
    path.write_bytes(b"")
    with pytest.raises(MarkUnreadable):
        store.add_run(receipt(2))
    assert path.read_bytes() == b""


def test_logs_that_no_record_needs_are_removed(tmp_path: Path) -> None:
    """A list that was refreshed many times does not fill the disk."""
    store = FileMarkStore(tmp_path, keep_history=2)
    save(store, *(record(number, landing=files(f"/in/{number}")) for number in range(1, 8)))
    assert [name for name in on_disk(tmp_path) if ".items." in name] == ["orders.items.6.jsonl", "orders.items.7.jsonl"]


def test_a_lock_that_is_never_let_go_stops_the_run(tmp_path: Path) -> None:
    """A process that was stopped while it saved: wait a while, then say so."""
    store = FileMarkStore(tmp_path, patience_seconds=0.1)
    save(store, record(1))
    with (tmp_path / "default" / "orders.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreUnreachable, match=r"orders\.lock was locked"):
            store.read("orders")


def test_readers_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """A page of `serve` may look while another one does."""
    store = FileMarkStore(tmp_path, patience_seconds=0.1)
    save(store, record(1))
    with (tmp_path / "default" / "orders.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert store.read("orders") == record(1)


def test_who_waits_for_a_lock_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else it is taken for dead."""
    monkeypatch.setattr("floodmark.stores.file.SILENT_SECONDS", 0.05)
    store = FileMarkStore(tmp_path, patience_seconds=0.5)
    save(store, record(1))
    with (tmp_path / "default" / "orders.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreUnreachable):
            store.read("orders")
    assert "waiting for the store" in caplog.text


@pytest.mark.parametrize("ask", ["read", "names", "jobs", "add_run"])
def test_a_folder_that_cannot_be_used_is_no_folder_without_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    """Whatever is asked, also what begins with a list of its files."""
    store = FileMarkStore(tmp_path)
    save(store, record(1))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("not yours")

    for name in ("peek", "file_lock"):
        monkeypatch.setattr(f"floodmark.stores.file.{name}", refuse)
    asked = {"read": ["orders"], "add_run": [receipt(1)]}.get(ask, [])
    with pytest.raises(StoreUnreachable, match="PermissionError: not yours"):
        getattr(store, ask)(*asked)


@pytest.mark.parametrize("left", ["stamp", "number", "logs"])
def test_a_first_line_that_lacks_something_is_not_whole(store: FileMarkStore, tmp_path: Path, left: str) -> None:
    """As after an edit by hand."""
    save(store, record(1))
    path = tmp_path / "default" / "orders.mark.jsonl"
    first, rest = path.read_text().split("\n", 1)
    path.write_text(json.dumps({name: part for name, part in json.loads(first).items() if name != left}) + "\n" + rest)
    with pytest.raises(MarkUnreadable, match="the first line of its file is not whole"):
        FileMarkStore(tmp_path).read("orders")


def test_a_folder_that_is_a_file_cannot_be_used(tmp_path: Path) -> None:
    """Never taken for "no marks"."""
    (tmp_path / "marks").write_text("not a folder")
    with pytest.raises(StoreUnreachable):
        FileMarkStore(tmp_path / "marks").read("orders")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("orders_to-lake2", "orders_to-lake2"),
        ("A", "%41"),
        ("a/b", "a%2fb"),
        ("..", "%2e%2e"),
        ("", "%"),
        ("\u00e9", "%c3%a9"),
    ],
)
def test_names_are_escaped(name: str, file: str) -> None:
    """Lower case ASCII, on every disk the same."""
    assert file_name(name) == file


def test_a_long_name_is_shortened_and_still_its_own() -> None:
    """With a digest of the whole."""
    one, two = file_name("x" * 500), file_name("x" * 501)
    assert (one != two, max(len(one), len(two)) < 200) == (True, True)
