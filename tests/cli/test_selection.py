"""A project in a folder, and the words that choose its jobs, through the command line; no Spark is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest

from floodmark.cli.completion import job_words
from floodmark.cli.invocation import Invocation, LazySession, Tools
from floodmark.cli.optimize import select_tables
from floodmark.hwm import ColumnIntHWM
from floodmark.stores.lease import hold
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import JobRecord, Receipt
from tests.cli.conftest import CommandResult

Floodmark = Callable[..., CommandResult]
JOB = "source: {{type: files, path: {reads}}}\ntags: {tags}\nsinks: [{{type: files, path: {fills}}}]\n"


@pytest.fixture
def shop(folder: Path) -> Path:
    """Three jobs, each of which reads what the next one in the order of names fills."""
    (folder / "floodmark.yaml").write_text("store: memory\n")
    for name, reads, fills, tags in [
        ("a_report", "out/mart", "out/report", "[nightly]"),
        ("b_mart", "out/orders", "out/mart", "[nightly, core]"),
        ("c_orders", "in", "out/orders", "core"),
    ]:
        (folder / "jobs" / "shop").mkdir(parents=True, exist_ok=True)
        (folder / reads).mkdir(parents=True, exist_ok=True)
        text = JOB.format(reads=reads, fills=fills, tags=tags)
        (folder / "jobs" / "shop" / f"{name}.yaml").write_text(text)
    return folder


def tools(*receipts: Receipt) -> Tools:
    """A store in memory with these runs; whoever asks for Spark fails."""
    store = MemoryMarkStore()
    no_spark = LazySession(lambda: pytest.fail("no session is needed"))
    [store.add_run(each) for each in receipts]
    return Tools(open_store=lambda _settings: store, session=lambda _settings: no_spark)


def ran(said: CommandResult) -> list[str]:
    return [line.partition(":")[0] for line in said.out.splitlines()[:-1]]


@pytest.mark.usefixtures("shop")
def test_jobs_run_after_those_that_fill_what_they_read(floodmark: Floodmark) -> None:
    """Whatever the files are called."""
    assert ran(floodmark("run", tools=tools())) == ["c_orders", "b_mart", "a_report"]


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("words", "jobs"),
    [
        (("b_mart",), ["b_mart"]),
        (("--select", "b_mart"), ["b_mart"]),
        (("-s", "+b_mart"), ["c_orders", "b_mart"]),
        (("b_mart+",), ["b_mart", "a_report"]),
        (("tag:nightly",), ["b_mart", "a_report"]),
        (("*_o*",), ["c_orders"]),
        (("--exclude", "tag:core"), ["a_report"]),
        (("tag:core", "a_report", "--exclude", "b_*"), ["a_report", "c_orders"]),
    ],
)
@pytest.mark.parametrize("command", ["run", "plan"])
def test_run_and_plan_take_the_same_words(
    floodmark: Floodmark, command: str, words: tuple[str, ...], jobs: list[str]
) -> None:
    """As arguments or by --select; nothing new needs no JVM."""
    said = floodmark(command, *words, "--json", tools=tools())
    [entries] = json.loads(said.out).values()
    assert [each["job"] for each in entries] == jobs


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    "command", [("lint",), ("lineage",), ("marks", "show"), ("runs",), ("quarantine", "list"), ("check",)]
)
def test_every_command_knows_the_words(floodmark: Floodmark, command: tuple[str, ...]) -> None:
    """A word that means nothing is the same mistake everywhere."""
    assert floodmark(*command, "tag:core", tools=tools()).code == 0
    said = floodmark(*command, "tag:none", tools=tools())
    assert (said.code, said.err.splitlines()[0]) == (2, "Error: no job has the tag 'none'.")


@pytest.mark.usefixtures("shop")
def test_lint_speaks_of_the_selected_jobs_alone(floodmark: Floodmark) -> None:
    """And of mistakes in the files, which are everybody's."""
    said = json.loads(floodmark("lint", "b_mart", "--json").out)
    assert {each["job"] for each in said["guarantees"]} == {"b_mart"}


@pytest.mark.usefixtures("shop")
def test_retry_failed_runs_those_whose_last_run_failed(floodmark: Floodmark) -> None:
    """One that works again, or never ran, is left alone."""
    now = datetime.now(timezone.utc)
    known = tools(
        Receipt("b_mart", "r1", "failed", now, error="disk full"),
        Receipt("c_orders", "r2", "failed", now, error="disk full"),
        Receipt("c_orders", "r3", "done", now),
    )
    assert ran(floodmark("run", "--retry-failed", tools=known)) == ["b_mart"]
    assert floodmark("run", "--retry-failed", "a_report", tools=known).out == "0 jobs: none ran; 0 rows read\n"


