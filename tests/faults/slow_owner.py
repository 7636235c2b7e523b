"""A program that takes the lease of a job, says so, and commits when it is told to: it may be stopped meanwhile.

python slow_owner.py STORE FOLDER VALUE
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from floodmark import stores
from floodmark.errors import FloodmarkError
from floodmark.hwm import ColumnIntHWM
from floodmark.stores import hold
from floodmark.stores.record import JobRecord


def main(text: str, folder: Path, value: int) -> None:
    """Prints `held`, waits for a line, and prints `saved` or the name of the error."""
    store = stores.open(text, folder=folder)
    try:
        with hold(store, "orders") as lease:
            before = store.read("orders") or JobRecord("orders")
            print("held", flush=True)
            sys.stdin.readline()
            lease.save(replace(before, marks={"orders": ColumnIntHWM("orders", value)}), after=before)
            print("saved", flush=True)
    except FloodmarkError as error:
        print(type(error).__name__, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
