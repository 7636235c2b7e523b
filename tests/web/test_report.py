"""`floodmark report`: one file with the right numbers, made without a JVM, safe whatever the rows hold."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from deltalake import DeltaTable

from floodmark.cli.app import run
from floodmark.cli.invocation import Invocation
from floodmark.cli.pages import snapshot_of
from floodmark.jobs.workflow.memory import TaskOutcome, WorkflowState
from floodmark.stores.record import Receipt, RestatedDates
from floodmark.stores.run_index import RunEnd
from floodmark.streams.elements import RecordId
from floodmark.streams.healer.dead_letters import DeadLetter, DeadLetters
from floodmark.web.graph import layer_of
from floodmark.web.rendering import (
    ago_text,
    dates_text,
    mark_steps,
    reason_for,
    report_html,
    resources,
    seconds_text,
    short_text,
    strip_of,
    task_gantt,
    tasks_without_bar,
)
from floodmark.web.snapshot import AsideView
from tests.web.prepared import HOSTILE, insert_receipts, put_aside

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def make_report(shop: Path) -> str:
    assert run(["report", "--project", str(shop / "floodmark.yaml"), "-o", str(shop / "report.html")]) == 0
    return (shop / "report.html").read_text()


@pytest.fixture(scope="module")
def report(shared_shop: Path) -> str:
    """Of the shop that nobody changes."""
    return make_report(shared_shop)


def test_the_report_has_the_marks_and_the_rows_of_every_job(report: str) -> None:
    """What stands in it is what the store says."""
    jobs = report[report.index('id="jobs"') : report.index('id="timeline"')]
    assert re.findall(r'<a href="#job-(\w+)">', jobs) == ["orders_bronze", "orders_silver", "revenue_gold"]
    assert jobs.count("<code>300</code>") == 3
    assert "amount_positive: 3 (was 0)" in report[report.index('id="changes"') :]


def test_the_gantt_of_the_last_run_has_a_bar_for_every_job(report: str) -> None:
    """The earliest first, each as wide as its share of the time."""
    timeline = report[report.index('id="timeline"') : report.index("<h3>Workflow")]
    bars = re.findall(r'<title>(\w+): .*?<rect class="bar (\w+)" x="([\d.]+)%".*? width="([\d.]+)%"', timeline)
    assert [(job, status) for job, status, _, _ in bars] == [
        ("orders_bronze", "done"),
        ("orders_silver", "done"),
        ("revenue_gold", "done"),
    ]
    assert [(left, width) for _, _, left, width in bars] == [
        ("0.0", "29.41"),
        ("35.29", "29.41"),
        ("70.59", "29.41"),
    ]


def test_the_gantt_of_a_workflow_lists_the_tasks_that_never_began(report: str) -> None:
    """A task that was skipped has no bar, and is told with the reason."""
    drawn = report[report.index("<h3>Workflow nightly, run runnightly</h3>") : report.index('id="runs"')]
    bars = re.findall(r'<title>(\w+): .*?<rect class="bar (\w+)" x="([\d.]+)%".*? width="([\d.]+)%"', drawn)
    assert bars == [("load", "success", "0.0", "75.0"), ("check", "failed", "75.0", "25.0")]
    [(status, rest)] = re.findall(r'<li><span class="badge (\w+)">SKIPPED</span> (.*?)</li>', drawn)
    assert (status, rest) == ("skipped", "publish <small>check did not end well</small>")


def test_a_workflow_of_an_earlier_version_lists_all_its_tasks() -> None:
    """When they began was not kept, but how they ended was."""
    run = WorkflowState("r", NOON).with_outcome(TaskOutcome("load", "SUCCESS"))
    assert (task_gantt(run), [task.task for task in tasks_without_bar(run)]) == (None, ["load"])


def last_run_tile(text: str) -> str:
    [note] = re.findall(r'<span class="label">Last run</span><b>[^<]*</b><span>([^<]*)</span>', text)
    return str(note)


def test_the_last_run_of_a_loop_is_its_last_turn(shop: Path) -> None:
    """A job that comes again is of an earlier call, however short the pause was."""
    begun = datetime.now(timezone.utc) - timedelta(minutes=10)
    turns = [("failed" if turn == 0 else "done", begun + timedelta(seconds=5 * turn)) for turn in range(60)]
    looped = (Receipt("orders_bronze", f"turn{at:%H%M%S}", status, at, 1.0, rows_read=7) for status, at in turns)
    insert_receipts(shop / "state/marks.db", looped)
    text = make_report(shop)
    assert last_run_tile(text) == "1 job, none failed"
    assert '<span class="label">Rows read by it</span><b>7</b>' in text
    assert f'After the run of orders_bronze at <time datetime="{turns[-2][1].isoformat()}' in text


def test_the_last_run_of_many_jobs_counts_every_one_of_them(shop: Path) -> None:
    """A failure at its very beginning is a failure of it, and what it changed is told since the call before."""
    begun = datetime.now(timezone.utc) - timedelta(minutes=10)
    starts = [begun + timedelta(seconds=place) for place in range(350)]
    names = [f"job{place}" for place in range(350)]
    ends = ["failed", *["done"] * 349]
    one_call = map(Receipt, names, (f"many{name}" for name in names), ends, starts)
    insert_receipts(shop / "state/marks.db", one_call)
    text = make_report(shop)
    assert last_run_tile(text) == "350 jobs, 1 failed"
    assert "After the run of revenue_gold" in text[text.index('id="changes"') :]


def test_the_graph_goes_from_the_source_through_the_layers(report: str) -> None:
    """Nodes carry their layer and the health of the jobs that fill them; edges their job."""
    [graph] = re.findall(r'<script type="application/json" id="graph">(.*?)</script>', report)
    drawn = json.loads(graph)
    assert {node["label"]: (node["layer"], node["status"]) for node in drawn["nodes"]} == {
        "incoming": ("source", None),
        "lake/bronze/orders": ("bronze", "WARNING"),
        "lake/silver/orders": ("silver", "HEALTHY"),
        "lake/gold/revenue": ("gold", "HEALTHY"),
    }
    assert [edge["job"] for edge in drawn["edges"]] == ["orders_bronze", "orders_silver", "revenue_gold"]


def test_restated_dates_are_told_with_what_moved(report: str) -> None:
    """A number that changed in the past has a reason, and the reason is a version."""
    [row] = re.findall(r"<tr>(?:(?!</tr>).)*2026-01-30, 2026-01-31.*?</tr>", report, re.DOTALL)
    assert "revenue_gold" in row
    assert "mark 200 → 300" in row


def test_a_restatement_names_the_inputs_that_rose() -> None:
    """Of a fact the mark is a version of each input."""
    run = Receipt(
        "fact", "r", "done", NOON, mark_before={"orders": 3, "prices": 1}, mark_after={"orders": 3, "prices": 2}
    )
    assert reason_for(run) == "prices: version 1 → 2"
    assert dates_text(RestatedDates.of(None)) == "all dates"
    assert dates_text(RestatedDates.of(range(20260101, 20260132))).endswith("2026-01-31")


def test_every_column_of_the_graph_says_what_it_is_made_of(report: str) -> None:
    """So the picture can answer without a server."""
    [graph] = re.findall(r'<script type="application/json" id="graph">(.*?)</script>', report)
    nodes = {node["label"]: node for node in json.loads(graph)["nodes"]}
    bronze = nodes["lake/bronze/orders"]["id"]
    assert nodes["lake/silver/orders"]["columns"]["cents"] == [[bronze, "amount", "orders_silver", "computed"]]


def test_nothing_in_the_report_is_asked_from_elsewhere(report: str) -> None:
    """It works offline, and its policy forbids the rest."""
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', report) == []
    assert "default-src &#39;none&#39;" in report


def test_html_in_a_row_or_an_error_is_shown_as_text(report: str) -> None:
    """A row is data, also for the browser."""
    assert HOSTILE not in report
    assert "&lt;img src=x onerror=alert(1)&gt;" in report


def test_a_dead_letter_of_ten_megabytes_is_cut(shop: Path) -> None:
    """The report stays a page."""
    put_aside(shop / "lake/aside/letters2", "dead_letter", ["x" * 10_000_000])
    project = (shop / "floodmark.yaml").read_text()
    (shop / "floodmark.yaml").write_text(project.replace("lake/aside/letters}", "lake/aside/letters2}"))
    text = make_report(shop)
    assert len(text) < 400_000
    assert "… (10,000,000 characters)" in text


LETTER = DeadLetter(
    RecordId("clicks", 0, 17), key=None, value=f'{{"page": "{HOSTILE}"}}'.encode(), headers=None,
    timestamp=1_700_000_000_000, step="parse", error="no such page", attempts=3, first_at=1.0, last_at=2.0,
)  # fmt: skip


def test_the_dead_letters_of_a_stream_are_told_with_those_of_jobs(shop: Path) -> None:
    """They wait for somebody too: those that are open, as text, and safe."""
    letters = DeadLetters(shop / "state/streams/click%2Fstream/dead")
    letters.add([LETTER, replace(LETTER, record=RecordId("clicks", 0, 18), value=b"dealt with")])
    letters.resolve(RecordId("clicks", 0, 18), "discarded", at=3.0)
    text = make_report(shop)
    aside = text[text.index("<h3>click/stream: dead letters</h3>") : text.index('id="health"')]
    assert "<p>1 open row: no such page (1)</p>" in aside
    assert "clicks/0:17" in aside
    assert "&lt;img src=x onerror=alert(1)&gt;" in aside
    assert "dealt with" not in aside
    assert '<span class="label">Rows put aside</span><b>4</b>' in text


def test_letters_of_a_stream_that_cannot_be_read_are_unknown_and_not_none(shop: Path) -> None:
    """The rest of the report is made all the same."""
    DeadLetters(shop / "state/streams/clicks/dead").add([LETTER])
    (shop / "state/streams/clicks/dead/letters.jsonl").write_text("broken\n")
    text = make_report(shop)
    assert "could not be looked at" in text[text.index("<h3>clicks: dead letters</h3>") :]


def test_a_quarantine_that_cannot_be_looked_at_is_unknown_and_not_empty(shop: Path) -> None:
    """No rows and could not look are never the same."""
    for entry in (shop / "lake/aside/orders/_delta_log").glob("*.json"):
        entry.write_text("broken")
    assert "could not be looked at" in make_report(shop)


def test_the_password_of_a_store_is_not_in_the_report(shop: Path) -> None:
    """Secrets are taken out of every page."""
    project = (shop / "floodmark.yaml").read_text()
    (shop / "floodmark.yaml").write_text(project + 'alerts: [{to: webhook, url: "http://me:hunter2@localhost/x"}]\n')
    assert "hunter2" not in make_report(shop)


def test_a_project_without_a_run_has_a_report(shop: Path) -> None:
    """The first look at a project may come before its first run."""
    shutil.rmtree(shop / "state")
    assert "Nothing ran yet." in make_report(shop)


@pytest.mark.slow
def test_the_report_is_written_where_it_is_asked_for_and_says_so(shop: Path) -> None:
    """`-o` and `--json`."""
    done = subprocess.run(
        [sys.executable, "-m", "floodmark", "report", "-o", "look.html", "--json"],
        cwd=shop, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == {"report": "look.html", "overall_status": "WARNING", "jobs": 4}
    assert (shop / "look.html").exists()


@pytest.mark.slow
def test_neither_a_jvm_nor_pyspark_is_needed_for_a_report(shared_shop: Path) -> None:
    """What only reads starts no JVM, and imports neither Spark nor pandas, which takes as long as all the rest."""
    code = (
        "import sys; from floodmark.cli.app import run; code = run(['report']); "
        "sys.exit(code or bool({'pyspark', 'pandas'} & set(sys.modules)))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], cwd=shared_shop, check=False, capture_output=True).returncode == 0
    )


@pytest.mark.slow
def test_a_report_imports_nothing_that_runs_a_workflow(shared_shop: Path) -> None:
    """It shows how the last one ended, which is one small module; to run one takes a third of all imports."""
    code = (
        "import sys; from floodmark.cli.app import run; run(['report']); "
        "print(*sorted(name for name in sys.modules if name.startswith('floodmark.jobs.workflow.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=shared_shop, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "floodmark.jobs.workflow.memory"


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("lake/silver/orders", "silver"),
        ("main.gold.revenue", "gold"),
        ("brz_orders", "bronze"),
        ("golden_retrievers", "other"),
        ("lake/raw/x", "bronze"),
        ("orders", "other"),
    ],
)
def test_a_layer_is_known_by_a_folder_a_schema_or_the_first_word(name: str, layer: str) -> None:
    """As people call them."""
    assert layer_of(name) == layer


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (9.96, "10.0 s"), (12.3, "12 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")]
)
def test_seconds_are_said_as_people_say_them(seconds: float, text: str) -> None:
    """Short where it is short."""
    assert seconds_text(seconds) == text


def test_a_long_text_says_how_long_it_was() -> None:
    """Nobody takes the beginning for the whole."""
    assert short_text("abcdef", 3) == "abc… (6 characters)"


def test_what_spark_used_is_said_in_units_that_people_read() -> None:
    """What it does not tell is left out."""
    used = {"cpu_seconds": 4.2, "peak_memory_bytes": 117_700_000, "shuffle_bytes": 20_480, "spill_bytes": 0}
    assert resources(used) == "4.2 s of CPU, 118 MB of peak memory, 20.5 kB of shuffle, 0 B of spill"
    assert resources({"spill_bytes": 3_000_000_000_000}) == "3 TB of spill"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3, "just now"), (7100, "118 min ago"), (7200, "2 h ago"), (2e5, "2 d ago")],
)
def test_how_long_ago_is_said_in_the_largest_unit_that_says_something(seconds: float, text: str) -> None:
    """Two hours, and not 7,200 seconds."""
    assert ago_text(NOON - timedelta(seconds=seconds), NOON) == text


def test_the_strip_of_a_job_is_as_high_as_its_rows_and_whole_where_a_run_failed() -> None:
    """The oldest on the left; looks that found nothing are left out."""
    done = [RunEnd("done", recovered=False, started=NOON, rows_read=rows) for rows in (50, 100)]
    others = [RunEnd(status, recovered=False, started=NOON) for status in ("failed", "nothing_new")]
    strip = strip_of([*others, *done])
    assert strip is not None
    drawn = [(bar.status, bar.left, bar.height) for bar in strip.bars]
    assert drawn == [("done", 0, 22), ("done", 6, 11), ("failed", 12, 22)]
    assert (strip.label, strip_of([])) == ("3 runs, 1 failed", None)


def test_of_a_mark_with_parts_those_that_rose_are_named() -> None:
    """The mark of a fact has a version for each of its inputs, and seldom do all rise."""
    assert mark_steps({"usage": 0, "prices": 3}, {"usage": 2, "prices": 3}) == [("usage", "0", "2")]
    assert mark_steps(None, {"0": 110}) == [("", "none", '{"0": 110}')]
    assert mark_steps(["/in/a"], ["/in/a", "/in/b"]) == [("", "1 file", "2 files")]


def test_a_table_is_as_ill_as_what_was_found_about_itself(shop: Path) -> None:
    """Its job may be well: somebody else emptied the table."""
    DeltaTable(shop / "lake/gold/revenue").delete()
    [graph] = re.findall(r'<script type="application/json" id="graph">(.*?)</script>', make_report(shop))
    [node] = [node for node in json.loads(graph)["nodes"] if node["label"] == "lake/gold/revenue"]
    assert (node["status"], "it is empty" in node["notes"]) == ("CRITICAL", True)


def test_what_two_checks_found_in_the_same_words_is_noted_once(shop: Path) -> None:
    """A table that is not there is neither fresh nor counted."""
    shutil.rmtree(shop / "lake/gold/revenue")
    [graph] = re.findall(r'<script type="application/json" id="graph">(.*?)</script>', make_report(shop))
    [node] = [node for node in json.loads(graph)["nodes"] if node["label"] == "lake/gold/revenue"]
    assert node["notes"] == ["there is no such table"]


def test_what_needs_nobody_is_folded(shared_shop: Path) -> None:
    """Among hundreds of jobs, those whose rows broke a rule or wait somewhere stand first."""
    seen = snapshot_of(Invocation(project=shared_shop / "floodmark.yaml"))
    broken, other, *_ = seen.jobs
    sound = tuple(
        replace(run, rules=tuple(replace(rule, failed=0) for rule in broken.runs[0].rules)) for run in other.runs
    )
    empty = AsideView(other.name, "quarantine", "lake/aside/silver")
    page = report_html(replace(seen, jobs=(replace(other, runs=sound), broken), asides=(empty, *seen.asides)))
    rules, aside = (page[page.index(f'id="{part}"') :].partition("</section>")[0] for part in ("rules", "aside"))
    assert re.findall(r"<h3>(\w+)</h3>|<summary>(.*?)</summary>", rules) == [
        ("orders_bronze", ""), ("", "1 job whose last batch broke no rule"), ("orders_silver", ""),
    ]  # fmt: skip
    assert re.findall(r"<h3>(.*?)</h3>|<summary>(.*?)</summary>", aside) == [
        ("orders_bronze: quarantine", ""), ("orders_bronze: dead letters", ""), ("", "1 place where no row waits"),
    ]  # fmt: skip
