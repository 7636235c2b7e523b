"""A project of two hundred jobs in folders: lint, plan and the shell answer at once, by the CPU that they take."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.bench
CHAINS, LENGTH = 10, 20
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


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten chains of twenty jobs, each of which reads what the one before it fills."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "floodmark.yaml").write_text("store: sqlite:///state/marks.db\ndefaults: {retries: {attempts: 3}}\n")
    (folder / "sql").mkdir()
    (folder / "in").mkdir()
    for chain, place in ((chain, place) for chain in range(CHAINS) for place in range(LENGTH)):
        name = f"c{chain}_{place}"
        files = f'{{type: files, path: in, schema: "{COLUMNS}"}}'
        source = f"{{type: delta, path: lake/c{chain}_{place - 1}}}" if place else files
        (folder / "sql" / f"{name}.sql").write_text(SQL.format(place))
        (folder / "jobs" / str(chain)).mkdir(parents=True, exist_ok=True)
        text = JOB.format(source=source, name=name, chain=chain)
        (folder / "jobs" / str(chain) / f"{name}.yaml").write_text(text)
    return folder


def cpu_seconds(folder: Path, *words: str, **environment: str) -> tuple[float, str]:
    """What a command takes of the CPU in a process of its own, and what it prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "floodmark", *words]
    answer = subprocess.run(command, cwd=folder, env={**os.environ, **environment}, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, answer.stdout.decode()


def test_two_hundred_jobs_are_linted_in_three_seconds_of_cpu(shop: Path) -> None:
    """SQL, rules and guarantees of them all."""
    seconds, text = cpu_seconds(shop, "lint", "--json")
    assert (text.count('"guarantee": "exactly once"'), seconds < 3) == (200, True), seconds


def test_two_hundred_jobs_are_planned_without_a_jvm(shop: Path) -> None:
    """Java is out of reach: what needs none is said all the same."""
    seconds, text = cpu_seconds(shop, "plan", JAVA_HOME="/nowhere", PATH="/nowhere", FLOODMARK_CACHE=str(shop / "none"))
    assert (len(text.splitlines()), seconds < 3) == (200, True), seconds


def test_the_shell_completes_a_name_in_a_third_of_a_second_of_cpu(shop: Path) -> None:
    """It is asked at every key."""
    typed = {"_FLOODMARK_COMPLETE": "complete_bash", "COMP_WORDS": "floodmark run c3_1", "COMP_CWORD": "2"}
    seconds, text = cpu_seconds(shop, **typed)
    assert (len(text.split()), seconds < 0.3) == (11, True), seconds
