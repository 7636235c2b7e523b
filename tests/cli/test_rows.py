"""`floodmark show` and `query`: rows of tables, without a JVM."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from floodmark.cli.invocation import LazySession, Tools
from tests.cli.conftest import CommandResult
from tests.docs.running import SharedSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        (("show", "orders", "--at", "9"), "has no version 9; the newest is 1."),
        (("show", "orders.out", "--at", "1"), "Error: --at is a version of a Delta table."),
        (("show", "orders", "--where", "nope = 1"), "Error: there is no column 'nope'."),
        (("query", "selct * from orders"), "near 'from'): something is missing here"),
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


def test_of_a_column_that_is_not_there_the_nearest_one_is_named_or_those_that_are(looking: Floodmark) -> None:
    """As lint says it of a job."""
    assert looking("query", "select l.peces from lines l").err.splitlines()[1] == "Try: did you mean pieces?"
    assert looking("query", "select xyz from lines").err.splitlines()[1] == "Try: one of order_id, pieces"


@pytest.mark.spark
def test_a_table_that_only_spark_can_read_is_read_by_spark(
    spark: SparkSession, floodmark: Floodmark, folder: Path
) -> None:
    """Rows that a deletion vector hides must never be shown; a table of the catalog has no folder to look into."""
    (folder / "floodmark.yaml").write_text(PROJECT.replace("path: lake/lines", "table: shown_lines"))
    place = folder / "lake" / "orders"
    spark.sql(
        f"create table delta.`{place}` (id long) using delta tblproperties ('delta.enableDeletionVectors' = 'true')"
    )
    spark.range(4).coalesce(1).write.format("delta").mode("append").save(str(place))
    spark.sql(f"delete from delta.`{place}` where id = 2")
    spark.range(2).write.format("delta").saveAsTable("shown_lines")
    tools = Tools(session=lambda _settings: SharedSession(lambda: spark))
    try:
        rows = json.loads(floodmark("show", "orders", "--json", tools=tools).out)["rows"]
        named = floodmark("show", "lines", "--where", "id = 1", tools=tools).out
        asked = floodmark("query", "select count(*) as n from orders", "--spark", tools=tools).out
    finally:
        spark.sql("drop table shown_lines")
    assert sorted(row["id"] for row in rows) == [0, 1, 3]
    assert (named, asked) == ("id\n1\n1 row\n", "n\n3\n1 row\n")


@pytest.mark.server
def test_rows_of_a_table_of_postgresql_are_shown(floodmark: Floodmark, folder: Path, database: str) -> None:
    """By its own client, in its own SQL; and nothing can be changed by it."""
    sink = f'{{type: postgres, url: "{database}", table: mart.orders}}'
    (folder / "floodmark.yaml").write_text(
        f"store: memory\njobs: [{{name: orders, source: {{type: files, path: in}}, sinks: [{sink}]}}]\n"
    )
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA mart")
        connection.execute('CREATE TABLE mart.orders ("OrderId" int, note text)')
        connection.execute("INSERT INTO mart.orders VALUES (1, 'a'), (2, NULL)")
    assert floodmark("show", "orders", "--where", '"OrderId" = 2').out == "OrderId  note\n2\n1 row\n"
    refused = floodmark("show", "orders", "--where", "true; DROP TABLE mart.orders")
    wrong = floodmark("show", "orders", "--where", "nope = 1")
    assert (refused.code, wrong.code) == (2, 2)
    assert floodmark("show", "orders", "--columns", "note", "--limit", "1").out == "note\na\n1 row\n"


@pytest.mark.parametrize("words", [("show", "lines"), ("query", "select 1 from lines")], ids=["show", "query"])
def test_a_table_that_no_run_has_filled_is_not_taken_for_a_wrong_name(
    looking: Floodmark, folder: Path, words: tuple[str, ...]
) -> None:
    """What is missing is a run."""
    shutil.rmtree(folder / "lake/lines")
    result = looking(*words)
    assert (result.code, result.err.splitlines()) == (
        1,
        [
            "Error: table lines cannot be read: no run has written to it yet.",
            "Try: floodmark run; `floodmark plan` says what it would read",
        ],
    )
