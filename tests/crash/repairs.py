"""A job over a SQLite table that the crash tests kill while it is backfilled or repaired.

python repairs.py FOLDER backfill | repair      one act on the job in FOLDER
"""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

import floodmark as fm
from tests.crash.shop import SETTINGS, open_store

RANGE, CHUNK_ROWS = ("10", "40"), 12


def make_table(home: Path, rows: int) -> None:
    """A table o(id, seq, v); each row has its id as seq."""
    with sqlite3.connect(home / "shop.db") as connection:
        connection.execute("create table o (id integer primary key, seq integer, v text)")
        connection.executemany("insert into o values (?, ?, ?)", [(n, n, f"v{n}") for n in range(1, rows + 1)])
    connection.close()


def change(home: Path, *statements: str) -> None:
    """What somebody does to the source, without a new seq."""
    with sqlite3.connect(home / "shop.db") as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def job(home: Path) -> fm.Job:
    return fm.Job(
        name="orders",
        source=fm.sources.Sqlite(home / "shop.db", table="o", cursor="seq"),
        sinks=[
            fm.sinks.Delta(str(home / "log"), name="log"),
            fm.sinks.Delta(str(home / "keyed"), name="keyed", mode="merge", key=["id"]),
        ],
    )


def main() -> None:
    home, act = Path(sys.argv[1]), sys.argv[2]
    spark, store = fm.spark_session(SETTINGS), open_store(home)
    if act == "backfill":
        job(home).backfill(*RANGE, spark, store, chunk_rows=CHUNK_ROWS)
    else:
        job(home).reconcile(spark, store, sink="keyed", repair=True)


if __name__ == "__main__":
    main()
