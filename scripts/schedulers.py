#!/usr/bin/env python3
"""Try the files of examples/scheduling in Airflow and Dagster themselves: `scripts/schedulers.py [airflow] [dagster]`.

Each scheduler gets an environment of its own in the cache folder, in the version that is pinned here; the second time
it is there already. A project of three jobs is run to the end. Then a program in the place of `floodmark` ends with 4
(another run is at work: Airflow has to skip) and with 5 (a person has to decide: both have to fail, and not to retry).
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples" / "scheduling"
PROGRAM = ROOT / ".venv" / "bin" / "floodmark"
PINNED = {"airflow": "apache-airflow==3.3.2", "dagster": "dagster==1.13.28"}
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
JOBS = ("orders_bronze", "orders_silver", "revenue_gold")
PROJECT = """
store: sqlite:///state/marks.db
jobs:
  - name: orders_bronze
    source: {type: files, path: in/orders, format: jsonl, schema: "id long, amount decimal(10,2)", settle: 0s}
    sinks: [{type: delta, path: lake/bronze}]
  - name: orders_silver
    source: {type: delta, path: lake/bronze}
    sinks: [{type: delta, path: lake/silver, mode: merge, key: id}]
  - name: revenue_gold
    source: {type: delta, path: lake/silver, changes: append}
    transform: {sql: select sum(amount) as revenue from source}
    sinks: [{type: delta, path: lake/gold}]
"""
MATERIALIZE = """
import json, dagster, dagster_definitions as example
result = dagster.materialize(example.assets, raise_on_error=False)
states = {"STEP_SUCCESS": "success", "STEP_FAILURE": "failed", "STEP_UP_FOR_RETRY": "retried"}
ends = [event for event in result.all_events if event.event_type_value in states]
print(json.dumps({event.step_key: states[event.event_type_value] for event in reversed(ends)}))  # the first end counts
"""
ENDINGS = {
    "airflow": {4: ("skipped", "skipped", "skipped", "success"), 5: ("failed", *["upstream_failed"] * 2, "success")},
    "dagster": {5: ("failed", "not run", "not run")},
}
"""By exit code, the state of each job, and of health after them. Dagster tries exit 4 again, a minute later."""


def main(names: list[str]) -> int:
    """Try each scheduler that is named, or both; 1 if one did not do what its page says."""
    if not PROGRAM.exists():
        print(f"Error: there is no {PROGRAM.relative_to(ROOT)}.\nTry: make setup", file=sys.stderr)
        return 2
    complaints = []
    for name in names or list(PINNED):
        with tempfile.TemporaryDirectory(prefix="floodmark-scheduler-") as folder:
            faults = complaints_of(name, Path(folder))
        print(f"{PINNED[name]}: {'; '.join(faults) or 'three jobs ran, and other exit codes ended as the page says'}")
        complaints += faults
    return 1 if complaints else 0


def complaints_of(name: str, folder: Path) -> list[str]:
    """What the scheduler did otherwise than it should."""
    shop = folder / "shop"
    (shop / "in" / "orders").mkdir(parents=True)
    (shop / "in" / "orders" / "1.jsonl").write_text('{"id": 1, "amount": 5.25}\n{"id": 2, "amount": 7}\n')
    (shop / "floodmark.yaml").write_text(PROJECT)
    python = environment(name)
    expected = {str(PROGRAM): ("success",) * (4 if name == "airflow" else 3)}
    for code, states in ENDINGS[name].items():
        stand_in = folder / f"ends_with_{code}"
        stand_in.write_text(f'#!/bin/sh\n[ "$1" = health ] || exit {code}\n')
        stand_in.chmod(0o755)
        expected[str(stand_in)] = states
    run_of = airflow_states if name == "airflow" else dagster_states
    actual = {each: run_of(python, folder, {"SHOP": str(shop), "FLOODMARK": each}) for each in expected}
    differing = [each for each in expected if actual[each] != expected[each]]
    return [f"{Path(each).name}: {actual[each]}, not {expected[each]}" for each in differing]


def environment(name: str) -> Path:
    """The Python of an environment with the scheduler, made if it is not there yet."""
    sys.path.insert(0, str(ROOT / "src"))
    from floodmark.spark.java import cache_folder

    folder = cache_folder() / "schedulers" / PINNED[name]
    python, stamp = folder / "bin" / "python", folder / "floodmark-stamp"
    if not stamp.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, *PIP, PINNED[name]], check=True)
        stamp.touch()  # last: an interrupted installation starts over
    return python


def airflow_states(python: Path, folder: Path, settings: Mapping[str, str]) -> tuple[str, ...]:
    """How each task of `airflow dags test` ended, by a database of its own."""
    home = Path(tempfile.mkdtemp(dir=folder))
    around = {**settings, "AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    around |= {"AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES)}
    for words in (["db", "migrate"], ["dags", "test", "shop", "2026-01-03"]):
        call([python.with_name("airflow"), *words], around)
    with sqlite3.connect(home / "airflow.db") as database:
        states = dict(database.execute("select task_id, state from task_instance"))
    return tuple(states.get(task, "not run") for task in (*JOBS, "health"))


def dagster_states(python: Path, _: Path, settings: Mapping[str, str]) -> tuple[str, ...]:
    """How each asset ended when all of them were materialised in one process."""
    printed = call([python, "-c", MATERIALIZE], {**settings, "PYTHONPATH": f"{EXAMPLES}:{ROOT / 'src'}"})
    states = json.loads(printed.strip().splitlines()[-1])
    return tuple(states.get(job, "not run") for job in JOBS)


def call(words: list[str | Path], around: Mapping[str, str]) -> str:
    """What a program printed; a run of a DAG that failed as it should is no failure here."""
    path = f"{Path(words[0]).parent}:{os.environ['PATH']}"
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PATH": path, **around}
    return subprocess.run(words, env=surroundings, capture_output=True, text=True, check=False, timeout=900).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
