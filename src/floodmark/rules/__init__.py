"""Quality rules: what judges a batch between the transform and the sinks. The set is empty until rules are declared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Judged:
    """A batch after the rules: `kept` goes to the sinks, `refused` rows do not."""

    kept: DataFrame
    refused: int = 0


@dataclass(frozen=True)
class RuleSet:
    """All rules of a job, judged together."""

    def judge(self, rows: DataFrame) -> Judged:
        """Without rules every row is kept."""
        return Judged(rows)

    def fingerprint(self) -> str:
        return "none"
