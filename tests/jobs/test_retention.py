"""What is past goes by itself: after a run that did something, and not at every tick."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from floodmark import stores
from floodmark.errors import StoreUnreachable
from floodmark.hwm import ColumnIntHWM
from floodmark.jobs.retention import Cleaner, Retention
from floodmark.stores.contract import MarkStore
from floodmark.stores.lease import hold
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import JobRecord, Receipt
from floodmark.stores.run_logs import RunLogs, begin_log, keeping_log

NOW = datetime.now(timezone.utc)
SHORT = Retention(history="10d", keep_at_least=1, runs="10d")


def aged_store(*days: int) -> MemoryMarkStore:
    """A job with a commit, and a receipt, that many days ago each."""
    store = MemoryMarkStore()
    with hold(store, "orders") as held:
        for number, ago in enumerate(days, start=1):
            moment = NOW - timedelta(days=ago)
            record = JobRecord("orders", number, {"src": ColumnIntHWM("src", number)}, modified_time=moment)
            store.commit(
                record, expected=number - 1, lease=held.lease, receipt=Receipt("orders", f"r{number}", "done", moment)
            )
    return store


def receipt(status: Any = "done") -> Receipt:  # noqa: ANN401 - one of four words
    return Receipt("orders", "r9", status, NOW)


def sizes(store: MemoryMarkStore) -> tuple[int, int]:
    return len(store.history("orders", 100)), len(store.runs("orders", 100))


def test_a_run_that_did_something_drops_what_is_older_than_the_retention() -> None:
    """Nobody has to call `marks prune`; the mark stays."""
    store = aged_store(50, 40, 1)
    Cleaner(store, SHORT).after(receipt())
    assert sizes(store) == (1, 1)
    assert (store.read("orders") or JobRecord("")).number == 3


def test_a_run_that_found_nothing_new_cleans_nothing() -> None:
    """An idle tick of a loop costs no write."""
    store = aged_store(50, 40, 1)
    Cleaner(store, SHORT).after(receipt("nothing_new"))
    assert sizes(store) == (3, 3)


def test_a_loop_cleans_once_an_hour() -> None:
    """However often it has something to do."""
    seconds = iter([0.0, 3599.0, 3600.0, 3600.0])
    store = aged_store(1)
    cleaner, cleaned = Cleaner(store, SHORT, clock=lambda: next(seconds)), []
    store.prune = lambda job, **_: cleaned.append(job) or Retention().surplus(store, job, NOW)  # type: ignore[assignment,func-returns-value]
    cleaner.after(receipt())
    cleaner.after(receipt())
    cleaner.after(receipt())
    assert cleaned == ["orders", "orders"]


def test_a_store_that_cannot_be_cleaned_does_not_fail_the_run() -> None:
    """The run is done."""

    class Stuck(MemoryMarkStore):
        def prune(self, job: str, **limits: Any) -> Any:  # noqa: ANN401 - never gets there
            asked.append(job)
            raise StoreUnreachable("the store", reason="its disk is full")

    asked: list[str] = []
    Cleaner(Stuck(), SHORT).after(receipt())
    assert asked == ["orders"]


def kept_logs(store: MarkStore) -> list[str]:
    logs = RunLogs.of(store)
    assert logs is not None
    return sorted(path.stem for path in logs.folder.glob("orders/*.jsonl"))


def test_logs_of_runs_go_with_the_retention(tmp_path: Path) -> None:
    """The newest few stay, as of receipts."""
    store = stores.open("sqlite:///marks.db", folder=tmp_path)
    for run in ("old", "new"):
        with keeping_log(store, "orders", run):
            begin_log()
    logs = RunLogs.of(store)
    assert logs is not None
    os.utime(logs.path("orders", "old"), (1, 1))
    Cleaner(store, Retention(keep_at_least=1)).after(receipt())
    assert kept_logs(store) == ["new"]


def test_a_job_that_is_forgotten_leaves_no_log(tmp_path: Path) -> None:
    """As it leaves no receipt."""
    store = stores.open("sqlite:///marks.db", folder=tmp_path)
    with keeping_log(store, "orders", "only"):
        begin_log()
    Retention().forget_logs(store, "orders")
    assert kept_logs(store) == []
