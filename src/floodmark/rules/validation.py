"""`validate_data_quality`: rules by column over any DataFrame, in one action, for notebooks and jobs of one's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Protocol

from floodmark.errors import UnknownKind
from floodmark.rules.batches import Unique
from floodmark.rules.contract import Rule
from floodmark.rules.rows import NotNull, Predicate
from floodmark.rules.rule_set import RuleSet
from floodmark.rules.verdicts import Tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KNOWN = ("not_null", "unique", "a condition in SQL")


class Logger(Protocol):
    """What is needed of a logger: the one of `logging`, or any other of the same form."""

    def info(self, msg: str, *args: object) -> None: ...
    def warning(self, msg: str, *args: object) -> None: ...


def validate_data_quality(
    df: DataFrame, table_name: str, logger: Logger, validation_rules: Mapping[str, str | Sequence[str]]
) -> bool:
    """Whether every rule holds; each is logged with its count, also the ones that hold.

    `{column: rule}` or `{column: [rule, …]}`: `not_null`, `unique`, or a condition in SQL that is true for a good row.
    """
    rules = RuleSet(tuple(rules_of(validation_rules)))
    tally = judged(rules, df)
    for verdict in tally.verdicts:
        tell = logger.warning if verdict.failed else logger.info
        such = f", such as {verdict.samples[0]}" if verdict.samples else ""
        tell("%s: %s: %d of %d rows failed%s", table_name, verdict.name, verdict.failed, verdict.checked, such)
    return not any(verdict.failed for verdict in tally.verdicts)


def judged(rules: RuleSet, df: DataFrame) -> Tally:
    """All rules over all rows, in one action."""
    marked = rules.mark(df)
    return rules.tally(marked.agg(*rules.measures(datetime.now(timezone.utc))).collect()[0].asDict())


def rules_of(validation_rules: Mapping[str, str | Sequence[str]]) -> Iterator[Rule]:
    """The rules in the order they were given."""
    for column, given in validation_rules.items():
        for text in [given] if isinstance(given, str) else given:
            yield rule_of(column, text.strip())


def rule_of(column: str, text: str) -> Rule:
    """A known word, or a condition; a lone word that nobody knows is rather a slip than a boolean column."""
    if text == "not_null":
        return NotNull(column, action="warn", name=f"{column} {text}")
    if text == "unique":
        return Unique(column, action="warn", name=f"{column} {text}")
    if re.fullmatch(r"\w*", text):
        raise UnknownKind(f"rule for column '{column}':", text, known=KNOWN)
    return Predicate(text, action="warn", name=f"{column}: {text}")
