"""Receipts as they are stored: those of an older version are still read."""

from __future__ import annotations

from datetime import datetime, timezone

from floodmark.stores.record import Receipt, RuleOutcome

BEFORE_RULES = {
    "job": "orders",
    "run": "0123456789ab",
    "status": "done",
    "started": "2026-10-01T12:00:00+00:00",
    "seconds": 1.5,
    "batches": 1,
    "number": 7,
    "rows_read": 10,
    "rows_written": {"lake": 10},
    "rows_refused": 0,
    "rows_dead": 0,
    "rows_held_back": 0,
    "mark_before": 3,
    "mark_after": 13,
    "span": {"rows": [3, 13]},
    "durations": {"lake": 1.1},
    "notes": [],
    "error": None,
    "recovered": False,
}
NOON = datetime(2026, 10, 1, 12, tzinfo=timezone.utc)


def test_a_receipt_from_before_there_were_rules_is_read() -> None:
    """It has no results, and so no score."""
    receipt = Receipt.deserialize(BEFORE_RULES)
    assert (receipt.number, receipt.rows_quarantined, receipt.rules, receipt.score) == (7, 0, (), None)


def test_a_receipt_with_rules_comes_back_as_it_was() -> None:
    """Samples included."""
    rules = (RuleOutcome("positive", "quarantine", 1, 4, ('{"amount":-1}',)), RuleOutcome("there", "warn", 0, 4))
    receipt = Receipt("orders", "r", "done", NOON, rows_quarantined=1, rules=rules)
    assert Receipt.deserialize(receipt.serialize()) == receipt
    assert receipt.score == (0.75 + 1) / 2


def test_two_batches_of_one_run_add_up_rule_by_rule() -> None:
    """A rule that only the second batch had is there too."""
    first = Receipt("orders", "r", "done", NOON, rules=(RuleOutcome("a", "warn", 1, 4, ("x",)),), rows_dropped=1)
    later = (RuleOutcome("a", "warn", 0, 6), RuleOutcome("b", "warn", 2, 6, ("y",)))
    both = first.followed_by(Receipt("orders", "r", "done", NOON, rules=later, rows_dropped=2))
    assert both.rules == (RuleOutcome("a", "warn", 1, 10, ("x",)), RuleOutcome("b", "warn", 2, 6, ("y",)))
    assert both.rows_dropped == 3


def test_nothing_to_check_is_perfect() -> None:
    """An empty batch breaks no rule on rows."""
    assert RuleOutcome("a", "warn", 0, 0).score == 1.0
