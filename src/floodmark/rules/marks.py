"""The marks that a judged row carries: one bit for each rule it broke, so that a good row costs next to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.rules.contract import Action

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
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Spark's own format of times stops at milliseconds."""


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
        own = [quoted(name) for name in answered.columns if name not in answers]
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

    def kept(self, marked: DataFrame) -> DataFrame:
        """What goes to the sinks, without the marks."""
        if not self.rules:
            return marked
        refused = self.breaks([*self._places("quarantine"), *self._places("drop")])
        return marked.where(f"not ({refused})").drop(*self._columns(), SAMPLE)

    def quarantined(self, marked: DataFrame) -> DataFrame:
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
    own = ", ".join(quoted(name) for name in rows.columns if not name.startswith(OURS))
    options = ", ".join(f"'{name}', \"{value}\"" for name, value in JSON_OPTIONS.items())
    return f"to_json(struct({own}), map({options}))"


def quoted(name: str) -> str:
    """A column's name as SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def _column(place: int) -> str:
    return f"{BROKEN}{place // BITS}"


def _bit(place: int) -> int:
    return 1 << place % BITS
