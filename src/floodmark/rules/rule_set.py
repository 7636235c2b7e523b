"""All rules of a job, judged together: one array of broken rules per row, one set of sums per batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import reduce
from hashlib import sha256
from operator import and_
from typing import TYPE_CHECKING, Any

from floodmark.errors import ConfigError, RuleInvalid
from floodmark.rules.contract import Comparing, RowRule, Rule, Summing
from floodmark.rules.verdicts import Tally, Verdict

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BROKEN = "_fm_broken"
"""The names of the rules that a row broke; like every column that begins so, it never reaches a target."""
WAY = "_fm_way"
"""Where a row goes that is not kept; frozen together with the row, so that other rules cannot change it afterwards."""
SAMPLE = "_fm_sample"
"""A row that broke a rule, as text that is cut where it is long."""
ANSWER = "_fm_rule_"
OURS = "_fm_"
LONGEST_SAMPLE = 500
JSON_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Spark's own format of times stops at milliseconds."""
EPOCH = datetime.fromtimestamp(0, timezone.utc)
WAYS = {"quarantine": "quarantined", "drop": "dropped"}


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

    def mark(self, rows: DataFrame) -> DataFrame:
        """The rows, each with the names of the rules it broke. Raises RuleInvalid if Spark cannot read a rule."""
        from pyspark.errors import AnalysisException, ParseException

        try:
            return self._marked(rows)
        except (AnalysisException, ParseException):
            require_readable(self.rules, rows)
            raise

    def _marked(self, rows: DataFrame) -> DataFrame:
        compared = rows
        for place, rule in enumerate(self.rules):
            compared = rule.compared(compared, f"{ANSWER}{place}") if isinstance(rule, Comparing) else compared
            if isinstance(rule, Summing):
                rows.agg(rule.sums(EPOCH))  # a column that is not there is told now, and not after the batch was frozen
        marked = compared.withColumns(self._marks(rows))
        added = [name for name in marked.columns if name.startswith(ANSWER)]
        return marked.drop(*added) if added else marked

    def _marks(self, rows: DataFrame) -> dict[str, Column]:
        """What a row carries with it. Most rows are good: they pay for the conditions alone, and for nothing else."""
        from pyspark.sql import functions as F

        answers = self._answers()
        is_good, no_text = reduce(and_, answers.values(), F.lit(True)), F.lit(None).cast("string")
        names = F.array_compact(F.array(*(F.when(~good, F.lit(name)) for name, good in answers.items())))
        way = F.when(is_good, no_text)
        for action in WAYS:
            such = [answers[rule.name] for rule in self.rules if rule.action == action]
            way = way.when(~reduce(and_, such), F.lit(action)) if such else way
        return {
            BROKEN: F.when(is_good, F.array().cast("array<string>")).otherwise(names),
            WAY: way.otherwise(no_text),
            SAMPLE: F.when(is_good, no_text).otherwise(F.left(as_json(rows), F.lit(LONGEST_SAMPLE))),
        }

    def measures(self, at: datetime) -> list[Column]:
        """The sums over marked rows that a tally is made of."""
        from pyspark.sql import functions as F

        sums = [F.count(F.lit(1)).alias("judged")]
        sums += [F.count_if(F.col(WAY) == way).alias(name) for way, name in WAYS.items()]
        for place, rule in enumerate(self.rules):
            if isinstance(rule, Summing):
                sums.append(F.coalesce(rule.sums(at), F.lit(False)).alias(f"holds_{place}"))
                sums.append(rule.seen().alias(f"sample_{place}"))
            else:
                is_broken = F.array_contains(BROKEN, rule.name)
                sums.append(F.count_if(is_broken).alias(f"failed_{place}"))
                sums.append(F.any_value(F.when(is_broken, F.col(SAMPLE)), F.lit(True)).alias(f"sample_{place}"))
        return sums

    def tally(self, sums: Mapping[str, Any]) -> Tally:
        """The sums as values."""
        judged = sums["judged"]
        verdicts = tuple(_verdict(rule, place, sums) for place, rule in enumerate(self.rules))
        return Tally(judged, sums["quarantined"], sums["dropped"], verdicts)

    def _answers(self) -> dict[str, Column]:
        """For each rule on rows: whether a row is good. NULL is no."""
        from pyspark.sql import functions as F

        good: dict[str, Column] = {}
        for place, rule in enumerate(self.rules):
            if isinstance(rule, RowRule):
                good[rule.name] = F.coalesce(rule.holds(), F.lit(False))
            elif isinstance(rule, Comparing):
                good[rule.name] = F.coalesce(F.col(f"{ANSWER}{place}"), F.lit(False))
        return good


def as_json(rows: DataFrame) -> Column:
    """A row as text, without the columns that are ours, and with every digit of its times."""
    from pyspark.sql import functions as F

    own = [name.replace("`", "``") for name in rows.columns if not name.startswith(OURS)]
    return F.to_json(F.struct(*(F.col(f"`{name}`") for name in own)), JSON_OPTIONS)


def kept(marked: DataFrame) -> DataFrame:
    """What goes to the sinks."""
    return marked.where(f"{WAY} is null").drop(BROKEN, WAY, SAMPLE) if WAY in marked.columns else marked


def quarantined(marked: DataFrame) -> DataFrame:
    """What is put aside, still with the names of the broken rules."""
    return marked.where(f"{WAY} = 'quarantine'")


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
