"""Quality rules: what judges a batch between the transform and the sinks. The rules are plain values, without Spark.

The small names are the words of the project file: `not_null("id")` is `not_null: [id]`.
"""

from floodmark.rules.batches import Fresh, References, RowCount, Unique
from floodmark.rules.contract import ACTIONS, Action, Comparing, RowRule, Rule, Summing
from floodmark.rules.rows import Accepted, Matches, NotNull, Predicate, Range, TimeOrder
from floodmark.rules.rule_set import RuleSet, Tally, Verdict, validate_data_quality

not_null, range, accepted, matches = NotNull, Range, Accepted, Matches  # noqa: A001
time_order, check = TimeOrder, Predicate
unique, references, row_count, fresh = Unique, References, RowCount, Fresh

__all__ = [
    "ACTIONS",
    "Accepted",
    "Action",
    "Comparing",
    "Fresh",
    "Matches",
    "NotNull",
    "Predicate",
    "Range",
    "References",
    "RowCount",
    "RowRule",
    "Rule",
    "RuleSet",
    "Summing",
    "Tally",
    "TimeOrder",
    "Unique",
    "Verdict",
    "accepted",
    "check",
    "fresh",
    "matches",
    "not_null",
    "range",
    "references",
    "row_count",
    "time_order",
    "unique",
    "validate_data_quality",
]
