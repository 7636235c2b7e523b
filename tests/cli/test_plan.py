"""What `plan` says would be restated, in words."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

import floodmark as fm
from floodmark.cli.invocation import Invocation, LogSettings
from floodmark.cli.plan import JobPlan, print_plans, restated_text, span_text
from floodmark.errors import ConfigError, SinkGone
from floodmark.hwm import Json
from floodmark.hwm.mark import mark_text
from floodmark.jobs.job import Plan
from floodmark.sinks.restatement import Restatement
from floodmark.testing import RowsSource


@pytest.mark.parametrize(
    ("restated", "text"),
    [
        (
            Restatement("cost", "dates", 3, values=(20240101, 20240102, 20240105)),
            "cost: 3 dates will be restated: 20240101, 20240102, 20240105",
        ),
        (Restatement("cost", "dates", 1, values=(20240101,)), "cost: 1 date will be restated: 20240101"),
        (
            Restatement("cost", "dates", 21, values=tuple(range(21))),
            f"cost: 21 dates will be restated: {', '.join(map(str, range(20)))}, and 1 more",
        ),
        (Restatement("cost", "dates", 0), "cost: 0 dates will be restated"),
        (Restatement("cost", "dates", whole=True), "cost: all dates will be restated"),
        (Restatement("orders", "keys", 120, at_most=True), "orders: at most 120 keys will be restated"),
        (
            Restatement("orders", "keys", at_most=True),
            "orders: rows whose key is there already will be replaced",
        ),
    ],
)
def test_a_restatement_is_one_line(restated: Restatement, text: str) -> None:
    """Dates by name, keys by how many there can be."""
    assert restated_text(restated) == text


def test_sinks_that_only_add_restate_nothing(tmp_path: Path) -> None:
    """A merge and a table with history restate keys; known without Spark."""
    rows = [{"k": 1, "at": 1}, {"k": 1, "at": 2}]
    sinks = [
        fm.sinks.Delta(str(tmp_path / "all"), name="all"),
        fm.sinks.Delta(str(tmp_path / "latest"), mode="merge", key="k", name="latest"),
        fm.sinks.Scd2(str(tmp_path / "history"), key="k", sequence="at", name="history"),
    ]
    plan = fm.Job("j", RowsSource(rows, "k int, at int"), sinks).plan(no_session, fm.stores.open("memory"))
    assert [(each.sink, each.what, each.count, each.at_most) for each in plan.restated] == [
        ("latest", "keys", 2, True),
        ("history", "keys", 2, True),
    ]


def no_session() -> None:
    raise AssertionError("this needs no Spark")


@pytest.mark.parametrize(
    ("before", "after", "rows", "text"),
    [
        (["/in/a.jsonl"], ["/in/a.jsonl", "/in/b.jsonl"], None, "1 new file: b.jsonl"),
        (None, ["/in/a.jsonl", "/in/b.jsonl"], 5, "2 new files: a.jsonl, b.jsonl (5 rows)"),
        (
            None,
            [f"/in/{n}.csv" for n in range(7)],
            1,
            "7 new files: 0.csv, 1.csv, 2.csv, 3.csv, 4.csv, and 2 more (1 row)",
        ),
        (["/in/a"], {"files": 1200, "newest": "/in/z.csv"}, None, "1,199 new files, the newest z.csv"),
        ({"0": 5, "1": 7}, {"0": 5, "1": 9, "2": 1000}, 1002, "up to 1,002 messages in 2 partitions"),
        (None, {"0": 1}, 1, "up to 1 message in 1 partition"),
        (3, 5, 2000, "low 3, high 5, count 2,000"),
        (None, "2026-01-01", None, "low none, high 2026-01-01, count not known before reading"),
    ],
)
def test_what_would_be_read_is_said_in_the_words_of_its_source(
    before: Json, after: Json, rows: int | None, text: str
) -> None:
    """Files by name, messages by number, all else from mark to mark."""
    assert span_text(Plan("j", before, after, rows, has_work=True)) == text


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        (["/in/a.jsonl"], "1 file: a.jsonl"),
        (["/in/a.jsonl", "/in/b.jsonl"], "2 files: a.jsonl, b.jsonl"),
        ({"files": 1200, "newest": "/in/z.csv"}, "1,200 files, the newest z.csv"),
        ([1, 2], "[1, 2]"),
        ("2026-01-01", "2026-01-01"),
    ],
)
def test_a_mark_of_files_is_how_many_and_which(mark: Json, text: str) -> None:
    """In `marks show`, where whole paths would fill the line."""
    assert mark_text(mark) == text


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ([ConfigError("no such column.", hint="-"), OSError("disk")], 2),
        ([OSError("disk"), SinkGone("b", sink="lake", number=3, target="lake/b"), ConfigError("-", hint="-")], 5),
        ([OSError("disk"), OSError("disk")], 1),
    ],
)
def test_the_gravest_of_several_failures_is_the_exit_code(
    capsys: pytest.CaptureFixture[str], errors: list[Exception], code: int
) -> None:
    """A decision that is needed, then a mistake in the project, then what failed; each job is named."""
    planned = [JobPlan(Plan(f"job_{place}", None, None), error) for place, error in enumerate(errors)]
    with pytest.raises(typer.Exit) as ended:
        print_plans(planned, Invocation(), as_json=False)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Error: ")]
    assert (ended.value.exit_code, [line.split("'")[1] for line in said]) == (code, [each.plan.job for each in planned])


@pytest.mark.parametrize(("level", "shown"), [("debug", True), ("info", False)])
def test_where_the_failure_of_a_plan_comes_from_is_shown_at_debug(
    capsys: pytest.CaptureFixture[str], level: str, shown: bool
) -> None:
    """As of a command that fails as a whole."""
    try:
        raise ValueError("no number")
    except ValueError as error:
        planned = JobPlan(Plan("orders", None, None), error)
    with pytest.raises(typer.Exit):
        print_plans([planned], Invocation(logs=LogSettings(level)), as_json=True)
    assert ('raise ValueError("no number")' in capsys.readouterr().err) is shown
