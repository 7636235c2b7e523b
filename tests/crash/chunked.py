"""A load in chunks, as a program that can be killed: python -m tests.crash.chunked FOLDER DATABASE [MAX_ROWS]."""

from __future__ import annotations

import sys
from pathlib import Path

import floodmark as fm
from tests.crash.relay import SETTINGS


def job(home: Path, database: str) -> fm.Job:
    return fm.Job(
        name="load",
        source=fm.sources.Postgres(database, "o", cursor="id"),
        sinks=[fm.sinks.Delta(str(home / "lake"), name="lake")],
        chunk_rows=1000,
    )


def store(home: Path) -> fm.stores.MarkStore:
    return fm.stores.open("sqlite:///marks.db", folder=home)


if __name__ == "__main__":
    folder, url, *most = sys.argv[1:]
    limit = int(most[0]) if most else None
    job(Path(folder), url).run(fm.spark_session(SETTINGS), store(Path(folder)), max_rows=limit)
