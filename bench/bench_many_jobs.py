"""A project of many jobs: CPU of lint, plan and completion, and how soon the pages of `serve` are there."""

from __future__ import annotations

import os
import re
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from run import Result
from timing import seconds

from floodmark import stores
from floodmark.formats import with_format
from floodmark.stores.record import RECEIPT_FORMAT, Receipt
from floodmark.stores.wire import compact

FLOODMARK = [sys.executable, "-m", "floodmark"]
CHAIN, JOBS, PAGED_JOBS, RECEIPTS, ROUNDS = 20, 200, 500, 100_000, 3
UP_SECONDS = 3
"""A server looks and counts as soon as its address is printed; a person, or Prometheus, comes a little later."""
JOB = """\
source: {source}
transform: {{file: sql/{name}.sql}}
rules:
  - {{name: amount_positive, check: "amount > 0", action: quarantine}}
  - {{name: id_there, not_null: [id], action: fail}}
tags: [chain{chain}]
sinks: [{{name: lake, type: delta, path: lake/{name}, mode: merge, key: [id], sequence: [at]}}]
"""
SQL = "select id, customer, amount, at, cast(amount * 100 as long) as cents from source where amount > {}"
COLUMNS = "id long, customer string, amount decimal(10,2), at timestamp"
COMPLETION = {"_FLOODMARK_COMPLETE": "complete_bash", "COMP_WORDS": "floodmark run c1_1", "COMP_CWORD": "2"}
NO_JAVA = {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}


def run(jobs: int = JOBS, paged_jobs: int = PAGED_JOBS, receipts: int = RECEIPTS) -> list[Result]:
    return [*commands(jobs), *pages(paged_jobs, receipts)]


def commands(jobs: int) -> Iterator[Result]:
    """The best of some rounds each: the first still writes byte code."""
    with tempfile.TemporaryDirectory() as name:
        folder = make_project(Path(name), jobs)
        nowhere = {**NO_JAVA, "FLOODMARK_CACHE": f"{folder}/none"}
        for words, bound, lines, environment in (
            (["lint", "--json"], 3.0, None, {}),
            (["plan"], 3.0, jobs, nowhere),
            ([], 0.3, None, COMPLETION),
        ):
            taken = tuple(cpu_seconds(folder, words, environment, lines) for _ in range(ROUNDS))
            command = f"floodmark {' '.join(words)}" if words else "completion of a job's name"
            yield Result(f"{command}, {jobs} jobs, s of CPU", min(taken), bound, f"best of {ROUNDS}", ours=taken)


def make_project(folder: Path, jobs: int) -> Path:
    """Chains of twenty jobs in folders, each of which reads what the one before it fills."""
    (folder / "floodmark.yaml").write_text("store: sqlite:///state/marks.db\ndefaults: {retries: {attempts: 3}}\n")
    for part in ("sql", "in", "state"):
        (folder / part).mkdir()
    for chain, place in (divmod(number, CHAIN) for number in range(jobs)):
        name = f"c{chain}_{place}"
        files = f'{{type: files, path: in, schema: "{COLUMNS}"}}'
        source = f"{{type: delta, path: lake/c{chain}_{place - 1}}}" if place else files
        (folder / "sql" / f"{name}.sql").write_text(SQL.format(place))
        (folder / "jobs" / str(chain)).mkdir(parents=True, exist_ok=True)
        (folder / "jobs" / str(chain) / f"{name}.yaml").write_text(JOB.format(source=source, name=name, chain=chain))
    return folder


def cpu_seconds(folder: Path, words: list[str], environment: Mapping[str, str], lines: int | None) -> float:
    """What a command takes of the CPU in a process of its own; it has to end well, with so many lines."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    inherited = {**os.environ, **environment}
    answer = subprocess.run([*FLOODMARK, *words], cwd=folder, env=inherited, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert answer.stdout.strip()
    assert lines in (None, len(answer.stdout.splitlines())), answer.stdout
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def pages(jobs: int, receipts: int) -> Iterator[Result]:
    """The first look at a server that has just begun: with a table for every job."""
    with tempfile.TemporaryDirectory() as name:
        folder = make_project(Path(name), jobs)
        add_tables(folder)
        add_receipts(folder, receipts)
        for path, words in (("/", f"{jobs} jobs"), ("/metrics", "pipeline_start_count")):
            taken = tuple(first_look(folder, path, words) for _ in range(ROUNDS))
            detail = f"{receipts:,} receipts, first look, {UP_SECONDS} s after the address, median of {ROUNDS}"
            yield Result(f"{path} of {jobs} jobs, s", statistics.median(taken), 1.0, detail, ours=taken)


def add_tables(folder: Path) -> None:
    """Three rows in the table of each job."""
    rows = pa.table({"id": [1, 2, 3], "customer": ["a", "b", "c"]})
    for sql in (folder / "sql").iterdir():
        write_deltalake(str(folder / "lake" / sql.stem), rows)


def add_receipts(folder: Path, receipts: int) -> None:
    """As many of each job, the newest all done, straight into the store's table."""
    names = sorted(sql.stem for sql in (folder / "sql").iterdir())
    each, begun = receipts // len(names), datetime.now(timezone.utc) - timedelta(minutes=receipts // len(names))
    store = stores.open("sqlite:///state/marks.db", folder=folder)
    store.add_run(Receipt(names[0], "first", "done", begun))
    store.close()
    made = (
        Receipt(job, f"{turn}of{job}", "done" if turn % 10 else "failed", begun + timedelta(minutes=turn), 0.5, 1, turn)
        for turn in range(1, each)
        for job in names
    )
    rows = ((one.job, compact(with_format(one.serialize(), RECEIPT_FORMAT))) for one in made)
    with sqlite3.connect(folder / "state" / "marks.db") as connection:
        connection.executemany("insert into floodmark_runs (namespace, job, val) values ('default', ?, ?)", rows)
    connection.close()


def first_look(folder: Path, path: str, words: str) -> float:
    with serving(folder) as address:

        def look() -> None:
            with urllib.request.urlopen(f"{address}{path}") as answer:  # noqa: S310 - our own server
                text = answer.read().decode()
            assert words in text, text[:500]

        return seconds(look)


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of `floodmark serve` over this project."""
    command = [*FLOODMARK, "serve", "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said = next(match for line in process.stdout if (match := re.search(r"http://[\d.:]+", line)))
        time.sleep(UP_SECONDS)
        yield said[0]
    finally:
        process.terminate()
        process.wait()
