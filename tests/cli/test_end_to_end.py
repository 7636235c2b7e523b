"""The whole way with real Spark: init, run, run again, and what a second look at the marks says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

pytestmark = pytest.mark.spark


def floodmark(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command, variables = [sys.executable, "-m", "floodmark.cli", *arguments], {**os.environ, **environment}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def lake(folder: Path) -> list[tuple[int, str, int]]:
    rows = DeltaTable(str(folder / "lake" / "orders")).to_pyarrow_table().to_pylist()
    return sorted((row["id"], row["customer"], row["cents"]) for row in rows)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `init` wrote, after one run of it."""
    folder = tmp_path_factory.mktemp("demo")
    assert floodmark(folder, "init").returncode == 0
    first = floodmark(folder, "run", "--json")
    assert first.returncode == 0, first.stderr
    (folder / "first.json").write_text(first.stdout)
    return folder


def test_what_init_writes_runs_at_once(project: Path) -> None:
    """Two files, five records, four orders: one was corrected by a later record."""
    [run] = json.loads((project / "first.json").read_text())["runs"]
    assert (run["status"], run["rows_read"], run["batches"], run["mark_before"]) == ("done", 5, 1, None)
    assert lake(project) == [(1, "ada", 1990), (2, "grace", 600), (3, "linus", 4200), (4, "ada", 725)]


def test_a_second_run_finds_nothing_new_and_starts_no_spark(project: Path) -> None:
    """Exit 0, nothing written, and the mark where it was; without a Java that Spark could be started with."""
    version = DeltaTable(str(project / "lake" / "orders")).version()
    again = floodmark(project, "run", "--json", JAVA_HOME="/nowhere", PATH="/nowhere")
    [run] = json.loads(again.stdout)["runs"]
    assert (again.returncode, run["status"], run["rows_read"]) == (0, "nothing_new", 0)
    assert DeltaTable(str(project / "lake" / "orders")).version() == version


def test_a_plan_without_changes_is_exit_0_also_when_detailed(project: Path) -> None:
    """6 is kept for something to do."""
    assert floodmark(project, "plan", "--detailed-exitcode").returncode == 0


def test_the_mark_is_shown_with_its_source(project: Path) -> None:
    """By list: the files that were read."""
    [mark] = json.loads(floodmark(project, "marks", "show", "--json").stdout)["marks"]
    assert (mark["job"], mark["type"], mark["number"]) == ("orders_to_lake", "file_list", 1)
    assert str(project / "in" / "orders") in mark["fingerprint"]


def test_a_file_that_was_rewritten_needs_a_decision(project: Path) -> None:
    """Exit 5, two lines, and the lake as it was."""
    before, file = lake(project), project / "in" / "orders" / "2026-01-01.jsonl"
    kept, times = file.read_bytes(), file.stat()
    file.write_text('{"id": 9}\n')
    refused = floodmark(project, "run")
    file.write_bytes(kept)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (refused.returncode, lake(project)) == (5, before)
    assert [line.split(":")[0] for line in refused.stderr.splitlines()] == ["Error", "Try"]


@pytest.mark.crash
def test_new_files_are_planned_dry_run_and_run(project: Path) -> None:
    """A plan with work is exit 6 when asked; a dry run names the new file; neither touches anything."""
    arrived = '{"id": 5, "customer": "joan", "amount": "1.00", "ordered_at": "2026-01-03T08:00:00Z"}\n'
    (project / "in" / "orders" / "2026-01-03.jsonl").write_text(arrived)
    planned = floodmark(project, "plan", "--detailed-exitcode", "--json")
    dry = floodmark(project, "run", "--dry-run")
    assert (planned.returncode, dry.returncode, len(lake(project))) == (6, 0, 4)
    assert json.loads(planned.stdout)["plans"][0]["has_work"]
    assert dry.stdout.startswith("orders_to_lake: 1 new file: 2026-01-03.jsonl")
    assert floodmark(project, "run").returncode == 0
    assert lake(project)[-1] == (5, "joan", 100)


@pytest.mark.crash
def test_ctrl_c_ends_a_loop_politely_also_when_spark_is_running(project: Path) -> None:
    """PySpark takes the signal over when it starts; the loop has it back."""
    arrived = '{"id": 6, "customer": "mary", "amount": "2.00", "ordered_at": "2026-01-04T08:00:00Z"}\n'
    (project / "in" / "orders" / "2026-01-04.jsonl").write_text(arrived)
    command = [sys.executable, "-m", "floodmark.cli", "run", "--loop"]
    looping = subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert looping.stdout is not None
    first = looping.stdout.readline()
    looping.send_signal(signal.SIGINT)
    _, err = looping.communicate(timeout=60)
    assert (first.startswith("orders_to_lake: done, "), looping.returncode) == (True, 0)
    [said] = [line for line in err.splitlines() if " info " not in line]
    assert said.startswith("Stopping: what is under way is finished first")
