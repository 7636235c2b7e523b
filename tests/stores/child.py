"""What the process tests run in processes of their own: python -m tests.stores.child ACT STORE …"""

from __future__ import annotations

import resource
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from floodmark import stores
from floodmark.errors import LeaseHeld, MarkMoved, StoreUnreachable
from floodmark.hwm import FileListHWM
from floodmark.stores.extras import RecordExtras
from floodmark.stores.lease import hold, this_process
from floodmark.testing.laws.records import files, receipt, record


def say(text: object) -> None:
    """One line to the parent, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def wait_for(path: Path) -> None:
    """Start when the parent says so, as close together as possible."""
    say("ready")
    while not path.exists():
        time.sleep(0.0005)


def race(text: str, go: str, runner: str, rounds: int) -> None:
    """Try to commit every number, under one lease that both have; say which ones were won."""
    store = stores.open(text)
    lease = store.lease("orders")
    assert lease is not None
    wait_for(Path(go))
    for number in range(1, rounds + 1):
        try:
            store.commit(
                replace(record(number), extras=RecordExtras({"runner": runner})), expected=number - 1, lease=lease
            )
        except MarkMoved:
            continue
        say(number)


def leases(text: str, go: str, rounds: int) -> None:
    """Try to take the lease of every job; say which ones were taken."""
    store = stores.open(text)
    wait_for(Path(go))
    for number in range(rounds):
        try:
            store.take_lease(f"job {number}", this_process(), over=None)
        except LeaseHeld:
            continue
        say(number)


def commit_for_ever(text: str) -> None:
    """Commit as fast as possible, and say each number once its commit has returned."""
    store = stores.open(text)
    lease = store.lease("orders") or store.take_lease("orders", this_process(), over=None)
    before = store.read("orders") or replace(record(0), marks={})
    landing = before.marks.get("landing", files())
    assert isinstance(landing, FileListHWM)
    while True:
        number = before.number + 1
        landing = landing.update({f"/in/{number:08d}": (7, 1)})
        before_number, before = before.number, record(number, landing=landing)
        store.commit(before, expected=before_number, lease=lease, receipt=receipt(number))
        say(number)


def on_a_full_disk(text: str, largest_bytes: int) -> None:
    """Commit a long list of files where no file may grow beyond a size; say what came of it."""
    store = stores.open(text)
    lease = store.take_lease("orders", this_process(), over=store.lease("orders"))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest_bytes, largest_bytes))
    landing = files(*(f"/in/{number:08d}" for number in range(20_000)))
    try:
        store.commit(record(2, landing=landing), expected=1, lease=lease)
    except StoreUnreachable:
        say("unreachable")


def hold_for_ever(text: str, jvm_pid: int) -> None:
    """Hold a lease until somebody ends this process."""
    with hold(stores.open(text), "orders") as held:
        held.with_jvm(jvm_pid or None)
        say("held")
        signal.pause()


if __name__ == "__main__":
    act, *arguments = sys.argv[1:]
    {
        "race": lambda: race(arguments[0], arguments[1], arguments[2], int(arguments[3])),
        "leases": lambda: leases(arguments[0], arguments[1], int(arguments[2])),
        "commit": lambda: commit_for_ever(arguments[0]),
        "full": lambda: on_a_full_disk(arguments[0], int(arguments[1])),
        "hold": lambda: hold_for_ever(arguments[0], int(arguments[1])),
    }[act]()
