"""What each rule on a row takes for good: all of them judged over a handful of rows, in one pass."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from floodmark import rules
from floodmark.errors import ConfigError, RuleInvalid, UnknownKind
from floodmark.rules import RuleSet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id long, amount decimal(10,2), ratio double, state string, begun timestamp, ended timestamp"
GOOD = "2026-01-01 10:00:00"
LATER = "2026-01-01 11:00:00"
EVERY_KIND = RuleSet(
    (
        rules.not_null(["id", "state"], action="warn", name="there"),
        rules.range("amount", min=0, max=Decimal("99.99"), action="warn", name="bounded"),
        rules.range("ratio", min=0.0, action="warn", name="positive"),
        rules.accepted("state", ["new", "paid"], action="warn", name="known"),
        rules.matches("state", "^[a-z]+$", action="warn", name="lower"),
        rules.time_order("begun", "ended", action="warn", name="ordered"),
        rules.check("amount * 2 > ratio", action="warn", name="sql"),
    )
)


@pytest.fixture(scope="module")
def broken(spark: SparkSession) -> dict[int, list[str]]:
    """Which rules each row broke, by its case."""
    given = [
        (1, "5.00", 0.5, "new", GOOD, LATER),
        (2, "-0.01", 0.5, "new", GOOD, GOOD),
        (3, "100.00", float("nan"), "paid", GOOD, LATER),
        (4, "99.99", -0.5, "void", LATER, GOOD),
        (5, "0.00", None, "NEW", None, LATER),
        (6, None, 0.0, None, GOOD, None),
    ]
    texts = "id long, amount string, ratio double, state string, begun string, ended string"
    frame = spark.createDataFrame(given, texts).selectExpr(
        "id",
        "cast(amount as decimal(10,2)) amount",
        "ratio",
        "state",
        "timestamp(begun) begun",
        "timestamp(ended) ended",
    )
    marked = EVERY_KIND.mark(frame).select("id", EVERY_KIND.legend().reasons().alias("broken"))
    return {row.id: row.broken for row in marked.collect()}


def test_a_row_that_keeps_every_rule_has_an_empty_list(broken: dict[int, list[str]]) -> None:
    """Bounds are included, equal times are in order."""
    assert broken[1] == []


def test_a_number_outside_its_bounds_breaks_its_range(broken: dict[int, list[str]]) -> None:
    """Compared as decimals, without a rounding in between."""
    assert broken[2] == ["bounded", "sql"]


def test_what_is_not_a_number_lies_in_no_range(broken: dict[int, list[str]]) -> None:
    """Spark sorts NaN above every number, which is no reason to let it pass `min`."""
    assert broken[3] == ["bounded", "positive", "sql"]


def test_one_row_lists_every_rule_that_it_broke_in_their_order(broken: dict[int, list[str]]) -> None:
    """All rules are judged, not only the first that fails."""
    assert broken[4] == ["positive", "known", "ordered"]


def test_a_condition_that_is_null_counts_as_broken(broken: dict[int, list[str]]) -> None:
    """Nobody can say that the row is good."""
    assert broken[5] == ["positive", "known", "lower", "ordered", "sql"]
    assert broken[6] == ["there", "bounded", "known", "lower", "ordered", "sql"]


def test_the_strictest_broken_rule_decides_where_a_row_goes(spark: SparkSession) -> None:
    """Quarantine before drop before warn; a warned row is kept."""
    given = RuleSet(
        (
            rules.check("a", action="warn", name="w"),
            rules.check("b", action="drop", name="d"),
            rules.check("c", action="quarantine", name="q"),
        )
    )
    frame = spark.sql(
        "select * from values (1,true,true,true),(2,false,true,true),(3,false,false,true),(4,true,true,"
        "false),(5,false,false,false) as t(id,a,b,c)"
    )
    marked, legend = given.mark(frame), given.legend()
    ways = {way: sorted(row.id for row in marked.where(legend.goes(way)).collect()) for way in ("quarantine", "drop")}
    assert ways == {"quarantine": [4, 5], "drop": [3]}
    assert sorted(row.id for row in legend.kept_rows(marked).collect()) == [1, 2]
    assert legend.kept_rows(marked).columns == ["id", "a", "b", "c"]


def test_a_job_may_have_more_rules_than_a_number_has_bits(spark: SparkSession) -> None:
    """The sixty-fifth is judged like the first."""
    many = RuleSet(tuple(rules.check(f"id <> {number}", action="drop", name=f"r{number}") for number in range(130)))
    marked = many.mark(spark.range(128, 132))
    judged = marked.select("id", many.legend().reasons().alias("broken")).collect()
    assert {row.id: row.broken for row in judged} == {128: ["r128"], 129: ["r129"], 130: [], 131: []}
    assert sorted(row.id for row in many.legend().kept_rows(marked).collect()) == [130, 131]


@pytest.mark.parametrize(
    "rule",
    [
        rules.not_null("nobody"),
        rules.check("id >"),
        rules.check("id"),
        rules.unique("nobody"),
        rules.fresh("nobody", within=timedelta(1)),
    ],
    ids=["no such column", "no SQL", "not a condition", "no such key", "no such time"],
)
def test_a_rule_that_spark_cannot_read_is_named(spark: SparkSession, rule: rules.Rule) -> None:
    """The others are fine, so it says which one."""
    with pytest.raises(RuleInvalid) as stop:
        RuleSet((rules.not_null("id", name="fine"), rule)).mark(spark.range(1))
    assert (stop.value.rule, stop.value.exit_code) == (rule.name, 2)


def test_a_rule_is_a_plain_value_with_a_name_of_its_own() -> None:
    """Equal rules are equal; a rule that nobody named is called after what it checks."""
    assert rules.not_null("id") == rules.NotNull(["id"], name="not_null_id")
    assert rules.check("amount > 0").name == "amount > 0"


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: rules.not_null([]), ConfigError),
        (lambda: rules.range("amount"), ConfigError),
        (lambda: rules.accepted("state", []), ConfigError),
        (lambda: rules.not_null("id", action="ignore"), UnknownKind),
        (lambda: rules.row_count(min=1, action="drop"), ConfigError),
        (lambda: rules.references("a", key="b"), ConfigError),
        (lambda: rules.references(["a", "b"], key="c", path="t"), ConfigError),
        (lambda: rules.unique("a", path="t", table="u"), ConfigError),
        (lambda: RuleSet((rules.not_null("id"), rules.not_null("id"))), ConfigError),
        (lambda: RuleSet(("id > 0",)), ConfigError),
    ],
    ids=["no column", "no bound", "no value", "unknown action", "a batch cannot be dropped", "no table",
         "keys of other lengths", "two tables", "one name twice", "not a rule"],
)  # fmt: skip
def test_a_rule_that_says_nothing_sensible_is_refused_when_it_is_made(make: object, error: type[ConfigError]) -> None:
    """Before any row is read."""
    with pytest.raises(error):
        make()  # type: ignore[operator]


def test_every_change_of_a_rule_changes_the_fingerprint() -> None:
    """A batch that was begun with other rules is not finished with these."""
    bounds = [RuleSet((rules.range("a", min=low, action=action),)) for low in (0, 1) for action in ("warn", "drop")]
    assert len({each.fingerprint() for each in bounds}) == 4
    assert RuleSet().fingerprint() == "none"
