"""A tick of a loop over 1 to 500 idle jobs, in seconds."""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

from bench_idle_tick import times_of_a_tick
from run import Result

import floodmark as fm

JOBS = (1, 10, 100, 500)
MOST_SECONDS_PER_JOB = 0.002


def run(most: int = JOBS[-1]) -> list[Result]:
    fm.spark_session({"spark.master": "local[2]"})
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "in").mkdir()
        (home / "in" / "rows.jsonl").write_text(json.dumps({"id": 1}))
        return [point(home, jobs) for jobs in JOBS if jobs <= most]


def point(home: Path, jobs: int) -> Result:
    times = tuple(times_of_a_tick(home, jobs))
    took, bound = statistics.median(times), max(0.01, MOST_SECONDS_PER_JOB * jobs)
    detail = f"{took / jobs * 1000:.2f} ms a job, median of {len(times)} ticks"
    return Result(f"a tick over {jobs} idle jobs, s", took, bound, detail, ours=times, series="idle jobs", at=jobs)
