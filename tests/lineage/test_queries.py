"""The columns of a query, read from its text."""

from __future__ import annotations

import pytest

from floodmark.errors import ConfigError
from floodmark.lineage.datasets import Dataset, Relation, Rest
from floodmark.lineage.queries import columns_of

ORDERS, PRICES = Dataset("file", "orders"), Dataset("file", "prices")
OPEN = {"source": Relation.of(ORDERS, None), "prices": Relation.of(PRICES, None)}
LISTED = {"source": Relation.of(ORDERS, ["id", "Sku", "amount"]), "prices": Relation.of(PRICES, ["sku", "price"])}


def read(sql: str, tables: dict[str, Relation] = LISTED) -> Relation:
    return columns_of(sql, tables, lambda name: Relation.of(Dataset("catalog", name), None))


def origins(rows: Relation) -> dict[str, list[str]]:
    """Each column with what it is made of, in short."""
    return {
        name: [f"{each.dataset.name}.{each.column} {each.how}" for each in found]
        for name, found in rows.columns.items()
    }


def influences(rows: Relation) -> list[str]:
    return [f"{each.dataset.name}.{each.column} {each.how}" for each in rows.influences]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT id AS n FROM source", {"n": ["orders.id as it is"]}),
        ("SELECT ID, sku FROM source", {"ID": ["orders.id as it is"], "sku": ["orders.Sku as it is"]}),
        ("SELECT amount * 100 AS cents FROM source", {"cents": ["orders.amount computed"]}),
        ("SELECT sum(amount) AS total, count(*) AS n FROM source", {"total": ["orders.amount aggregated"], "n": []}),
        ("SELECT :batch_time AS loaded_at, 1 AS one FROM source", {"loaded_at": [], "one": []}),
        ("SELECT amount + 1 AS more, more * 2 AS twice FROM source", {
            "more": ["orders.amount computed"], "twice": ["orders.amount computed"],
        }),
        ("SELECT source.amount.currency FROM source", {"currency": ["orders.amount computed"]}),
        ("SELECT * EXCEPT (sku) FROM source", {"id": ["orders.id as it is"], "amount": ["orders.amount as it is"]}),
        ("SELECT s.id, k FROM source s LATERAL VIEW explode(sku) t AS k", {
            "id": ["orders.id as it is"], "k": ["orders.Sku computed"],
        }),
        ("WITH a AS (SELECT sum(amount) AS s FROM source), b AS (SELECT s + 1 AS t FROM a) SELECT t FROM b", {
            "t": ["orders.amount aggregated"],
        }),
        ("SELECT x.n FROM (SELECT id AS n FROM source) x", {"n": ["orders.id as it is"]}),
        ("SELECT id FROM source UNION ALL SELECT price FROM prices", {
            "id": ["orders.id as it is", "prices.price as it is"],
        }),
        ("SELECT (SELECT max(price) FROM prices p WHERE p.sku = s.sku) AS top FROM source s", {
            "top": ["prices.price aggregated"],
        }),
        ("SELECT price, amount FROM source JOIN prices USING (sku)", {
            "price": ["prices.price as it is"], "amount": ["orders.amount as it is"],
        }),
        ("WITH a (n) AS (SELECT id FROM source) SELECT n, m FROM a JOIN (SELECT amount FROM source) b (m)", {
            "n": ["orders.id as it is"], "m": ["orders.amount as it is"],
        }),
        ("SELECT * REPLACE (upper(sku) AS sku) FROM source", {
            "id": ["orders.id as it is"], "amount": ["orders.amount as it is"], "sku": ["orders.Sku computed"],
        }),
        ("SELECT explode(sku) AS (k, v) FROM source", {"k": ["orders.Sku computed"], "v": ["orders.Sku computed"]}),
        ("SELECT v FROM source, LATERAL (SELECT amount + 1 AS v) x", {"v": ["orders.amount computed"]}),
        ("SELECT n, r.id FROM VALUES (1) AS v (n), range(3) r", {"n": [], "id": []}),
        ("WITH RECURSIVE r AS (SELECT id FROM source UNION ALL SELECT id FROM r) SELECT id FROM r", {
            "id": ["orders.id as it is"],
        }),
        ("SELECT unheard_of FROM source", {"unheard_of": ["orders.unheard_of by name"]}),
        ("SELECT d1 FROM source PIVOT (sum(amount) FOR id IN (1 AS d1))", {"d1": ["orders.d1 by name"]}),
        ("SELECT name FROM shop.people", {"name": ["shop.people.name as it is"]}),
    ],
)  # fmt: skip
def test_a_column_is_told_by_the_columns_it_is_made_of(sql: str, expected: dict[str, list[str]]) -> None:
    """Through aliases, queries inside queries, structs and arrays, in any case of letters; a constant has none."""
    assert origins(read(sql)) == expected


def test_columns_that_only_choose_rows_are_told_apart() -> None:
    """They are in no value, and yet another value of theirs gives other rows."""
    rows = read(
        "SELECT s.id, row_number() OVER (PARTITION BY s.sku ORDER BY amount) AS place FROM source s "
        "JOIN prices p ON p.sku = s.sku WHERE p.price > 1 ORDER BY s.id"
    )
    assert origins(rows)["place"] == []
    assert influences(rows) == [
        "orders.Sku window",
        "orders.amount window",
        "prices.price filter",
        "orders.id sort",
        "prices.sku join",
        "orders.Sku join",
    ]


def test_a_star_over_a_table_that_nobody_knows_stays_a_star() -> None:
    """Whatever columns it has, they go through under their names, all but those that are left out."""
    rows = read("SELECT * EXCEPT (secret), amount * 2 AS twice FROM source", OPEN)
    assert rows.rest == (Rest(ORDERS, "as it is", frozenset({"secret"})),)
    assert [(each.dataset, each.column) for each in rows.origins("id")] == [(ORDERS, "id")]
    assert rows.origins("Secret") == ()


def test_a_column_that_may_be_of_two_tables_is_told_of_both_by_name() -> None:
    """Nobody knows which of them has it, so neither is said to be its origin for sure."""
    rows = read("SELECT amount FROM source JOIN prices ON source.sku = prices.sku", OPEN)
    assert origins(rows) == {"amount": ["orders.amount by name", "prices.amount by name"]}


def test_a_query_that_cannot_be_parsed_is_refused() -> None:
    """With the way to see where it is wrong."""
    with pytest.raises(ConfigError) as caught:
        read("SELECT FROM WHERE (")
    assert caught.value.hint == "floodmark lint says where"
