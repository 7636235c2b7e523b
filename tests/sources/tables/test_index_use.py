"""A look at a table that has an index reads some entries of it, and never the table: the plans say so."""

from __future__ import annotations

import json
from typing import Any

import pytest

from floodmark.probes.postgres import PostgresProbe
from floodmark.probes.tables import LowerBound, UpperBound
from floodmark.sources import Postgres
from floodmark.sources.tables.cursor import Cursor
from tests.sources.tables.reader import Reader, run, statement

LATE = "2024-01-07 12:00:00"
"""Some of the rows lie above."""


@pytest.fixture(scope="module")
def table(postgres: Any) -> str:  # noqa: ANN401 (the suite's server)
    """Fifty thousand rows, five in each minute."""
    database: str = postgres.create_database()
    run(
        database,
        "create table o (id int primary key, ts timestamp, v text)",
        "insert into o select n, timestamp '2024-01-01' + n / 5 * interval '1 min', repeat('x', 200)"
        " from generate_series(1, 50000) n",
        "create index on o (ts, id)",
        "analyze o",
    )
    return database


def probe_of(table: str, *columns: str) -> PostgresProbe:
    return Postgres(table, "o", cursor=Cursor(columns)).probe()


def scans(probe: PostgresProbe, statement: str) -> set[tuple[str, bool]]:
    """Every scan of the plan, and whether it stops early or begins at a value."""
    plan = probe.fetch(f"explain (format json) {statement}")[0][0]
    return set(scans_in((plan if isinstance(plan, list) else json.loads(plan))[0]["Plan"]))


def scans_in(node: dict[str, Any], *, limited: bool = False) -> list[tuple[str, bool]]:
    below = node["Node Type"] == "Limit"
    own = [(node["Node Type"], limited or "Index Cond" in node)] if "Scan" in node["Node Type"] else []
    return own + [found for child in node.get("Plans", []) for found in scans_in(child, limited=below)]


BY_INDEX = {
    ("Index Only Scan", True),
    ("Index Scan", True),
    ("Bitmap Index Scan", True),
    ("Bitmap Heap Scan", False),
    ("Subquery Scan", True),
    ("Subquery Scan", False),
}
"""Each begins at a value or is limited; a bitmap's heap is told by its index."""


@pytest.mark.parametrize(
    ("columns", "low"),
    [
        (["id"], LowerBound(("49990",))),
        (["ts", "id"], LowerBound((LATE, "46800"))),
        (["ts"], LowerBound((LATE,), inclusive=True, known_keys=(("46800",), ("46801",)))),
    ],
)
@pytest.mark.parametrize("upper", [(), (UpperBound(("49995",)),)])
def test_a_look_uses_the_index(table: str, columns: list[str], low: LowerBound, upper: tuple[UpperBound, ...]) -> None:
    """Highest, lowest, count, rows without a cursor and where to cut: each at one end of the index, or limited."""
    probe = probe_of(table, *columns)
    under = tuple(UpperBound((LATE,)) for _ in upper) if columns[0] == "ts" else upper
    found = scans(probe, probe.query(low, under).bounds_sql(1000))
    assert found <= BY_INDEX


def test_a_first_look_counts_no_more_than_some_rows(table: str) -> None:
    """Everything lies above no mark; the count stops at 100,000 rows."""
    probe = probe_of(table, "id")
    assert "LIMIT 100001" in probe.query(LowerBound()).bounds_sql(None)


def test_the_test_can_see_a_scan_of_the_table(table: str) -> None:
    """A column without an index has to be searched."""
    probe = probe_of(table, "v")
    assert ("Seq Scan", False) in scans(probe, probe.query(LowerBound()).bounds_sql(1000))


def test_a_column_that_is_never_null_is_not_searched_for_nulls(table: str) -> None:
    """The catalog says so."""
    probe = probe_of(table, "id")
    assert "IS NULL" not in probe.query(LowerBound()).bounds_sql(None)


@pytest.mark.parametrize("columns", [["ts", "id"], ["ts"]])
def test_a_read_uses_the_index_for_both_ends(table: str, columns: list[str]) -> None:
    """Row by row, as the index is ordered; keys that are left out are looked at only where they tie."""
    reader = Reader(Postgres(table, "o", cursor=Cursor(columns, start=LATE, safety="none")), max_rows=10)
    reader.batch()
    span = reader.look().span
    assert span is not None
    found = scans(reader.source.probe(), statement(reader.source, span))
    assert found <= BY_INDEX


def test_what_the_catalog_said_is_asked_once_for_each_connection(table: str) -> None:
    """Then a look is one statement, in one round trip."""
    probe = probe_of(table, "ts")
    probe.bounds(LowerBound(), None)
    connection = probe._open()
    before = probe.cursor()
    probe.bounds(LowerBound(), None)
    assert (probe.cursor() is before, probe._open() is connection) == (True, True)
