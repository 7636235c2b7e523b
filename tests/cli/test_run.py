"""`floodmark run` with jobs whose outcomes are written down: lines, documents and exit codes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from floodmark.cli.invocation import LazySession, Tools
from floodmark.errors import FloodmarkError, JobNotFound, LeaseHeld, SinkFailed, SourceRewritten
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import Receipt
from tests.cli.conftest import CommandResult
from tests.jobs.fakes import ScriptedJob, done, nothing_new

Floodmark = Callable[..., CommandResult]
BROKEN = SinkFailed("orders", sink="lake", reason="disk full")
REWRITTEN = SourceRewritten("files in/", what="a.jsonl was rewritten", hint="floodmark marks reset orders")


@pytest.fixture
def project(folder: Path) -> Path:
    file = folder / "floodmark.yaml"
    file.write_text("store: memory\njobs:\n  - {name: a, source: {type: files, path: in}, sinks: [{type: console}]}\n")
    return file


def tools(*jobs: ScriptedJob) -> Tools:
    """Scripted jobs, a store in memory, and no Spark: whoever asks for it fails."""

    def chosen(_project: object, _site: object, select: Sequence[str]) -> list[ScriptedJob]:
        return [job for job in jobs if not select or job.name in select]

    no_spark = LazySession(lambda: pytest.fail("no session is needed"))
    return Tools(lambda _: MemoryMarkStore(), chosen, lambda _: no_spark)  # type: ignore[arg-type]


@pytest.mark.usefixtures("project")
def test_a_run_is_one_line_per_job_and_a_summary(floodmark: Floodmark) -> None:
    """The line says what was read, what was written where, and how the mark moved."""
    said = floodmark(
        "run", tools=tools(ScriptedJob("orders", [done()]), ScriptedJob("returns", [nothing_new("returns")]))
    )
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [
        "orders: done, 2 rows read, written: lake 2; mark 3 → 5 (1.5 s)",
        "returns: nothing new (0.0 s)",
        "2 jobs: 1 done, 1 nothing new; 2 rows read",
    ]


@pytest.mark.usefixtures("project")
def test_json_is_one_document_of_the_promised_shape(floodmark: Floodmark) -> None:
    """Users script against exactly these fields."""
    said = floodmark("run", "--json", tools=tools(ScriptedJob("orders", [done()])))
    assert json.loads(said.out) == {
        "runs": [
            {
                "job": "orders",
                "status": "done",
                "batches": 1,
                "rows_read": 2,
                "rows_written": {"lake": 2},
                "written_by": {},
                "rows_refused": 0,
                "rows_quarantined": 0,
                "rows_dropped": 0,
                "rows_dead": 0,
                "rows_held_back": 0,
                "mark_before": 3,
                "mark_after": 5,
                "seconds": 1.5,
                "error": None,
                "notes": [],
                "score": None,
                "rules": [],
            }
        ]
    }


@pytest.mark.usefixtures("project")
def test_a_failed_job_is_in_the_document_and_on_stderr(floodmark: Floodmark) -> None:
    """stdout stays one document; people read the two lines."""
    said = floodmark("run", "--json", tools=tools(ScriptedJob("orders", [BROKEN])))
    [entry] = json.loads(said.out)["runs"]
    assert (said.code, entry["status"], "disk full" in entry["error"]) == (1, "failed", True)
    assert [line.split(":")[0] for line in said.err.splitlines()] == ["Error", "Try"]


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([BROKEN], 1),
        ([LeaseHeld("orders", holder="pid 1 on a", since="noon")], 4),
        ([REWRITTEN], 5),
        ([ValueError("boom")], 1),
        ([BROKEN, None], 3),
        ([None, REWRITTEN], 3),
        ([REWRITTEN, REWRITTEN], 5),
        ([BROKEN, REWRITTEN], 1),
        ([None, None], 0),
    ],
)
def test_exit_codes_say_which_jobs_failed_and_how(
    floodmark: Floodmark, outcomes: list[FloodmarkError | None], code: int
) -> None:
    """One job: its own code. Some failed: 3. All failed alike: that code; differently: 1."""
    jobs = [ScriptedJob(f"j{i}", [outcome or done(f"j{i}")]) for i, outcome in enumerate(outcomes)]
    assert floodmark("run", tools=tools(*jobs)).code == code


@pytest.mark.usefixtures("project")
def test_a_failed_job_does_not_stop_the_others(floodmark: Floodmark) -> None:
    """The next one runs all the same."""
    after = ScriptedJob("after", [done("after")])
    floodmark("run", tools=tools(ScriptedJob("orders", [BROKEN]), after))
    assert len(after.calls) == 1


@pytest.mark.usefixtures("project")
def test_jobs_side_by_side_are_reported_as_they_end_and_summed_up_in_order(floodmark: Floodmark) -> None:
    """One line each, one summary, and the exit code that they would have one after the other."""
    ended = threading.Event()
    slow = ScriptedJob("slow", [done("slow")], during=lambda: pytest.fail("alone") if not ended.wait(20) else None)
    quick = ScriptedJob("quick", [BROKEN, BROKEN], during=ended.set)
    said = floodmark("run", "--jobs", "2", tools=tools(slow, quick))
    assert (said.code, said.out.splitlines()[-1]) == (3, "2 jobs: 1 done, 1 failed; 2 rows read")
    documents = floodmark("run", "--jobs", "2", "--json", tools=tools(slow, quick))
    assert [entry["job"] for entry in json.loads(documents.out)["runs"]] == ["slow", "quick"]


@pytest.mark.usefixtures("project")
def test_the_options_reach_the_job(floodmark: Floodmark) -> None:
    """--from and --max-rows as they were given."""
    job = ScriptedJob("orders", [done()])
    floodmark("run", "--from", "2024-01-01", "--max-rows", "10", tools=tools(job))
    asked = {"start": "2024-01-01", "max_rows": 10, "full_refresh": False, "finish": False, "abandon": False}
    assert job.calls == [{**asked, "waits_for_settling": True, "listeners": ()}]


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    "options",
    [
        ("--finish", "--abandon"),
        ("--full-refresh", "--from", "1"),
        ("--loop", "--full-refresh"),
        ("--every", "5s", "--dry-run"),
        ("--loop", "--jobs", "2"),
        ("--jobs", "0"),
        ("--max-rows", "0"),
        ("--max-rows", "many"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(floodmark: Floodmark, options: tuple[str, ...]) -> None:
    """Exit 2 in two lines, and no job has run."""
    job = ScriptedJob("orders", [done()])
    said = floodmark("run", *options, tools=tools(job))
    assert (said.code, said.out, job.calls) == (2, "", [])
    assert [line.split(":")[0] for line in said.err.splitlines()] == ["Error", "Try"]


@pytest.mark.usefixtures("project")
def test_a_loop_ends_when_no_job_is_left_and_sums_its_runs_up(floodmark: Floodmark) -> None:
    """Two batches, an idle tick, then a decision: one entry per job, whose counts are those of all runs."""
    script: list[Receipt | Exception] = [
        done(rows=2, before=None, after=2),
        nothing_new(),
        done(rows=3, before=2, after=5),
        REWRITTEN,
    ]
    said = floodmark("run", "--every", "10ms", "--json", tools=tools(ScriptedJob("orders", script)))
    [entry] = json.loads(said.out)["runs"]
    counted = (entry["batches"], entry["rows_read"], entry["rows_written"], entry["status"])
    assert (said.code, counted) == (5, (2, 5, {"lake": 5}, "failed"))


@pytest.mark.usefixtures("project")
def test_in_a_loop_no_run_waits_for_files_to_settle(floodmark: Floodmark) -> None:
    """The next tick sees them; the other jobs must not wait."""
    job = ScriptedJob("orders", [REWRITTEN])
    floodmark("run", "--loop", tools=tools(job))
    assert job.calls[0]["waits_for_settling"] is False


def test_the_value_of_a_variable_is_in_no_output(
    floodmark: Floodmark, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever an error carries, the value is shown as its name."""
    monkeypatch.setenv("INBOX", "hunter2-inbox")
    project.write_text(project.read_text().replace("path: in", "path: ${INBOX}"))
    broken = SinkFailed("orders", sink="lake", reason="cannot read hunter2-inbox/a or pg://u:geheim@h/db")
    said = floodmark("run", "--json", "--log-level", "debug", tools=tools(ScriptedJob("orders", [broken])))
    output = said.out + said.err
    assert [secret in output for secret in ("hunter2", "geheim")] == [False, False]
    assert [shown in output for shown in ("${INBOX}/a", "u:***@h")] == [True, True]


@pytest.mark.usefixtures("project")
def test_an_unexpected_error_is_one_line_and_no_traceback(floodmark: Floodmark) -> None:
    """A bug in a user's function looks like this."""
    said = floodmark("run", tools=tools(ScriptedJob("orders", [ValueError("boom\nmore")])))
    assert said.err.splitlines() == ["Error: job 'orders': ValueError: boom", "Try: run again with --log-level debug"]


@pytest.mark.usefixtures("project")
def test_at_debug_the_traceback_is_shown(floodmark: Floodmark) -> None:
    """As the hint promised."""
    said = floodmark("run", "--log-level", "debug", tools=tools(ScriptedJob("orders", [ValueError("boom")])))
    assert "Traceback" in said.err


@pytest.mark.usefixtures("project")
def test_an_unknown_job_is_told_with_those_there_are(floodmark: Floodmark) -> None:
    """A misspelt --select is exit 2."""
    said = floodmark("run", "--select", "orders")
    assert (said.code, said.err) == (2, f"Error: {JobNotFound('orders', known=['a']).message}\nTry: one of: a\n")
