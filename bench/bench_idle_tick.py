"""An idle tick of a loop over 10,000 files: what it costs beyond listing the source, in milliseconds of CPU."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from run import Result

import floodmark as fm
from floodmark.probes.files import list_files

FILES, TICKS = 10_000, 50


def milliseconds(act: Callable[[], object]) -> float:
    begun = time.process_time()
    for _ in range(TICKS):
        act()
    return (time.process_time() - begun) * 1000 / TICKS


def run() -> list[Result]:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "in").mkdir()
        for number in range(FILES):
            (home / "in" / f"{number}.jsonl").write_text(f'{{"id": {number}}}\n')
        job = fm.Job(
            name="idle",
            source=fm.sources.Files(str(home / "in"), schema="id long", settle=0),
            sinks=[fm.sinks.Delta(str(home / "lake"))],
        )
        store = fm.stores.open("sqlite:///marks.db", folder=home)
        job.run(fm.spark_session({"spark.master": "local[2]"}), store)
        listing = milliseconds(lambda: list_files(os.fspath(home / "in"), recursive=True, glob=None))
        tick = milliseconds(lambda: job.run(None, store))
    detail = f"tick {tick:.1f} ms, of which listing {FILES:,} files {listing:.1f} ms (CPU, mean of {TICKS})"
    return [Result("idle tick beyond listing, ms", tick - listing, 50.0, detail)]
