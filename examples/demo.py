"""The main job on the embedded default: files to Delta, marks in SQLite, no server. `make demo` runs it.

It loads, loads only what is new, is killed in the middle of a write, and finishes what the kill left open. The table
at the end is counted from the Delta table and compared with the input files, not with what the program believes.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import floodmark as fm
from floodmark.errors import FloodmarkError

HOME = Path(".demo")
ROWS_PER_FILE = 2_000
STORE = "sqlite:///marks.db"
SCHEMA = "id long, customer string, amount decimal(10,2), placed_at timestamp"


def orders_job(home: Path) -> fm.Job:
    """Everything the pipeline is: where from, what happens, where to."""
    return fm.Job(
        name="orders_to_lake",
        source=fm.sources.Files(str(home / "incoming"), format="jsonl", schema=SCHEMA, settle=0),
        transform="select *, cast(amount * 100 as bigint) as cents from source",
        sinks=[fm.sinks.Delta(str(home / "lake" / "orders"))],
    )


def write_orders(home: Path, name: str, first_id: int) -> None:
    """One file of orders, put in place in one act, as an upload should."""
    draw = random.Random(first_id)
    incoming = home / "incoming"
    incoming.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(order(draw, number)) for number in range(first_id, first_id + ROWS_PER_FILE)]
    hidden = incoming / f".{name}"
    hidden.write_text("\n".join(lines) + "\n")
    hidden.rename(incoming / name)


def order(draw: random.Random, number: int) -> dict[str, object]:
    return {
        "id": number,
        "customer": f"c{draw.randrange(500)}",
        "amount": f"{draw.randrange(100, 99_999) / 100:.2f}",
        "placed_at": f"2026-11-{1 + number % 28:02d}T{number % 24:02d}:00:00Z",
    }


@contextmanager
def saying(number: int, what: str) -> Iterator[None]:
    """One line per step: what it does, and how long it took."""
    print(f"[{number}/6] {what} … ", end="", flush=True)
    begun = time.monotonic()
    yield
    print(f" ({time.monotonic() - begun:.1f} s)")


def killed_attempt(home: Path) -> int:
    """The same job in a process of its own, which dies by SIGKILL when half of the rows are out."""
    environment = {**os.environ, "FLOODMARK_CRASH_AT": "during_sink:1"}
    return subprocess.run([sys.executable, __file__, "attempt", str(home)], env=environment, check=False).returncode


def run(home: Path) -> fm.Receipt:
    return orders_job(home).run(store=fm.stores.open(STORE, folder=home))


def demo(home: Path) -> bool:
    shutil.rmtree(home, ignore_errors=True)
    with saying(1, "three files arrive; the first load starts Spark and reads them"):
        for place, name in enumerate(["mon-1.jsonl", "mon-2.jsonl", "mon-3.jsonl"]):
            write_orders(home, name, place * ROWS_PER_FILE)
        print(told(run(home)), end="")
    with saying(2, "nothing new: a second run reads nothing and starts no Spark job"):
        print(told(run(home)), end="")
    with saying(3, "two more files arrive; only they are read"):
        write_orders(home, "tue-1.jsonl", 3 * ROWS_PER_FILE)
        write_orders(home, "tue-2.jsonl", 4 * ROWS_PER_FILE)
        print(told(run(home)), end="")
    with saying(4, "another file arrives; this attempt is killed (SIGKILL) with half of the rows out"):
        write_orders(home, "wed-1.jsonl", 5 * ROWS_PER_FILE)
        died = killed_attempt(home)
        print("killed, as asked" if died == -signal.SIGKILL else f"ended with {died}", end="")
    with saying(5, "one more file arrives; the rerun finishes the open batch, then reads the new file"):
        write_orders(home, "wed-2.jsonl", 6 * ROWS_PER_FILE)
        print(told(run(home)), end="")
    with saying(6, "counting the Delta table against the input files"):
        good = report(home)
    return good and died == -signal.SIGKILL


def told(receipt: fm.Receipt) -> str:
    if receipt.status == "nothing_new":
        return "nothing new"
    batches = f" in {receipt.batches} batches" if receipt.batches > 1 else ""
    return f"read {receipt.rows_read:,} rows, wrote {receipt.rows_written['delta']:,}{batches}"


def report(home: Path) -> bool:
    """What is in the table, what should be, and the mark."""
    from pyspark.sql import functions as F
    from rich.console import Console
    from rich.table import Table

    inputs = [json.loads(line) for file in (home / "incoming").iterdir() for line in file.read_text().splitlines()]
    table = fm.spark_session().read.format("delta").load(str(home / "lake" / "orders"))
    found = table.agg(F.count("*").alias("rows"), F.countDistinct("id").alias("ids"), F.sum("cents").alias("cents"))
    rows, ids, cents = found.collect()[0]
    expected_cents = sum(round(float(each["amount"]) * 100) for each in inputs)
    record = fm.stores.open(STORE, folder=home).read("orders_to_lake")
    shown = Table(title="orders_to_lake", title_justify="left")
    for heading in ("", "input files", "Delta table", ""):
        shown.add_column(heading, justify="left" if heading == "" else "right")
    checks = [
        ("rows", len(inputs), rows),
        ("distinct ids", len({each["id"] for each in inputs}), ids),
        ("sum of cents", expected_cents, cents),
        ("files below the mark", len(list((home / "incoming").iterdir())), len(record.marks["files"].value)),
    ]
    for what, expected, counted in checks:
        shown.add_row(what, f"{expected:,}", f"{counted:,}", "equal" if expected == counted else "DIFFERENT")
    print()
    Console().print(shown)
    good = all(expected == counted for _, expected, counted in checks)
    print("Nothing was lost, nothing was doubled." if good else "Something is wrong: please report this.")
    print(f"The mark stands at batch {record.number}. Look around in {home}: incoming, lake, marks.db", end="")
    return good


def main() -> int:
    try:
        if sys.argv[1:2] == ["attempt"]:
            run(Path(sys.argv[2]))
            return 0
        return 0 if demo(HOME.absolute()) else 1
    except FloodmarkError as error:
        print(f"\nError: {error.message}\nTry: {error.hint}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
