"""What lint says about a cursor before any database was asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project.lint.test_lint import linted

JOB = """
store: memory
jobs:
  - name: orders
    source: {source}
    sinks:
      - {sink}
"""
LAKE = "{type: delta, path: lake/orders}"
MERGED = "{type: delta, path: lake/orders, mode: merge, key: [id]}"
DATABASE = "type: postgres, url: 'postgresql://db/shop'"


def rules(folder: Path, source: str, sink: str) -> list[str]:
    found = linted(folder, JOB.format(source=source, sink=sink)).findings
    return [finding.rule for finding in found if finding.rule in ("FM416", "FM417")]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (f"{{{DATABASE}, table: o, cursor: at}}", []),
        (f"{{{DATABASE}, query: 'select * from o', cursor: at}}", ["FM417"]),
        (f"{{{DATABASE}, query: 'select * from o', cursor: at, key: id}}", []),
        (f"{{{DATABASE}, query: 'select * from o', cursor: [at, id]}}", []),
        (f"{{{DATABASE}, query: 'select * from o', cursor: {{column: id, unique: true}}}}", []),
        (f"{{{DATABASE}, query: 'select * from o where at > :after and at <= :upto', cursor: at, key: id}}", ["FM417"]),
        ("{type: jdbc, url: 'jdbc:db2://db/shop', table: o, cursor: {column: at, safety: {delay: 1m}}}", ["FM417"]),
        ("{type: jdbc, url: 'jdbc:mysql://db/shop', table: o, cursor: {column: at, safety: {delay: 1m}}}", []),
        ("{type: jdbc, url: 'jdbc:postgresql://db/shop', table: o, cursor: at}", []),
        ("{type: table, name: main.shop.o, cursor: {column: at, safety: {delay: 1m}}}", ["FM417"]),
        ("{type: table, name: main.shop.o, cursor: {column: at, safety: {lag: 1d}}, key: [id]}", []),
        ("{type: table, name: main.shop.o, snapshot: true, key: [id]}", []),
    ],
)
def test_rows_that_nothing_tells_apart_are_found(tmp_path: Path, source: str, found: list[str]) -> None:
    """Of a table of a database that is known by name the catalog will tell; of a query nobody can."""
    assert rules(tmp_path, source, LAKE) == found


@pytest.mark.parametrize(("sink", "found"), [(LAKE, ["FM416"]), (MERGED, []), ("{type: console}", ["FM416"])])
def test_rows_without_a_cursor_need_a_sink_that_merges(tmp_path: Path, sink: str, found: list[str]) -> None:
    """They come again once they have one."""
    assert rules(tmp_path, f"{{{DATABASE}, table: o, cursor: {{column: at, on_null: include}}}}", sink) == found
