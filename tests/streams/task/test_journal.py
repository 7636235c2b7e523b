"""The journal of a turn and the log of failures: what a crash leaves of them, and how it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.streams.task.folder import StateFolder
from floodmark.streams.task.journal import (
    ALONE,
    DONE,
    DROPPED,
    EARLIER,
    FAILED,
    HELD,
    KILLED,
    RUNNING,
    SUSPECT,
    UNTOUCHED,
    FailedRecord,
    FailureLog,
    Journal,
    RawRecord,
    create_journal,
    keep_failures,
    read_failures,
)

RAW = RawRecord(b"\xff", None, (("trace", b"1"), ("empty", None)), 1700000000123)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal of offsets 100 to 109, of which 102 to 104 are settled already."""
    create_journal(tmp_path / "states", 100, 110, [(102, 105, EARLIER)])
    return tmp_path / "states"


def test_a_journal_keeps_what_was_written_when_it_is_opened_again(path: Path) -> None:
    """It is a file, and what a task set before it died is there."""
    with Journal.open(path, 100) as journal:
        journal.set_state([100, 101], DONE)
    with Journal.open(path, 100) as journal:
        assert bytes(journal.states) == bytes((DONE, DONE, EARLIER, EARLIER, EARLIER, 0, 0, 0, 0, 0))


def test_a_journal_that_is_there_is_not_made_again(path: Path) -> None:
    """A turn that is finished after a crash finds its outcomes."""
    with Journal.open(path, 100) as journal:
        journal.set_state([109], FAILED)
    create_journal(path, 100, 110, [])
    with Journal.open(path, 100) as journal:
        assert journal.offsets(FAILED) == [109]


def test_where_a_job_met_nothing_there_is_no_record(path: Path) -> None:
    """Compaction and transactions leave holes: read over, they do not hold the mark."""
    with Journal.open(path, 100) as journal:
        journal.set_state([100, 107], DONE)
        journal.set_state([105], FAILED)
        journal.set_state([106], HELD)
        journal.set_state([108], DROPPED)
        assert journal.unsettled_offsets(100, 110, 110) == [105, 106]


def test_what_no_job_asked_for_waits(path: Path) -> None:
    """Below the first and above the last offset that was read, nobody knows whether there is a record."""
    with Journal.open(path, 100) as journal:
        journal.set_state([106], DONE)
        assert journal.unsettled_offsets(105, 107, 109) == [100, 101, 107, 108]


def test_who_ran_when_a_worker_died_is_a_suspect_and_who_ran_alone_is_convicted(path: Path) -> None:
    """Beside others one may be innocent; alone there is nobody else."""
    with Journal.open(path, 100) as journal:
        journal.set_state([105], RUNNING)
        journal.set_state([106], ALONE)
        assert journal.blame()
        assert (journal.offsets(SUSPECT), journal.offsets(KILLED)) == ([105], [106])
        assert not journal.blame()


def test_who_is_held_is_no_suspect(path: Path) -> None:
    """Steps that hold run in another task; the records of a batch that is handed on are running, each of them."""
    with Journal.open(path, 100) as journal:
        journal.set_state([105], HELD)
        journal.set_state([106], RUNNING)
        assert journal.blame()
        assert (journal.offsets(SUSPECT), journal.offsets(HELD)) == ([106], [105])


def test_what_was_held_and_is_not_carried_comes_again(path: Path) -> None:
    """The batch that a step was gathering died with its worker."""
    with Journal.open(path, 100) as journal:
        journal.set_state([105, 106], HELD)
        journal.let_go([106])
        assert (journal.offsets(HELD), journal.states[5]) == ([106], UNTOUCHED)


def test_two_cannot_work_on_a_partition_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that Spark gave up may live on for a while; its successor waits for it."""
    monkeypatch.setattr("floodmark.streams.task.folder.LOCK_PATIENCE_SECONDS", 0.05)
    state = StateFolder(tmp_path)
    state.prepare(1)
    with state.lock(("t", 0)), pytest.raises(TimeoutError), state.lock(("t", 0)):
        pass


def test_a_failed_record_is_kept_with_its_bytes_and_its_last_error(tmp_path: Path) -> None:
    """Retention may take it from Kafka; the copy is made at the first failure."""
    log = FailureLog(tmp_path / "log")
    log.add(7, at=1.0, step="map(f)", error="ValueError: one", raw=RAW)
    log.add(7, at=5.0, step="map(f)", error="ValueError: two", raw=RAW)
    log.close()
    assert read_failures(tmp_path / "log") == {7: FailedRecord(7, 2, 1.0, 5.0, "map(f)", "ValueError: two", RAW)}


def test_a_line_that_a_crash_cut_off_is_no_failure(tmp_path: Path) -> None:
    """The record runs again; what is logged after it is whole."""
    (tmp_path / "log").write_bytes(b'{"offset": 3, "attempt": 1, "at')
    log = FailureLog(tmp_path / "log")
    log.add(4, at=1.0, step="", error="no", raw=RAW)
    log.close()
    assert list(read_failures(tmp_path / "log")) == [4]


def test_passwords_in_an_error_are_not_kept(tmp_path: Path) -> None:
    """Exceptions like to quote the address of a database."""
    log = FailureLog(tmp_path / "log")
    log.add(1, at=1.0, step="", error="cannot reach postgresql://me:hush@db/x", raw=RAW)
    log.close()
    assert "hush" not in (tmp_path / "log").read_text()


def test_settled_records_are_forgotten_and_the_others_kept(tmp_path: Path) -> None:
    """The log does not grow for ever."""
    log = FailureLog(tmp_path / "log")
    log.add(1, at=1.0, step="", error="no", raw=RAW)
    log.add(2, at=1.0, step="", error="no", raw=RAW)
    log.close()
    keep_failures(tmp_path / "log", {2})
    assert list(read_failures(tmp_path / "log")) == [2]
    keep_failures(tmp_path / "log", set())
    assert not (tmp_path / "log").exists()
