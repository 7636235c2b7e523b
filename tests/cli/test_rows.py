"""`floodmark show` and `query`: rows of tables, without a JVM."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from floodmark.cli.invocation import LazySession, Tools
from tests.cli.conftest import CommandResult

Floodmark = Callable[..., CommandResult]
PROJECT = """\
store: memory
jobs:
  - name: orders
    source: {type: files, path: in}
    sinks:
      - {name: lake, type: delta, path: lake/orders}
      - {name: out, type: files, path: out/orders, format: jsonl}
  - {name: lines, source: {type: files, path: in}, sinks: [{type: delta, path: lake/lines}]}
  - {name: shout, source: {type: files, path: in}, sinks: [{type: console}]}
"""
ORDERS = pa.table({"OrderId": [1, 2, 3], "customer": ["ada", "grace", None]})


@pytest.fixture
def looking(floodmark: Floodmark, folder: Path) -> Floodmark:
    """The command line over two tables; whoever asks for Spark fails."""
    (folder / "floodmark.yaml").write_text(PROJECT)
    write_deltalake(str(folder / "lake/orders"), ORDERS)
    write_deltalake(str(folder / "lake/orders"), pa.table({"OrderId": [4], "customer": ["linus"]}), mode="append")
    write_deltalake(str(folder / "lake/lines"), pa.table({"order_id": [1, 1, 4], "pieces": [2, 3, 5]}))
    batch = folder / "out/orders/batch=1"
    batch.mkdir(parents=True)
    (batch / "part-0.jsonl").write_text('{"OrderId": 1, "customer": "ada"}\n{"OrderId": 2}\n')
    no_spark = LazySession(lambda: pytest.fail("no session is needed"))
    return lambda *words: floodmark(*words, tools=Tools(session=lambda _settings: no_spark))


def test_a_table_is_shown_by_the_name_of_its_job(looking: Floodmark) -> None:
    """NULL is empty, and the last line counts."""
    assert looking("show", "orders", "--where", "orderid in (2, 3)").out.splitlines() == [
        "OrderId  customer",
        "2        grace",
        "3",
        "2 rows",
    ]


def test_a_table_is_shown_as_a_version_of_it_was(looking: Floodmark) -> None:
    """The fourth order came with version 1."""
    said = looking("show", "lake/orders", "--at", "0", "--columns", "OrderId", "--json")
    assert json.loads(said.out) == {"columns": ["OrderId"], "rows": [{"OrderId": 1}, {"OrderId": 2}, {"OrderId": 3}]}


def test_published_files_are_shown_like_a_table(looking: Floodmark) -> None:
    """JOB.SINK names one of several sinks."""
    assert looking("show", "orders.out", "--limit", "1").out.splitlines() == [
        "OrderId  customer",
        "1        ada",
        "1 row",
    ]
    assert looking("show", "orders.out", "--where", "customer is null").out.splitlines()[1:] == ["2", "1 row"]


def test_a_query_joins_tables_of_the_project(looking: Floodmark) -> None:
    """In Spark's SQL, names in whatever case."""
    sql = (
        "select ORDERID, sum(pieces) as pieces from orders join lines on orderid = order_id group by OrderId order by 1"
    )
    assert looking("query", sql).out.splitlines() == ["OrderId  pieces", "1        5", "4        5", "2 rows"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "ordrs"), "Error: no table 'ordrs'."),
        (("show", "shout"), "Error: shout goes to a console sink, which keeps no table."),
        (("show", "orders", "--at", "9"), "has no version 9"),
        (("show", "orders.out", "--at", "1"), "Error: --at is a version of a Delta table."),
        (("show", "orders", "--where", "nope = 1"), "No field named nope"),
        (("show", "orders", "--where", "true; drop table x"), "Error: the SQL is wrong"),
        (("query", "drop table orders"), "Error: the SQL has to be one SELECT."),
        (("query", "select 1 from nope"), "Error: no table 'nope'."),
    ],
)
def test_what_cannot_be_shown_is_said_in_two_lines(looking: Floodmark, words: tuple[str, ...], said: str) -> None:
    """A name, a version or a condition that is wrong; and looking never changes anything."""
    answer = looking(*words)
    assert answer.code == 2
    assert said in answer.err.splitlines()[0]
    assert answer.err.splitlines()[1].startswith("Try: ")
