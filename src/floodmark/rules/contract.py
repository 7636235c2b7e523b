"""The contract of a quality rule: what each kind is asked, and when; the kinds themselves live beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol, get_args, runtime_checkable

from floodmark.errors import ConfigError, UnknownKind

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column, DataFrame


Action = Literal["fail", "quarantine", "drop", "warn"]
ACTIONS: tuple[Action, ...] = get_args(Action)
"""What becomes of a row that breaks a rule; of several broken rules, the one that comes first here decides."""
FOR_WHOLE_BATCHES: tuple[Action, ...] = ("fail", "warn")


@runtime_checkable
class Rule(Protocol):
    """What every rule says of itself.

    >>> rule = fm.rules.check("amount > 0", action="quarantine")
    >>> isinstance(rule, Rule), rule.action, rule.describe()
    (True, 'quarantine', 'amount > 0')
    """

    @property
    def name(self) -> str:
        """What its results are known by; unique within a job."""

    @property
    def action(self) -> Action:
        """What happens to what breaks it."""

    def describe(self) -> str:
        """The rule in words; other words for every other rule, since a batch that was begun knows its rules by them."""


@runtime_checkable
class RowRule(Rule, Protocol):
    """A rule that one row alone can answer: it is judged in the pass that writes the rows.

    >>> class Even:
    ...     name, action = "even", "quarantine"
    ...     def describe(self) -> str:
    ...         return "id is even"
    ...     def holds(self):
    ...         return fm.rules.check("id % 2 = 0").holds()
    >>> isinstance(Even(), RowRule)
    True
    """

    def holds(self) -> Column:
        """True for a good row; false and NULL are both failures. Called once per attempt, lazily."""


class FromColumns:
    """Marks a row rule that compares values of columns and nothing else: it judges a row the same whenever asked."""


@runtime_checkable
class InSql(RowRule, Protocol):
    """A row rule that is a condition in SQL, so that whoever reads it knows whether it asks anything but the row."""

    @property
    def condition(self) -> str:
        """True for a good row."""


@runtime_checkable
class Comparing(Rule, Protocol):
    """A rule on a row that other rows have to answer: the batch is frozen, and judged once, before it is written.

    >>> isinstance(fm.rules.unique("id"), Comparing), isinstance(fm.rules.not_null("id"), Comparing)
    (True, False)
    """

    def compared(self, rows: DataFrame, column: str) -> DataFrame:
        """The same rows with one more boolean column, true for a good row; false and NULL are both failures."""


@runtime_checkable
class Summing(Rule, Protocol):
    """A rule on the batch as a whole: warn or fail are all it can do.

    >>> isinstance(fm.rules.row_count(min=1, action="warn"), Summing)
    True
    """

    def sums(self, at: datetime) -> Column:
        """An aggregate that is true for a good batch; `at` is the batch's time, the same when it is repeated."""

    def sample(self) -> Column:
        """An aggregate, as text: what of the batch the result shows."""


def check_action(name: str, action: str, known: Sequence[Action] = ACTIONS) -> None:
    """Refuse an action that nobody knows, or that this rule cannot take."""
    if action not in ACTIONS:
        raise UnknownKind(f"action of rule '{name}':", action, known=ACTIONS)
    if action not in known:
        raise ConfigError(
            f"rule '{name}' judges a batch as a whole and cannot {action} rows.", hint=f"one of: {', '.join(known)}"
        )


def require_columns(columns: Sequence[str], *, rule: str) -> None:
    """None at all is a mistake."""
    if not columns or not all(columns):
        raise ConfigError(f"a {rule} rule needs at least one column.", hint=f"as in {rule}: [id]")
