"""Jobs together: what they read and fill, and what is upstream and downstream."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import floodmark as fm
from floodmark.errors import ConfigError
from floodmark.lineage import Dataset, Hop, Lineage, Point, lineage_of
from floodmark.medallion.dimensions import dimension
from floodmark.medallion.facts import FactRows, Lookup, fact

ORDERS, SILVER, GOLD, PRICES = (Dataset("file", f"/lake/{name}") for name in ("orders", "silver", "gold", "prices"))
DIMENSION = Dataset("file", "/lake/dim")


@dataclass
class Message:
    """What a topic holds."""

    id: int
    note: str


def to_lake() -> fm.Job:
    source = fm.sources.Files("/in", schema="id long, amount decimal(10,2), day int, at timestamp")
    return fm.Job(name="to_lake", source=source, sinks=[fm.sinks.Delta("/lake/orders")])


def to_silver() -> fm.Job:
    sink = fm.sinks.Scd2("/lake/silver", key=("id",), sequence=("at",))
    sql = "SELECT id, amount * 100 AS cents, day, at FROM source WHERE amount > 0"
    return fm.Job(name="to_silver", source=fm.sources.Delta("/lake/orders"), transform=sql, sinks=[sink])


def to_gold() -> fm.Job:
    return fact(
        "to_gold",
        rows=FactRows("rows", "/lake/silver", date="day"),
        lookups=[Lookup("prices", "/lake/prices", on={"id": "id"})],
        build="SELECT day AS date_sk, sum(cents * p.rate) AS total FROM rows r JOIN prices p ON p.id = r.id GROUP BY 1",
        path="/lake/gold",
    )


def to_dimension() -> fm.Job:
    columns = {"order_id": "id", "euros": "cents / 100"}
    return dimension("to_dim", source="/lake/silver", path="/lake/dim", key="sk", natural=["order_id"], columns=columns)


@pytest.fixture
def lake() -> Lineage:
    """From files to a fact and a dimension; the jobs are not given in their order."""
    return lineage_of([to_gold(), to_dimension(), to_silver(), to_lake()])


def brief(hops: list[Hop]) -> list[tuple[str, str, str, int]]:
    return [(str(hop.point), hop.job, hop.how, hop.depth) for hop in hops]


def test_a_column_is_followed_back_to_where_it_came_from(lake: Lineage) -> None:
    """Across jobs, the nearest first."""
    assert brief(lake.upstream(Point(GOLD, "total"))) == [
        ("/lake/silver.cents", "to_gold", "aggregated", 1),
        ("/lake/prices.rate", "to_gold", "aggregated", 1),
        ("/lake/orders.amount", "to_silver", "computed", 2),
        ("/in.amount", "to_lake", "as it is", 3),
    ]


def test_a_column_is_followed_to_all_that_depends_on_it(lake: Lineage) -> None:
    """Also to tables in which it is no value, and decides which rows there are."""
    found = brief(lake.downstream(Point(ORDERS, "amount")))
    assert found == [
        ("/lake/silver.cents", "to_silver", "computed", 1),
        ("/lake/silver", "to_silver", "filter", 1),
        ("/lake/gold.total", "to_gold", "aggregated", 2),
        ("/lake/dim.euros", "to_dim", "computed", 2),
        ("/lake/gold", "to_gold", "", 2),
        ("/lake/dim", "to_dim", "", 2),
    ]


def test_tables_are_followed_as_well(lake: Lineage) -> None:
    """By the jobs alone."""
    assert [str(hop.point) for hop in lake.upstream(Point(GOLD))] == [
        "/lake/silver",
        "/lake/prices",
        "/lake/orders",
        "/in",
    ]
    assert [str(hop.point) for hop in lake.downstream(Point(PRICES))] == ["/lake/gold"]


def test_the_versions_of_a_table_with_history_come_from_its_sequence(lake: Lineage) -> None:
    """And the key of a dimension from what it is a hash of."""
    rows = {flow.job: flow.outputs for flow in lake.flows}
    assert [each.column for each in rows["to_silver"][SILVER].origins("valid_to")] == ["at"]
    assert [(e.column, e.how) for e in rows["to_dim"][DIMENSION].origins("sk")] == [
        ("id", "computed"),
        ("valid_from", "computed"),
    ]


def test_a_table_is_found_by_the_end_of_its_name(lake: Lineage) -> None:
    """With a column behind it, in any case of letters."""
    assert lake.point("gold") == Point(GOLD)
    assert lake.point("lake/gold.TOTAL") == Point(GOLD, "total")


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("gold.price", "/lake/gold has no column 'price'.", "one of: date_sk, total"),
        ("nowhere", "no job reads or fills 'nowhere'.", "one of: /lake/silver, /lake/prices"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(lake: Lineage, text: str, said: str, hint: str) -> None:
    """A slip of the pen is not a table without lineage."""
    with pytest.raises(ConfigError) as caught:
        lake.point(text)
    assert (caught.value.message, caught.value.hint.startswith(hint)) == (said, True)


def test_a_name_that_two_tables_end_with_is_asked_about() -> None:
    """Guessing would show the wrong one's lineage."""
    copy = fm.Job(name="copy", source=fm.sources.Files("/a/t", schema="id long"), sinks=[fm.sinks.Delta("/b/t")])
    with pytest.raises(ConfigError, match="'t' may be one of: /a/t, /b/t"):
        lineage_of([copy]).point("t")


def test_of_a_python_function_columns_are_matched_by_name_or_not_at_all(tmp_path: Path) -> None:
    """What the stored table has under a name that the rows had; the rest is left unknown, and the function named."""
    write_deltalake(tmp_path / "out", pa.table({"id": [1], "score": [2]}))
    job = fm.Job(
        name="scores",
        source=fm.sources.Kafka("k:9092", "t", value=Message),
        transform=test_tables_are_followed_as_well,
        sinks=[fm.sinks.Delta(str(tmp_path / "out"))],
    )
    [flow] = lineage_of([job]).flows
    [rows] = flow.outputs.values()
    assert {name: [(e.column, e.how) for e in found] for name, found in rows.columns.items()} == {
        "id": [("id", "by name")],
        "score": [],
    }
    assert flow.unread_transform == "test_tables_are_followed_as_well"


def test_a_star_is_completed_by_what_the_tables_log_has(tmp_path: Path) -> None:
    """The log is read without a JVM, and only of tables on this machine."""
    write_deltalake(tmp_path / "in", pa.table({"id": [1], "name": ["a"]}))
    job = fm.Job(
        name="copy",
        source=fm.sources.Delta(str(tmp_path / "in")),
        transform="SELECT *, upper(name) AS loud FROM source",
        sinks=[fm.sinks.Delta(str(tmp_path / "out"))],
    )
    [flow] = lineage_of([job]).flows
    [rows] = flow.outputs.values()
    assert (list(rows.columns), rows.rest) == (["id", "name", "loud"], ())


def test_a_query_of_a_source_is_read_through(tmp_path: Path) -> None:
    """Down to the tables of the database that it names."""
    query = "SELECT o.id, c.name FROM orders o JOIN mart.customers c ON c.id = o.customer"
    source = fm.sources.Postgres("postgresql://db/shop", query=query, cursor="id")
    [flow] = lineage_of([fm.Job(name="q", source=source, sinks=[fm.sinks.Delta(str(tmp_path))])]).flows
    assert [each.name for each in flow.inputs] == ["shop.public.orders", "shop.mart.customers"]
    [rows] = flow.outputs.values()
    assert [str(each.dataset) for each in rows.origins("name")] == ["postgres://db:5432/shop.mart.customers"]
