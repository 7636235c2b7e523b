"""The marks that a judged row carries: one bit for each rule it broke, so that a good row costs next to nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from floodmark.rules.contract import Action

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OURS = "_fm_"
"""Columns that begin so never reach a target."""
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

    def mark(self, rows: DataFrame, good: Mapping[str, Column]) -> DataFrame:
        """The rows with their marks; `good` has a condition, never NULL, for each rule that a row can break."""
        from pyspark.sql import functions as F

        marks = {column: F.lit(0).cast("long") for column in self._columns()}
        for place, (name, _) in enumerate(self.rules):
            if name in good:
                bit = F.when(good[name], F.lit(0)).otherwise(F.lit(_bit(place)))
                marks[_column(place)] = reduce(add, (marks[_column(place)], bit.cast("long")))
        text = F.left(as_json(rows), F.lit(LONGEST_SAMPLE))
        is_bad = F.expr(self.breaks(range(len(self.rules))))
        return rows.withColumns(marks).withColumn(SAMPLE, F.when(is_bad, text))

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


def as_json(rows: DataFrame) -> Column:
    """A row as text, without the columns that are ours, and with every digit of its times."""
    from pyspark.sql import functions as F

    own = [name.replace("`", "``") for name in rows.columns if not name.startswith(OURS)]
    return F.to_json(F.struct(*(F.col(f"`{name}`") for name in own)), JSON_OPTIONS)


def _column(place: int) -> str:
    return f"{BROKEN}{place // BITS}"


def _bit(place: int) -> int:
    return 1 << place % BITS
