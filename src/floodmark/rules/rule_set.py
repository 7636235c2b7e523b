"""All rules of a job, judged together: one set of marks per row, one set of sums per batch.

A judged row carries one bit for each rule that it broke, so that a good row costs next to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

from floodmark.errors import ConfigError, RuleInvalid, UnknownKind
from floodmark.errors.causes import cause_of
from floodmark.locations import quote
from floodmark.rules.batches import Unique
from floodmark.rules.contract import Action, Comparing, FromColumns, InSql, RowRule, Rule, Summing
from floodmark.rules.rows import NotNull, Predicate

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OURS = "_fm_"
"""Columns that begin so never reach a target."""
ANSWER = "_fm_rule_"
"""What a rule said to a row: true is good."""
BROKEN = "_fm_broken_"
SAMPLE = "_fm_sample"
"""A row that broke a rule, as text that is cut where it is long."""
BITS = 60
LONGEST_SAMPLE = 500
JSON_OPTIONS = {
    "timeZone": "UTC",  # a zone of the session may have offsets with seconds, which no pattern of an offset shows
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Spark's own format of times stops at milliseconds."""
EPOCH = datetime.fromtimestamp(0, timezone.utc)
KNOWN = ("not_null", "unique", "a condition in SQL")


@dataclass(frozen=True)
class RuleSet:
    """The rules of a job. The strictest action decides about a row that breaks several of them.

    >>> rules = RuleSet((fm.rules.not_null("id", action="quarantine"), fm.rules.unique("id")))
    >>> rules.needs_whole_batch(), rules.quarantines()
    (True, True)
    """

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
        text = "\0".join(f"{rule.name}\0{rule.action}\0{rule.describe()}" for rule in self.rules)
        return sha256(text.encode()).hexdigest()[:16]

    def needs_whole_batch(self) -> bool:
        """Whether nothing may be written before all rows are judged."""
        return any(rule.action == "fail" or not isinstance(rule, RowRule) for rule in self.rules)

    def quarantines(self) -> bool:
        return any(rule.action == "quarantine" for rule in self.rules)

    def conditions(self) -> tuple[str, ...] | None:
        """The SQL by which single rows are judged; None if some rule may ask anything, being of a user's own kind."""
        by_row = [rule for rule in self.rules if isinstance(rule, RowRule) and not isinstance(rule, FromColumns)]
        in_sql = [rule for rule in by_row if isinstance(rule, InSql)]
        return tuple(rule.condition for rule in in_sql) if len(in_sql) == len(by_row) else None

    def legend(self) -> Legend:
        """How to read the marks that these rules leave on rows."""
        return Legend(tuple((rule.name, rule.action) for rule in self.rules))

    def mark(self, rows: DataFrame) -> DataFrame:
        """The rows, each with marks for the rules it broke. Raises RuleInvalid if Spark cannot read a rule."""
        from pyspark.errors import AnalysisException, ParseException

        try:
            return self._mark(rows)
        except (AnalysisException, ParseException):
            require_readable(self.rules, rows)
            raise

    def _mark(self, rows: DataFrame) -> DataFrame:
        answered = rows.withColumns(
            {f"{ANSWER}{place}": rule.holds() for place, rule in enumerate(self.rules) if isinstance(rule, RowRule)}
        )
        for place, rule in enumerate(self.rules):
            if isinstance(rule, Comparing):
                answered = rule.compared(answered, f"{ANSWER}{place}")
            elif isinstance(rule, Summing):
                rows.agg(
                    rule.sums(EPOCH)
                )  # a column that is not there is an error now, and not after the batch was frozen
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
                sums.append(rule.sample().alias(f"sample_{place}"))
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
            cause = cause_of(error)
            raise RuleInvalid(rule.name, reason=cause.reason, hint=cause.hint) from error


def _verdict(rule: Rule, place: int, sums: Mapping[str, Any]) -> Verdict:
    sample = sums[f"sample_{place}"]
    if isinstance(rule, Summing):
        failed = 0 if sums[f"holds_{place}"] else 1
        return Verdict(rule.name, rule.action, failed, 1, (sample,) if failed else ())
    samples = (sample,) if sample is not None else ()
    return Verdict(rule.name, rule.action, sums[f"failed_{place}"], sums["judged"], samples)


