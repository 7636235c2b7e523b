"""All rules of a job, judged together: one set of marks per row, one set of sums per batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError, RuleInvalid
from floodmark.rules.contract import Comparing, RowRule, Rule, Summing
from floodmark.rules.marks import ANSWER, SAMPLE, Legend
from floodmark.rules.verdicts import Tally, Verdict

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

EPOCH = datetime.fromtimestamp(0, timezone.utc)


@dataclass(frozen=True)
class RuleSet:
    """The rules of a job. A row that breaks several of them goes the way of the strictest."""

    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        for rule in self.rules:
            if not isinstance(rule, RowRule | Comparing | Summing):
                raise ConfigError(
                    f"{rule!r} is not a rule.", hint="use floodmark.rules, or give it name, action, describe and holds"
                )
        names = [rule.name for rule in self.rules]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"two rules are called '{twice[0]}'.", hint="give each rule a `name`")

    def __bool__(self) -> bool:
        return bool(self.rules)

    def fingerprint(self) -> str:
        if not self.rules:
            return "none"
        told = "\0".join(f"{rule.name}\0{rule.action}\0{rule.describe()}" for rule in self.rules)
        return sha256(told.encode()).hexdigest()[:16]

    def needs_whole_batch(self) -> bool:
        """Whether nothing may be written before all rows are judged."""
        return any(rule.action == "fail" or not isinstance(rule, RowRule) for rule in self.rules)

    def quarantines(self) -> bool:
        return any(rule.action == "quarantine" for rule in self.rules)

    def legend(self) -> Legend:
        """How to read the marks that these rules leave on rows."""
        return Legend(tuple((rule.name, rule.action) for rule in self.rules))

    def mark(self, rows: DataFrame) -> DataFrame:
        """The rows, each with marks for the rules it broke. Raises RuleInvalid if Spark cannot read a rule."""
        from pyspark.errors import AnalysisException, ParseException

        try:
            return self._marked(rows)
        except (AnalysisException, ParseException):
            require_readable(self.rules, rows)
            raise

    def _marked(self, rows: DataFrame) -> DataFrame:
        answered = rows.withColumns(
            {f"{ANSWER}{place}": rule.holds() for place, rule in enumerate(self.rules) if isinstance(rule, RowRule)}
        )
        for place, rule in enumerate(self.rules):
            if isinstance(rule, Comparing):
                answered = rule.compared(answered, f"{ANSWER}{place}")
            elif isinstance(rule, Summing):
                rows.agg(rule.sums(EPOCH))  # a column that is not there is told now, and not after the batch was frozen
        return self.legend().mark(answered)

    def measures(self, at: datetime) -> list[Column]:
        """The sums over marked rows that a tally is made of."""
        from pyspark.sql import functions as F

        legend = self.legend()
        sums = [F.expr("count(1) as judged")]
        sums += [F.expr(f"count_if({legend.goes('quarantine')}) as quarantined")]
        sums += [F.expr(f"count_if({legend.goes('drop')}) as dropped")]
        for place, rule in enumerate(self.rules):
            if isinstance(rule, Summing):
                sums.append(F.coalesce(rule.sums(at), F.lit(False)).alias(f"holds_{place}"))
                sums.append(rule.seen().alias(f"sample_{place}"))
            else:
                breaks = legend.breaks([place])
                sums.append(F.expr(f"count_if({breaks}) as failed_{place}"))
                sums.append(F.expr(f"any_value(if({breaks}, {SAMPLE}, null), true) as sample_{place}"))
        return sums

    def tally(self, sums: Mapping[str, Any]) -> Tally:
        """The sums as values."""
        verdicts = tuple(_verdict(rule, place, sums) for place, rule in enumerate(self.rules))
        return Tally(sums["judged"], sums["quarantined"], sums["dropped"], verdicts)


def require_readable(rules: Sequence[Rule], rows: DataFrame) -> None:
    """Raise RuleInvalid for the first rule that Spark cannot read over these rows."""
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as F

    for rule in rules:
        try:
            if isinstance(rule, RowRule):
                rows.select(F.coalesce(rule.holds(), F.lit(False)))
            elif isinstance(rule, Comparing):
                rule.compared(rows, ANSWER)
            elif isinstance(rule, Summing):
                rows.agg(rule.sums(EPOCH))
        except (AnalysisException, ParseException) as error:
            raise RuleInvalid(rule.name, reason=str(error).strip().splitlines()[0]) from error


def _verdict(rule: Rule, place: int, sums: Mapping[str, Any]) -> Verdict:
    sample = sums[f"sample_{place}"]
    if isinstance(rule, Summing):
        failed = 0 if sums[f"holds_{place}"] else 1
        return Verdict(rule.name, rule.action, failed, 1, (sample,) if failed else ())
    samples = (sample,) if sample is not None else ()
    return Verdict(rule.name, rule.action, sums[f"failed_{place}"], sums["judged"], samples)