def test_the_shell_is_told_names_and_tags_without_reading_yaml(shop: Path) -> None:
    """Of files that are a job, of lists, and of the project file; in a folder below it, too."""
    (shop / "jobs" / "more.yaml").write_text("- name: d_one\n  sinks: [{name: lake}]\n- {name: e_two}\n")
    own = "jobs:\n  - name: first\n    rules:\n      - name: positive\n"
    (shop / "floodmark.yaml").write_text(own)
    words = job_words(shop / "jobs" / "shop")
    assert words == ["first", "d_one", "e_two", "a_report", "b_mart", "c_orders", "tag:nightly", "tag:core"]


def test_the_shell_is_answered_without_what_a_run_would_load(shop: Path) -> None:
    """It asks at every key; numbers and paths of a line that is not run need nobody who understands them."""
    typed = {
        "_FLOODMARK_COMPLETE": "complete_bash",
        "COMP_WORDS": "floodmark quarantine show --limit x a",
        "COMP_CWORD": "5",
    }
    command = [sys.executable, "-X", "importtime", "-m", "floodmark"]
    answer = subprocess.run(command, cwd=shop, env={**os.environ, **typed}, capture_output=True, text=True, check=True)
    assert (answer.stdout.split(), "pydantic" in answer.stderr) == (["a_report"], False)


def test_the_shell_is_told_nothing_where_there_is_no_project(folder: Path) -> None:
    """It completes file names then, as always."""
    assert job_words(folder) == []


def test_a_job_whose_table_is_made_by_another_waits_for_it_in_a_plan(floodmark: Floodmark, folder: Path) -> None:
    """A project that has never run can be planned; a table that nobody makes is still an error."""
    job = "source: {{type: delta, path: {}}}\nsinks: [{{type: delta, path: {}}}]\n"
    (folder / "floodmark.yaml").write_text("store: memory\n")
    (folder / "jobs").mkdir()
    (folder / "in").mkdir()
    first = "source: {type: files, path: in}\nsinks: [{type: delta, path: lake/a}]\n"
    (folder / "jobs" / "a.yaml").write_text(first)
    (folder / "jobs" / "b.yaml").write_text(job.format("lake/a", "lake/b"))
    assert floodmark("plan", tools=tools()).out.splitlines() == [
        "a: nothing new, mark none",
        "b: nothing to read yet: a has yet to fill what it reads",
    ]
    (folder / "jobs" / "a.yaml").unlink()
    assert floodmark("plan", tools=tools()).code == 1


def test_a_job_that_cannot_be_planned_is_named_and_hides_no_other(floodmark: Floodmark, folder: Path) -> None:
    """The document has all of them, and the exit code says that one failed."""
    job = "  - {{name: {}, source: {{type: {}}}, sinks: [{{type: delta, path: lake/{}}}]}}\n"
    jobs = [job.format("a", "delta, path: lake/none", "a"), job.format("b", "files, path: in", "b")]
    (folder / "floodmark.yaml").write_text("store: memory\njobs:\n" + "".join(jobs))
    (folder / "in").mkdir()
    said = floodmark("plan", tools=tools())
    assert (said.code, said.out) == (1, "b: nothing new, mark none\n")
    assert said.err.startswith("Error: job 'a' cannot be planned: delta table ")
    document = json.loads(floodmark("plan", "--json", tools=tools()).out)
    assert [(each["job"], each["error"] is None) for each in document["plans"]] == [("a", False), ("b", True)]


def test_health_of_some_jobs_is_of_their_tables_alone_and_alerts_nobody(floodmark: Floodmark, shop: Path) -> None:
    """The others were not looked at, so nothing can be said to be well again."""
    (shop / "floodmark.yaml").write_text(f"store: memory\nalerts: [{{to: file, path: {shop}/alerts.jsonl}}]\n")
    said = json.loads(floodmark("health", "tag:core", "--json", tools=tools()).out)
    assert set(said["checks"]["processing_offsets"]["subjects"]) == {"b_mart", "c_orders"}
    assert not (shop / "alerts.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "tables"),
    [((), ["a", "b"]), (("a",), ["a"]), (("job_b",), ["b"]), (("tag:x", "a"), ["a", "b"]), (("job_*",), ["a", "b"])],
)
def test_optimize_takes_tables_and_the_words_for_jobs(folder: Path, words: tuple[str, ...], tables: list[str]) -> None:
    """A table by its name, or all that a job fills."""
    job = "{{name: job_{0}, tags: [{1}], source: {{type: files, path: in}}, sinks: [{{type: delta, path: lake/{0}}}]}}"
    listed = f"[{job.format('a', 'y')}, {job.format('b', 'x')}]"
    (folder / "floodmark.yaml").write_text(f"store: memory\njobs: {listed}\n")
    assert [each.name for each in select_tables(Invocation(), words)] == tables


