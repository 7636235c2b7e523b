"""`floodmark marks` and `floodmark runs` on a real store, without a JVM."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from floodmark import stores
from floodmark.hwm import HWM, ColumnDecimalHWM, ColumnIntHWM, FileListHWM, KeyValueIntHWM
from floodmark.hwm.files import FileStat
from floodmark.stores.contract import MarkStore
from floodmark.stores.extras import RecordExtras, SinkLedger
from floodmark.stores.lease import hold
from floodmark.stores.record import Intent, JobRecord, Receipt
from tests.cli.conftest import CommandResult

Floodmark = Callable[..., CommandResult]
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
PROJECT = """\
jobs:
  - {name: orders, source: {type: files, path: in}, sinks: [{type: files, path: out}]}
  - {name: orders_v2, source: {type: files, path: in}, sinks: [{type: files, path: out2}]}
"""


@contextmanager
def opened(folder: Path) -> Iterator[MarkStore]:
    store = stores.open("sqlite:///state/marks.db", namespace="default", folder=folder)
    yield store
    store.close()


def saved(folder: Path, job: str, mark: HWM[Any], number: int = 7) -> None:
    with opened(folder) as store, hold(store, job) as held:
        record = JobRecord(job, number, {"src": mark}, {"src": "files in"}, modified_time=NOON)
        store.commit(record, expected=0, lease=held.lease)


@pytest.fixture
def project(folder: Path) -> Path:
    (folder / "in").mkdir()
    (folder / "floodmark.yaml").write_text(PROJECT)
    return folder


def test_marks_are_shown_in_the_promised_shape(floodmark: Floodmark, project: Path) -> None:
    """Users script against exactly these fields; one row per source."""
    saved(project, "orders", KeyValueIntHWM("src", {0: 110, 1: 7}, modified_time=NOON))
    assert json.loads(floodmark("marks", "show", "--json").out) == {
        "marks": [
            {
                "job": "orders",
                "type": "key_value_int",
                "value": {"0": 110, "1": 7},
                "number": 7,
                "modified_time": "2026-01-01T12:00:00+00:00",
                "fingerprint": "files in",
            }
        ]
    }


@pytest.mark.parametrize(
    ("mark", "value"),
    [
        (ColumnIntHWM("src", 9007199254740993), "9007199254740993"),
        (ColumnIntHWM("src", 42), 42),
        (ColumnDecimalHWM("src", "10.10"), "10.10"),
    ],
)
def test_a_shown_value_is_exact(floodmark: Floodmark, project: Path, mark: HWM[Any], value: object) -> None:
    """JSON numbers lose digits beyond 2^53, so such values are text."""
    saved(project, "orders", mark)
    assert json.loads(floodmark("marks", "show", "orders", "--json").out)["marks"][0]["value"] == value


def test_marks_are_a_plain_table_where_nobody_looks(floodmark: Floodmark, project: Path) -> None:
    """In a pipe: no frames, no colours."""
    saved(project, "orders", ColumnIntHWM("src", 42, modified_time=NOON))
    assert [line.split() for line in floodmark("marks", "show").out.splitlines()] == [
        ["job", "type", "value", "number", "modified"],
        ["orders", "column_int", "42", "7", "2026-01-01T12:00:00"],
    ]


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"/in/b.csv": FileStat(1, 7), "/in/c.csv": FileStat(1, 5)}, "2 files, the newest b.csv"),
        ({"/in/b.csv": FileStat(1, 7)}, "1 file, the newest b.csv"),
        ({f"/in/{n:02}.csv": FileStat(1, n) for n in range(30)}, "30 files, the newest 29.csv"),
        ({"/in/b.csv": None, "/in/c.csv": None}, "2 files, the newest c.csv"),
    ],
)
def test_a_mark_of_files_is_shown_as_their_count_and_the_newest(
    floodmark: Floodmark, project: Path, files: dict[str, FileStat | None], text: str
) -> None:
    """By the time when it was modified; the document has the files themselves."""
    saved(project, "orders", FileListHWM("src", files))
    assert text in floodmark("marks", "show").out
    assert text in floodmark("marks", "history", "orders").out


@pytest.mark.usefixtures("project")
def test_a_job_without_a_mark_is_no_error(floodmark: Floodmark) -> None:
    """No mark is a state of its own; an unknown job is not."""
    assert floodmark("marks", "show", "orders").out == "orders: no mark\n"
    assert floodmark("marks", "show", "ordres").code == 2


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_set_asks_and_takes_no_for_an_answer(
    floodmark: Floodmark, project: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """No, nothing and the end of input all leave the mark where it is."""
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    saved(project, "orders", ColumnIntHWM("src", 42))
    said = floodmark("marks", "set", "orders", "10")
    with opened(project) as store:
        assert store.read("orders").marks["src"].value == 42  # type: ignore[union-attr]
    assert (said.code, said.err.splitlines()[-1]) == (1, "Try: answer y, or give --yes")


def test_a_dry_run_says_what_it_would_do_and_does_nothing(floodmark: Floodmark, project: Path) -> None:
    """Also with --yes."""
    saved(project, "orders", ColumnIntHWM("src", 42))
    said = floodmark("marks", "reset", "orders", "--yes", "--dry-run")
    assert said.out.splitlines() == [
        "orders: mark 42",
        "would forget the mark of 'orders' and deliver everything again",
    ]
    assert len(json.loads(floodmark("marks", "show", "--json").out)["marks"]) == 1


def test_set_moves_the_mark_and_history_remembers(floodmark: Floodmark, project: Path) -> None:
    """Down as well, under a higher number."""
    saved(project, "orders", ColumnIntHWM("src", 42))
    assert floodmark("marks", "set", "orders", "10", "--yes").code == 0
    history = json.loads(floodmark("marks", "history", "orders", "--json").out)["history"]
    assert [(entry["value"], entry["number"], entry["origin"]) for entry in history] == [
        (10, 8, "set"),
        (42, 7, "commit"),
    ]


def test_reset_forgets_the_mark_under_a_higher_number(floodmark: Floodmark, project: Path) -> None:
    """The number only grows, so an old batch number cannot swallow the new rows."""
    saved(project, "orders", ColumnIntHWM("src", 42))
    assert floodmark("marks", "reset", "orders", "--yes").out.splitlines()[-1] == "orders: no mark"
    with opened(project) as store:
        record = store.read("orders")
    assert (dict(record.marks), record.number) == ({}, 8)  # type: ignore[union-attr]


@pytest.mark.parametrize("act", [("set", "orders", "1"), ("reset", "orders")])
def test_a_mark_is_not_moved_under_a_running_job(floodmark: Floodmark, project: Path, act: tuple[str, ...]) -> None:
    """A live lease is exit 4, and the holder is named."""
    saved(project, "orders", ColumnIntHWM("src", 42))
    with opened(project) as store, hold(store, "orders"):
        said = floodmark("marks", *act, "--yes")
    assert (said.code, "is being run by pid" in said.err) == (4, True)


def test_a_value_of_the_wrong_kind_is_refused(floodmark: Floodmark, project: Path) -> None:
    """And the old mark stays."""
    saved(project, "orders", ColumnIntHWM("src", 42))
    said = floodmark("marks", "set", "orders", "abc", "--yes")
    assert (said.code, said.err.startswith("Error: column_int refuses 'abc'")) == (1, True)


def test_an_export_can_be_imported_elsewhere(floodmark: Floodmark, project: Path) -> None:
    """The mark comes back, under a number of its own."""
    saved(project, "orders", ColumnIntHWM("src", 42))
    floodmark("marks", "export", "marks.json")
    (project / "state" / "marks.db").unlink()
    assert floodmark("marks", "import", "marks.json", "--yes").code == 0
    [mark] = json.loads(floodmark("marks", "show", "--json").out)["marks"]
    assert (mark["job"], mark["value"], mark["fingerprint"]) == ("orders", 42, "files in")


def test_what_is_no_export_is_refused(floodmark: Floodmark, project: Path) -> None:
    """Exit 2, and what writes one is named."""
    (project / "x.json").write_text('{"a": 1}')
    said = floodmark("marks", "import", "x.json", "--yes")
    assert (said.code, said.err.splitlines()[1]) == (2, "Try: floodmark marks export FILE writes one")


def test_a_renamed_job_takes_its_mark_along(floodmark: Floodmark, project: Path) -> None:
    """copy OLD NEW."""
    saved(project, "orders", ColumnIntHWM("src", 42))
    said = floodmark("marks", "copy", "orders", "orders_v2", "--yes")
    shown = json.loads(floodmark("marks", "show", "--json").out)["marks"]
    assert said.out == "orders_v2: mark none becomes 42\n"
    assert [(mark["job"], mark["value"]) for mark in shown] == [("orders", 42), ("orders_v2", 42)]


def test_a_sink_that_lost_batches_can_be_accepted(floodmark: Floodmark, project: Path) -> None:
    """What it had and has is told; the mark stays, and asked again there is nothing to accept."""
    confirmed = SinkLedger("floodmark.default.orders.files", f"jsonl files in {project / 'out'}", 7)
    with opened(project) as store, hold(store, "orders") as held:
        extras = RecordExtras().with_sinks({"files": confirmed})
        record = JobRecord(
            "orders", 7, {"src": ColumnIntHWM("src", 42)}, {"src": "files in"}, extras, modified_time=NOON
        )
        store.commit(record, expected=0, lease=held.lease)
    said = floodmark("marks", "accept", "orders", "--yes")
    assert said.out.splitlines()[-1] == "orders: files has nothing of this job where it had batch 7: accepted"
    with opened(project) as store:
        after = store.read("orders")
    assert after is not None
    assert (after.number, after.extras.sinks, after.marks["src"].value) == (7, {}, 42)
    assert (
        floodmark("marks", "accept", "orders", "--yes").out.splitlines()[-1]
        == "orders: every sink has what it confirmed"
    )


def test_marks_of_a_job_with_an_open_batch_are_not_copied(floodmark: Floodmark, project: Path) -> None:
    """Its sinks may have the batch, under numbers that the other job does not know: its rows would come twice."""
    saved(project, "orders", ColumnIntHWM("src", 42))
    with opened(project) as store, hold(store, "orders") as held:
        record = store.read("orders")
        assert record is not None
        batch = Intent(8, "batch", {}, NOON, "attempt", None, {})
        store.intend(replace(record, intent=batch), expected=7, lease=held.lease)
    assert "orders: batch 8 is open, and not exported" in floodmark("marks", "export").err
    said = floodmark("marks", "copy", "orders", "orders_v2", "--yes")
    assert (said.code, "batch 8 of job 'orders' is not finished" in said.err) == (2, True)
    assert [mark["job"] for mark in json.loads(floodmark("marks", "show", "--json").out)["marks"]] == ["orders"]


def test_runs_are_shown_newest_first(floodmark: Floodmark, project: Path) -> None:
    """With what each of them did."""
    with opened(project) as store:
        store.add_run(Receipt("orders", "r1", "failed", NOON, error="disk full"))
        store.add_run(Receipt("orders", "r2", "skipped", NOON))
    runs = json.loads(floodmark("runs", "--json").out)["runs"]
    assert [(run["run"], run["status"], run["error"]) for run in runs] == [
        ("r2", "skipped", None),
        ("r1", "failed", "disk full"),
    ]
    assert "disk full" in floodmark("runs", "--job", "orders", "--last", "2").out


def test_a_store_that_cannot_be_read_is_exit_1(floodmark: Floodmark, project: Path) -> None:
    """It is never taken for "no marks"."""
    (project / "state").mkdir()
    (project / "state" / "marks.db").write_text("this is no database, and long enough to be taken for a broken one" * 9)
    said = floodmark("marks", "show")
    assert (said.code, said.out, said.err.startswith("Error: ")) == (1, "", True)