@dataclass(frozen=True)
class Legend:
    """Which mark stands for which rule: name and action of each, in their order.

    It is kept with a frozen batch, so that other rules cannot change afterwards where its rows go.
    """

    rules: tuple[tuple[str, Action], ...] = ()

    def mark(self, answered: DataFrame) -> DataFrame:
        """The rows with their marks in the place of their answers; a NULL answer is a broken rule.

        Everything is SQL text: PySpark notes the line of code behind every operator on columns, which adds up.
        """
        from pyspark.sql import functions as F

        answers = {name for name in answered.columns if name.startswith(ANSWER)}
        own = [quote(name) for name in answered.columns if name not in answers]
        bits: dict[str, list[str]] = {column: ["0L"] for column in self._columns()}
        for place in range(len(self.rules)):
            if f"{ANSWER}{place}" in answers:
                bits[_column(place)].append(f"if({ANSWER}{place}, 0L, {_bit(place)}L)")
        marked = answered.selectExpr(*own, *(f"{' + '.join(terms)} as {column}" for column, terms in bits.items()))
        is_bad, text = self.breaks(range(len(self.rules))), as_json(marked)
        return marked.withColumn(SAMPLE, F.expr(f"if({is_bad}, left({text}, {LONGEST_SAMPLE}), null)"))

    def breaks(self, places: Sequence[int]) -> str:
        """SQL: whether a marked row broke one of the rules in these places."""
        masks: dict[str, int] = {}
        for place in places:
            masks[_column(place)] = masks.get(_column(place), 0) | _bit(place)
        return " or ".join(f"({column} & {mask}L) != 0" for column, mask in masks.items()) or "false"

    def goes(self, action: Action) -> str:
        """SQL: whether a marked row is to be quarantined, or dropped; a row that is both is quarantined."""
        breaks = self.breaks(self._places(action))
        return breaks if action == "quarantine" else f"({breaks}) and not ({self.goes('quarantine')})"

    def kept_rows(self, marked: DataFrame) -> DataFrame:
        """What goes to the sinks, without the marks."""
        if not self.rules:
            return marked
        refused = self.breaks([*self._places("quarantine"), *self._places("drop")])
        return marked.where(f"not ({refused})").drop(*self._columns(), SAMPLE)

    def quarantined_rows(self, marked: DataFrame) -> DataFrame:
        """What is put aside, still with its marks."""
        return marked.where(self.goes("quarantine"))

    def reasons(self) -> Column:
        """The names of the rules that a marked row broke, in their order."""
        from pyspark.sql import functions as F

        names = [F.when(F.expr(self.breaks([at])), F.lit(name)) for at, (name, _) in enumerate(self.rules)]
        return F.array_compact(F.array(*names).cast("array<string>"))

    def _places(self, action: Action) -> list[int]:
        return [place for place, (_, own) in enumerate(self.rules) if own == action]

    def _columns(self) -> list[str]:
        return list(dict.fromkeys(_column(place) for place in range(len(self.rules))))


def as_json(rows: DataFrame) -> str:
    """SQL: a row as text, without the columns that are ours, and with every digit of its times."""
    own = ", ".join(quote(name) for name in rows.columns if not name.startswith(OURS))
    options = ", ".join(f"'{name}', \"{value}\"" for name, value in JSON_OPTIONS.items())
    return f"to_json(struct({own}), map({options}))"


def _column(place: int) -> str:
    return f"{BROKEN}{place // BITS}"


def _bit(place: int) -> int:
    return 1 << place % BITS


@dataclass(frozen=True)
class Verdict:
    """One rule over one batch: of `checked` rows (1, for a rule on the batch itself) `failed` broke it.

    >>> Verdict("not_null_id", "quarantine", failed=2, checked=100).failed
    2
    """

    name: str
    action: Action
    failed: int
    checked: int
    samples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tally:
    """All rules over one batch: `judged` rows are those that were kept, quarantined or dropped.

    >>> tally = Tally(judged=100, quarantined=2, verdicts=(Verdict("not_null_id", "quarantine", 2, 100),))
    >>> [verdict.name for verdict in tally.broken("quarantine")]
    ['not_null_id']
    """

    judged: int = 0
    quarantined: int = 0
    dropped: int = 0
    verdicts: tuple[Verdict, ...] = ()

    def broken(self, action: Action) -> tuple[Verdict, ...]:
        """The rules with this action that did not hold."""
        return tuple(each for each in self.verdicts if each.action == action and each.failed)

    def serialize(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> Tally:
        verdicts = tuple(Verdict(**{**each, "samples": tuple(each["samples"])}) for each in stored["verdicts"])
        return cls(**{**stored, "verdicts": verdicts})


class Logger(Protocol):
    """What is needed of a logger: the one of `logging`, or any other of the same form."""

    def info(self, msg: str, *args: object) -> None: ...
    def warning(self, msg: str, *args: object) -> None: ...


def validate_data_quality(
    df: DataFrame, table_name: str, logger: Logger, validation_rules: Mapping[str, str | Sequence[str]]
) -> bool:
    """Rules by column over any DataFrame, in one action: whether every rule holds; each is logged with its count.

    `{column: rule}` or `{column: [rule, …]}`: `not_null`, `unique`, or a condition in SQL that is true for a good row.

    >>> import logging
    >>> orders = spark.sql("SELECT 1 AS id, -5 AS amount")
    >>> validate_data_quality(orders, "orders", logging.getLogger("quality"), {"id": "unique", "amount": "amount > 0"})
    False
    """
    rules = RuleSet(tuple(rules_of(validation_rules)))
    tally = _tally_of(rules, df)
    for verdict in tally.verdicts:
        log = logger.warning if verdict.failed else logger.info
        such = f", such as {verdict.samples[0]}" if verdict.samples else ""
        log("%s: %s: %d of %d rows failed%s", table_name, verdict.name, verdict.failed, verdict.checked, such)
    return not any(verdict.failed for verdict in tally.verdicts)


def _tally_of(rules: RuleSet, df: DataFrame) -> Tally:
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
