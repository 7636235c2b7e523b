"""What lint says about reading a table while others write to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.project.lint.test_lint import linted

if TYPE_CHECKING:
    from pathlib import Path

JOB = """
jobs:
  - name: orders
    source: {source}
    sinks:
      - {sink}
"""
POSTGRES = "{{type: postgres, url: 'postgresql://db/shop', table: o, cursor: {cursor}{more}}}"
LAKE = "{type: delta, path: lake/orders}"


def polled(cursor: str, more: str = "") -> str:
    return POSTGRES.format(cursor=cursor, more=more)


@pytest.mark.parametrize(
    ("source", "rules"),
    [
        (polled("id"), []),
        (polled("{column: id, safety: fence}"), []),
        (polled("{column: id, safety: {fence_wait: 10s}}"), []),
        (polled("{column: id, safety: none}"), ["FM410"]),
        (polled("{column: at, safety: delay}"), ["FM413"]),
        (polled("{column: at, safety: {lag: 2h}}", ", key: [id]"), []),
        (polled("{column: at, safety: {lag: 2h}}"), ["FM414"]),
        (polled("xmin"), ["FM415"]),
        (polled("{column: id, safety: {horizon: 1h}}"), ["FM206"]),
        ("{type: sqlite, path: o.db, table: o, cursor: id}", []),
        ("{type: jdbc, url: 'jdbc:mysql://db/shop', table: o, cursor: [at, id]}", ["FM209", "FM410"]),
        ("{type: table, name: main.shop.o, cursor: [at, id]}", ["FM410"]),
        ("{type: table, name: main.shop.o, snapshot: true, key: id}", []),
        (
            "{type: jdbc, url: 'jdbc:mysql://h/x', table: o, cursor: {column: [at, id], safety: delay}}",
            ["FM209", "FM413"],
        ),
    ],
)
def test_a_choice_that_may_lose_rows_is_warned_about(tmp_path: Path, source: str, rules: list[str]) -> None:
    """With the id of its rule; where only one can write at a time, or a fence waits, there is nothing to say."""
    assert [finding.rule for finding in linted(tmp_path, JOB.format(source=source, sink=LAKE)).findings] == rules


@pytest.mark.parametrize(
    ("sink", "rules"),
    [
        (LAKE, []),
        ("{type: delta, path: lake/orders, mode: merge, key: [id]}", []),
        ("{type: postgres, url: 'postgresql://db/mart', table: o, mode: merge, key: [id]}", []),
        ("{type: postgres, url: 'postgresql://db/mart', table: o}", ["FM414"]),
        ("{type: files, path: out}", ["FM414"]),
    ],
)
def test_rows_that_are_read_again_need_a_sink_that_knows_them(tmp_path: Path, sink: str, rules: list[str]) -> None:
    """Before a run refuses it."""
    source = polled("{column: at, safety: lag}", ", key: [id]")
    found = [finding.rule for finding in linted(tmp_path, JOB.format(source=source, sink=sink)).findings]
    assert [rule for rule in found if rule == "FM414"] == rules