def test_optimize_leaves_out_the_tables_that_exclude_means(floodmark: Floodmark, folder: Path) -> None:
    """By a table's name, or by the words for jobs; leaving all out is a mistake."""
    job = "{{name: job_{0}, tags: [{1}], source: {{type: files, path: in}}, sinks: [{{type: delta, path: lake/{0}}}]}}"
    listed = f"[{job.format('a', 'y')}, {job.format('b', 'x')}]"
    (folder / "floodmark.yaml").write_text(f"store: memory\njobs: {listed}\n")
    assert [each.name for each in select_tables(Invocation(), (), ("a",))] == ["b"]
    assert [each.name for each in select_tables(Invocation(), ("job_*",), ("tag:x",))] == ["a"]
    said = floodmark("optimize", "tag:x", "--exclude", "b", tools=tools())
    assert (said.code, said.err.splitlines()[0]) == (2, "Error: --exclude leaves no table.")


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    "command",
    [
        ("quarantine", "show"),
        ("quarantine", "replay", "--dry-run"),
        ("quarantine", "discard", "--dry-run"),
        ("marks", "history"),
        ("marks", "reset", "--dry-run"),
        ("marks", "accept", "--dry-run"),
        ("backfill", "--from", "1", "--to", "2"),
        ("reconcile",),
        ("quarantine", "settle", "--keep", "true"),
        ("events", "prune", "--yes"),
        ("events", "prune", "--before", "5", "--yes"),
    ],
)
@pytest.mark.parametrize(
    "words", [("tag:none",), ("--select", "tag:none"), ("b_mart", "c_*", "--exclude", "tag:none")], ids=str
)
def test_commands_about_jobs_that_are_named_know_the_words_too(
    floodmark: Floodmark, command: tuple[str, ...], words: tuple[str, ...]
) -> None:
    """As arguments and by --select; --exclude means the same."""
    said = floodmark(*command, *words, tools=tools())
    assert (said.code, said.err.splitlines()[0]) == (2, "Error: no job has the tag 'none'.")


@pytest.mark.usefixtures("shop")
def test_what_is_done_to_several_jobs_is_said_of_each(floodmark: Floodmark) -> None:
    """In the order in which they run, as `run` takes them."""
    assert floodmark("quarantine", "show", "tag:core", tools=tools()).out.splitlines() == [
        "c_orders: no open row",
        "b_mart: no open row",
    ]
    assert floodmark("marks", "reset", "+b_mart", "--dry-run", tools=tools()).out.splitlines() == [
        "c_orders: mark none",
        "would forget the mark of 'c_orders' and deliver everything again",
        "b_mart: mark none",
        "would forget the mark of 'b_mart' and deliver everything again",
    ]


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    "command",
    [
        ("marks", "set", "--select", "tag:core", "5"),
        ("marks", "set", "tag:core", "5"),
        ("backfill", "tag:core", "--from", "1", "--to", "2"),
        ("reconcile", "-s", "tag:core"),
        ("quarantine", "settle", "tag:core", "--keep", "true"),
    ],
)
def test_what_is_about_one_job_refuses_several_by_name(floodmark: Floodmark, command: tuple[str, ...]) -> None:
    """One mark, one range, one decision; the message says which jobs the words mean."""
    said = floodmark(*command, tools=tools())
    assert (said.code, said.err.splitlines()) == (
        2,
        [
            "Error: 2 jobs are named, and this is about one: c_orders, b_mart.",
            "Try: name one job, or `--select` it",
        ],
    )


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("command", [("quarantine", "discard"), ("quarantine", "replay"), ("marks", "reset")])
def test_what_changes_rows_or_marks_is_never_done_to_all_for_want_of_a_name(
    floodmark: Floodmark, command: tuple[str, ...]
) -> None:
    """A forgotten word is no selection."""
    said = floodmark(*command, "--yes", tools=tools())
    assert (said.code, said.err.splitlines()[0]) == (2, "Error: no job is named, and this is not done to all of them.")


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    "words", [("b_mart", "5"), ("--select", "b_mart", "5"), ("tag:nightly", "5", "--exclude", "a_*")], ids=str
)
def test_a_mark_is_set_by_select_as_by_its_name(floodmark: Floodmark, words: tuple[str, ...]) -> None:
    """The value is the last argument."""
    known = tools()
    store = known.open_store({})
    with hold(store, "b_mart") as held:
        record = JobRecord("b_mart", 1, {"rows": ColumnIntHWM(name="seq", value=3)}, {})
        store.commit(record, expected=0, lease=held.lease)
    said = floodmark("marks", "set", *words, "--dry-run", tools=known)
    assert said.out.splitlines()[-1:] == ["would set the mark of 'b_mart' to 5"], said.err
