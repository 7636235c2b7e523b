"""Lint: a job that reads the Delta table of another job can follow what that one does to it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.project.lint.test_lint import linted

FOLLOWED = """\
jobs:
  - name: orders
    source: {type: files, path: in}
    sinks: [{type: delta, name: lake, path: lake/orders, %s}]
  - name: totals
    source: {type: delta, path: ./lake/orders, %s}
    sinks: [{type: delta, path: lake/totals}]
"""
MERGED = "mode: merge, key: id"
TURN_ON = "change_feed: true at that sink"


@pytest.mark.parametrize(
    ("sink", "source", "hints"),
    [
        ("mode: append", "changes: append", []),
        (MERGED, "changes: append", [f"changes: feed, and {TURN_ON}"]),
        (f"{MERGED}, change_feed: true", "changes: append", ["changes: feed"]),
        (MERGED, "changes: feed", [TURN_ON]),
        (f"{MERGED}, change_feed: true", "changes: feed", []),
        ("mode: scd2, key: id, sequence: at", "changes: feed", []),
    ],
)
def test_a_table_of_another_job_that_cannot_be_followed_is_found_before_a_run(
    tmp_path: Path, sink: str, source: str, hints: list[str]
) -> None:
    """Both ends stand in one file, so nobody has to learn it from an error of the second run."""
    found = [each for each in linted(tmp_path, FOLLOWED % (sink, source)).findings if each.rule == "FM210"]
    assert [(each.where, each.hint) for each in found] == [("floodmark.yaml:6", hint) for hint in hints]


def test_a_table_whose_feed_somebody_has_switched_on_can_be_followed(tmp_path: Path) -> None:
    """What the file does not say, the table's own log does."""
    rows, feed = pa.table({"id": [1]}), {"delta.enableChangeDataFeed": "true"}
    write_deltalake(tmp_path / "lake/orders", rows, configuration=feed)
    report = linted(tmp_path, FOLLOWED % (MERGED, "changes: feed"))
    assert [each for each in report.findings if each.rule == "FM210"] == []


CIRCLE = """\
jobs:
  - name: a
    source: %s
    sinks: [%s]
  - name: b
    source: %s
    sinks: [%s]
"""
TABLE = "{type: delta, path: lake/%s}"
FOLDER = "{type: files, path: out/%s}"
TOPIC = "{type: kafka, bootstrap: h, topic: %s}"


@pytest.mark.parametrize("place", [TABLE, FOLDER, TOPIC], ids=["table", "folder", "topic"])
def test_a_job_that_reads_what_it_fills_is_found(tmp_path: Path, place: str) -> None:
    """Each run would find the rows of the one before it as new, without an end."""
    text = CIRCLE % (place % "x", place % "./x" if place != TOPIC else place % "x", place % "y", place % "z")
    found = [each for each in linted(tmp_path, text).findings if each.rule == "FM211"]
    assert [(each.job, each.where, each.severity) for each in found] == [("a", "floodmark.yaml:3", "warning")]


def test_jobs_that_read_from_each_other_are_found(tmp_path: Path) -> None:
    """The first run of each waits for the other's table, for ever."""
    text = CIRCLE % (TABLE % "x", TABLE % "y", TABLE % "y", TABLE % "x")
    found = [each for each in linted(tmp_path, text).findings if each.rule == "FM211"]
    assert [(each.job, "through b" in each.message or "through a" in each.message) for each in found] == [
        ("a", True),
        ("b", True),
    ]


def test_jobs_in_a_row_are_no_circle(tmp_path: Path) -> None:
    """Nor are two that fill one table."""
    text = CIRCLE % (TABLE % "x", TABLE % "y", TABLE % "y", TABLE % "z")
    assert [each for each in linted(tmp_path, text).findings if each.rule == "FM211"] == []
