"""`floodmark lineage`: from the project file alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import CommandResult
from tests.docs.pages import ROOT, blocks

Floodmark = Callable[..., CommandResult]
PROJECT = """namespace: shop
jobs:
  - name: orders
    source: {type: postgres, url: "${PG_URL}", table: orders, cursor: id}
    transform: {sql: "select id, amount * 100 as cents from source where status = 'paid'"}
    sinks: [{type: delta, path: lake/orders}, {type: kafka, bootstrap: "k:9092", topic: orders}]
  - name: scores
    source: {type: delta, path: lake/orders}
    transform: {python: "nowhere:score"}
    sinks: [{type: files, path: out}]
"""


@pytest.fixture(autouse=True)
def project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (folder / "floodmark.yaml").write_text(PROJECT)
    monkeypatch.setenv("PG_URL", "postgresql://me:topsecret@db:5432/shop")
    return folder


def test_each_job_is_told_with_its_tables_and_their_columns(floodmark: Floodmark) -> None:
    """The Python function is not there, and is not needed."""
    said = floodmark("lineage")
    assert said.code == 0
    assert said.out.splitlines() == [
        "orders",
        "  reads postgres://db:5432/shop.public.orders",
        "  fills lake/orders",
        "    id ← shop.public.orders.id",
        "    cents ← shop.public.orders.amount (computed)",
        "    rows by shop.public.orders.status (filter)",
        "  fills kafka://k:9092/orders",
        "    id ← shop.public.orders.id",
        "    cents ← shop.public.orders.amount (computed)",
        "    rows by shop.public.orders.status (filter)",
        "scores",
        "  reads lake/orders",
        "  fills out",
        "    nowhere:score is Python: columns are matched by name, or not at all",
    ]


def test_a_column_is_told_with_what_it_comes_from_and_goes_to(floodmark: Floodmark) -> None:
    """One line for each, with the job and what it does."""
    said = floodmark("lineage", "--table", "public.orders.amount")
    assert said.out.splitlines() == [
        "postgres://db:5432/shop.public.orders.amount",
        "  from: nothing that is known",
        "  to: lake/orders.cents (job orders, computed)",
        "  to: kafka://k:9092/orders.cents (job orders, computed)",
    ]


def test_the_document_is_what_open_lineage_reads(floodmark: Floodmark, project: Path) -> None:
    """One JobEvent per job; the login is nowhere in it."""
    said = floodmark("lineage", "--json", "--select", "orders", "--table", "lake/orders.cents")
    document = json.loads(said.out)
    [event] = document["events"]
    assert "topsecret" not in said.out
    assert (event["job"], event["inputs"]) == (
        {"namespace": "shop", "name": "orders"},
        [{"namespace": "postgres://db:5432", "name": "shop.public.orders"}],
    )
    assert event["outputs"][0]["name"] == str(project / "lake/orders")
    amount = {"namespace": "postgres://db:5432", "name": "shop.public.orders", "field": "amount"}
    computed = {"type": "DIRECT", "subtype": "TRANSFORMATION", "description": "", "masking": False}
    facets = event["outputs"][0]["facets"]
    assert facets["columnLineage"]["fields"]["cents"] == {"inputFields": [{**amount, "transformations": [computed]}]}
    assert facets["columnLineage"]["dataset"][0]["transformations"][0]["subtype"] == "FILTER"
    assert facets["schema"]["fields"] == [{"name": "id"}, {"name": "cents"}]
    assert document["upstream"] == [{**amount, "job": "orders", "how": "computed", "depth": 1}]


def test_the_page_shows_what_the_command_says(floodmark: Floodmark, project: Path) -> None:
    """Its project, and both of its commands."""
    page = ROOT / "docs" / "lineage.md"
    (project / "floodmark.yaml").write_text(blocks(page, "yaml")[0].text)
    whole, column = floodmark("lineage"), floodmark("lineage", "--table", "gold/sales.cents")
    shown = f"$ floodmark lineage\n{whole.out}$ floodmark lineage --table gold/sales.cents\n{column.out}"
    assert shown == blocks(page, "text")[0].text


def test_a_table_that_no_job_has_is_an_error_with_those_that_they_have(floodmark: Floodmark) -> None:
    """Exit 2."""
    said = floodmark("lineage", "--table", "nowhere")
    assert (said.code, said.err.startswith("Error: no job reads or fills 'nowhere'.\nTry: one of: ")) == (2, True)


def test_sql_that_cannot_be_read_names_its_job(floodmark: Floodmark, project: Path) -> None:
    """And the command that says more."""
    (project / "floodmark.yaml").write_text(PROJECT.replace("select id, amount", "select ((id, amount"))
    said = floodmark("lineage")
    assert (said.code, said.err) == (
        2,
        "Error: job 'orders': the SQL cannot be parsed.\nTry: floodmark lint says where\n",
    )
