"""`floodmark test`, on the session of the suite: cases of a project that pass, and one that does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark.cli.invocation import Tools
from tests.cli.conftest import CommandResult
from tests.docs.running import SharedSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Floodmark = Callable[..., CommandResult]
PROJECT = """\
store: memory
jobs:
  - name: customers
    source: {type: postgres, url: "postgresql://nowhere/shop", table: customers, cursor: changed_at, key: id}
    transform: {sql: "select *, upper(tier) as grade from source join tiers using (tier)"}
    rules: [{name: dated, check: "changed_at > '2000-01-01'", action: quarantine}]
    sinks:
      - {name: history, type: delta, table: silver.customers, mode: scd2, key: id, sequence: changed_at, track: tier}
      - {name: topic, type: kafka, bootstrap: "nowhere:9092", topic: customers}
  - name: orders
    source: {type: files, path: in, schema: "id long, amount decimal(10,2)"}
    dead_letters: {}
    sinks: [{name: lake, type: delta, path: lake/orders, mode: merge, key: id}]
"""
CUSTOMERS = """\
name: a tier that changes is a new version
job: customers
schema: "id long, tier string, changed_at timestamp"
tables: {tiers: [{tier: gold}, {tier: silver}]}
batches:
  - given:
      - {id: 1, tier: silver, changed_at: "2026-01-01T00:00:00Z"}
      - {id: 2, tier: gold, changed_at: "1999-01-01T00:00:00Z"}
    expect:
      history: [{id: 1, tier: silver, is_current: true}]
      topic: [{id: 1, grade: SILVER}]
      quarantine: [{id: 2, tier: gold, _reasons: [dated]}]
  - given: [{id: 1, tier: gold, changed_at: "2026-02-01T00:00:00Z"}]
    expect:
      history:
        - {id: 1, tier: silver, valid_to: "2026-02-01T00:00:00Z", is_current: false}
        - {id: 1, tier: gold, valid_to: null, is_current: true}
      quarantine: [{id: 2, tier: gold, _reasons: [dated]}]
"""
ORDERS = """\
- name: what cannot be read is put aside
  job: orders
  given: [{id: 1, amount: "5.00"}, "{broken"]
  expect: {lake: [{id: 1, amount: 5}], dead_letters: [{_text: "{broken"}]}
- name: this case is wrong
  job: orders
  batches:
    - {given: [{id: 1, amount: "5.00"}], expect: {lake: [{id: 1, amount: 6}]}}
    - {given: [{id: 2, amount: "5.00"}], expect: {lake: []}}
"""


@pytest.mark.spark
def test_cases_run_without_the_servers_that_the_project_names(
    spark: SparkSession, floodmark: Floodmark, folder: Path
) -> None:
    """The job's own transform, rules and modes over given rows; what differs is a diff, and exit 1."""
    (folder / "floodmark.yaml").write_text(PROJECT)
    (folder / "tests").mkdir()
    (folder / "tests" / "customers.yaml").write_text(CUSTOMERS)
    (folder / "tests" / "orders.yaml").write_text(ORDERS)
    said = floodmark("test", tools=Tools(session=lambda _settings: SharedSession(lambda: spark)))
    assert said.out.splitlines() == [  # the whole text: a diff is what people read
        "tests/customers.yaml:1: a tier that changes is a new version: passed",
        "tests/orders.yaml:1: what cannot be read is put aside: passed",
        "tests/orders.yaml:5: this case is wrong: failed",
        "  batch 1, lake:",
        '    - {"id": 1, "amount": 6}',
        '    + {"id": 1, "amount": "5.00"}',
        "3 cases: 2 passed, 1 failed",
    ]
    assert (said.code, sorted(each.name for each in folder.iterdir())) == (1, ["floodmark.yaml", "tests"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("test",), "Error: no job 'ordrs'."),
        (("test", "customers"), "Error: no job 'ordrs'."),
        (("test", "nobody"), "Error: no job 'nobody'."),
    ],
)
def test_a_case_of_a_job_that_nobody_has_is_a_mistake(
    floodmark: Floodmark, folder: Path, words: tuple[str, ...], said: str
) -> None:
    """Found before Spark is started: a renamed job must not lose its tests."""
    (folder / "floodmark.yaml").write_text(PROJECT)
    (folder / "tests").mkdir()
    (folder / "tests" / "orders.yaml").write_text(ORDERS.replace("job: orders", "job: ordrs"))
    answer = floodmark(*words)
    assert (answer.code, answer.err.splitlines()[0]) == (2, said)


def test_a_project_without_cases_says_how_to_write_one(floodmark: Floodmark, folder: Path) -> None:
    """No case is not a success."""
    (folder / "floodmark.yaml").write_text(PROJECT)
    answer = floodmark("test")
    assert (answer.code, answer.err.splitlines()[0]) == (2, "Error: there is no case to run.")
