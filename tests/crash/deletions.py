"""A job that merges a table which changes under it, with deletes; run as a program, for runs that are killed."""

from __future__ import annotations

import sys
from pathlib import Path

import floodmark as fm
from tests.crash.shop import open_store


def job(home: Path) -> fm.Job:
    return fm.Job(
        name="orders",
        source=fm.sources.Sqlite(home / "shop.db", table="o", cursor="n"),
        sinks=[
            fm.sinks.Delta(
                str(home / "orders"), mode="merge", key="id", sequence="at", delete_when="v = 'D'", name="orders"
            )
        ],
    )


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    job(folder).run(None, open_store(folder))
