"""A program whose mark store lies on a disk that becomes full: what it could save, and what it read afterwards.

It prints a JSON object; `tests/faults/test_full_disk.py` runs it where a small disk is mounted.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from floodmark import stores
from floodmark.errors import FloodmarkError
from floodmark.hwm import ColumnIntHWM
from floodmark.stores import MarkStore, Receipt, hold
from floodmark.stores.record import JobRecord

NOON = datetime(2026, 11, 17, 12, tzinfo=timezone.utc)


def raise_mark(store: MarkStore, value: int) -> None:
    """Commit a batch with a receipt, as a step does."""
    with hold(store, "orders") as lease:
        before = store.read("orders") or JobRecord("orders")
        mark = ColumnIntHWM("orders", value)
        after = replace(before, number=before.number + 1, marks={"orders": mark}, modified_time=NOON)
        receipt = Receipt("orders", f"run-{value}", "done", NOON, notes=("n" * 4000,))
        store.commit(after, expected=before.number, lease=lease.lease, receipt=receipt)


def fill(disk: Path) -> None:
    """Take the last byte."""
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(b"x" * 512)


def main(text: str, disk: Path) -> None:
    """One good commit, a full disk, and the commit again once there is room."""
    found: dict[str, object] = {}
    raise_mark(stores.open(text, folder=disk), 100)
    fill(disk)
    try:
        for number in range(200):  # a page that was there may have had room for some
            raise_mark(stores.open(text, folder=disk), 200 + number)
        found["error"] = None
    except FloodmarkError as error:
        found["error"] = type(error).__name__
    (disk / "filler").unlink()
    store = stores.open(text, folder=disk)
    record = store.read("orders")
    found["whole"] = record is not None and record.marks["orders"].value == (
        100 if record.number == 1 else 198 + record.number
    )
    found["receipts"] = record is not None and len(store.runs("orders", limit=1000)) == record.number
    raise_mark(store, 1000)
    last = store.read("orders")
    found["last"] = last.marks["orders"].value if last else None
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
