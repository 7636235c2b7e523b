"""The logs of runs: lines with the run's id beside the marks, bounded, and never a reason for a run to fail."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from floodmark import stores
from floodmark.errors import FormatTooNew, LeaseHeld, RunNotFound
from floodmark.logs import get_logger
from floodmark.stores.contract import MarkStore
from floodmark.stores.run_logs import LOG_BYTES, LOGS_OF_A_JOB, RunLogs, begin_log, begun_run, keeping_log, noting_run

log = get_logger("test")


@pytest.fixture
def store(tmp_path: Path) -> MarkStore:
    """One with a folder of its own."""
    return stores.open("sqlite:///marks.db", folder=tmp_path)


def logs_of(store: MarkStore) -> RunLogs:
    logs = RunLogs.of(store)
    assert logs is not None
    return logs


def test_every_line_of_a_run_carries_its_id_and_its_job(store: MarkStore) -> None:
    """Also what was logged before it was known that there is work to do, at any level."""
    with keeping_log(store, "orders", "abc"):
        log.debug("looking", files=3)
        begin_log()
        log.info("writing", job="orders")
    lines = logs_of(store).lines("orders", "abc") or []
    assert [(line["run"], line["job"], line["event"]) for line in lines] == [
        ("abc", "orders", "the log begins"),
        ("abc", "orders", "looking"),
        ("abc", "orders", "writing"),
    ]


def test_a_run_that_has_nothing_to_do_leaves_no_log(store: MarkStore) -> None:
    """A loop looks every few seconds."""
    with keeping_log(store, "orders", "abc"):
        log.info("nothing new")
    assert not logs_of(store).folder.exists()


def test_what_ended_a_run_badly_is_its_last_line_with_where_it_was_raised(store: MarkStore) -> None:
    """So a log tells more than the receipt."""
    with pytest.raises(ZeroDivisionError), keeping_log(store, "orders", "abc"):
        raise ZeroDivisionError("odd")
    last = (logs_of(store).lines("orders", "abc") or [])[-1]
    assert (last["event"], last["level"], last["error"]) == ("the run failed", "error", "odd")
    assert "test_run_logs.py" in last["exception"]


def test_a_run_that_another_one_keeps_out_leaves_no_log(store: MarkStore) -> None:
    """It did nothing."""
    with pytest.raises(LeaseHeld), keeping_log(store, "orders", "abc"):
        raise LeaseHeld("orders", holder="pid 1", since="now")
    assert not logs_of(store).folder.exists()


def test_the_failed_run_is_known_to_who_notes_the_failure(store: MarkStore) -> None:
    """One that ended well before is not."""
    with noting_run():
        with keeping_log(store, "orders", "first"):
            pass
        after_success = begun_run()
        with pytest.raises(ValueError, match="bad"), keeping_log(store, "orders", "second"):
            raise ValueError("bad")
        assert (after_success, begun_run()) == ("", "second")


def test_secrets_do_not_reach_a_log(store: MarkStore) -> None:
    """Neither in a fact nor in an error."""
    with keeping_log(store, "orders", "abc"):
        begin_log()
        log.info("connecting", url="postgresql://me:hunter2@host/db")
    assert "hunter2" not in logs_of(store).path("orders", "abc").read_text()


def test_a_log_stops_growing_and_says_how_much_it_left_out(store: MarkStore) -> None:
    """A run that logs for ever does not fill the disk."""
    with keeping_log(store, "orders", "abc"):
        begin_log()
        [log.info("word " * 2_000) for _ in range(150)]  # type: ignore[func-returns-value]
    path = logs_of(store).path("orders", "abc")
    assert path.stat().st_size < LOG_BYTES + 1000
    assert "lines left out" in path.read_text().splitlines()[-1]


def test_only_the_newest_logs_of_a_job_are_kept(store: MarkStore) -> None:
    """Whatever retention says, their number is bounded."""
    folder = logs_of(store).path("orders", "x").parent
    folder.mkdir(parents=True)
    [(folder / f"old{place}.jsonl").write_text("") for place in range(LOGS_OF_A_JOB + 5)]
    with keeping_log(store, "orders", "abc"):
        begin_log()
    assert len(list(folder.iterdir())) == LOGS_OF_A_JOB
    assert logs_of(store).lines("orders", "abc") is not None


def test_old_logs_go_but_not_the_newest_few(store: MarkStore) -> None:
    """As history and receipts do."""
    logs, now = logs_of(store), datetime.now(timezone.utc)
    with keeping_log(store, "orders", "old"):
        begin_log()
    with keeping_log(store, "orders", "older"):
        begin_log()
    os.utime(logs.path("orders", "older"), (1, 1))
    assert logs.prune("orders", before=now - timedelta(days=1), keep_at_least=2) == 0
    assert logs.prune("orders", before=now - timedelta(days=1), keep_at_least=1) == 1
    assert logs.lines("orders", "older") is None


def test_a_disk_that_takes_no_log_fails_no_run(store: MarkStore, tmp_path: Path) -> None:
    """The rows are what counts."""
    (tmp_path / "logs").write_text("a file where the folder should be")
    with keeping_log(store, "orders", "abc"):
        begin_log()
        log.info("still at work")
    assert logs_of(store).lines("orders", "abc") is None


def test_a_store_in_memory_keeps_no_logs() -> None:
    """Its marks do not outlive the process either."""
    assert RunLogs.of(stores.open("memory")) is None


def test_no_name_leads_out_of_the_folder(store: MarkStore) -> None:
    """Names come from addresses of pages too."""
    logs = logs_of(store)
    assert logs.path("../..", "../../etc/passwd").resolve().is_relative_to(logs.folder.resolve())


def test_a_log_is_found_by_how_its_run_begins(store: MarkStore) -> None:
    """As `diff` and `rollback` find runs."""
    with keeping_log(store, "orders", "abc1"):
        begin_log()
    with keeping_log(store, "orders", "abd2"):
        begin_log()
    logs = logs_of(store)
    assert (logs.find("abd"), logs.find("last")) == (("orders", "abd2"), ("orders", "abd2"))
    with pytest.raises(RunNotFound, match="2 runs begin with 'ab'"):
        logs.find("ab")


def test_a_line_that_a_kill_cut_off_is_shown_as_it_is(store: MarkStore) -> None:
    """The log of a killed run is the one that people look at."""
    with keeping_log(store, "orders", "abc"):
        begin_log()
    path = logs_of(store).path("orders", "abc")
    path.write_text(path.read_text() + '{"event": "writ')
    assert (logs_of(store).lines("orders", "abc") or [])[-1] == {"event": '{"event": "writ'}


def test_a_log_of_a_newer_format_is_refused(store: MarkStore) -> None:
    """As everything that is stored."""
    path = logs_of(store).path("orders", "abc")
    path.parent.mkdir(parents=True)
    path.write_text('{"format": 9, "run": "abc"}\n')
    with pytest.raises(FormatTooNew):
        logs_of(store).lines("orders", "abc")
