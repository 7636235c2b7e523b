"""Judging a batch: in the pass that writes it where every rule allows that, else over the spool, before any write."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from floodmark.errors import RuleBroken
from floodmark.logs import get_logger
from floodmark.rules import RuleSet, Tally
from floodmark.rules.marks import SAMPLE, Legend
from floodmark.step.counting import observed

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, Observation

log = get_logger(__name__)
SAMPLES = 3


@dataclass(frozen=True)
class Judgement:
    """Rows that carry their verdict, and where the sums over them come from."""

    rules: RuleSet
    marked: DataFrame
    at: datetime
    observation: Observation | None = None
    frozen: Tally | None = None
    """What was found when the batch was frozen: its rows go where they went then, whatever the rules are now."""

    @property
    def legend(self) -> Legend:
        if self.frozen is None:
            return self.rules.legend()
        return Legend(tuple((verdict.name, verdict.action) for verdict in self.frozen.verdicts))

    def kept(self) -> DataFrame:
        return self.legend.kept(self.marked)

    def quarantined(self) -> DataFrame:
        return self.legend.quarantined(self.marked)

    def tally(self, *, was_executed: bool) -> Tally:
        """What the write saw; where nothing was written, or nobody watched, the rows are judged on their own."""
        if not self.rules:
            return Tally()
        sums = observed(self.observation) if self.observation and was_executed else None
        return self.rules.tally(sums or self._summed())

    def require_no_failure(self, tally: Tally, job: str) -> None:
        """Raises RuleBroken for the first rule that fails the batch, with a few of the rows that broke it."""
        for broken in tally.broken("fail"):
            samples = self._samples(broken.name) or broken.samples
            raise RuleBroken(
                job,
                rule=broken.name,
                failed=broken.failed,
                checked=broken.checked,
                samples=samples,
                results=[asdict(verdict) for verdict in tally.verdicts],
            )

    def _summed(self) -> dict[str, object]:
        return self.marked.agg(*self.rules.measures(self.at)).collect()[0].asDict()

    def _samples(self, rule: str) -> tuple[str, ...]:
        place = [name for name, _ in self.legend.rules].index(rule)
        such = self.marked.where(self.legend.breaks([place])).select(SAMPLE).limit(SAMPLES)
        return tuple(row[SAMPLE] for row in such.collect())


def watched(rules: RuleSet, rows: DataFrame, at: datetime) -> Judgement:
    """Judge while the rows are written: the sums are taken on the way, directly above the scan."""
    if not rules:
        return Judgement(rules, rows, at)
    from pyspark.sql import Observation

    marked, observation = rules.mark(rows), Observation()
    return Judgement(rules, marked.observe(observation, *rules.measures(at)), at, observation)


def tell_rules(tally: Tally, job: str) -> None:
    """One line for every rule: a warning where it was broken. Samples are on the receipt and not in a log."""
    for verdict in tally.verdicts:
        tell, event = (log.warning, "rule broken") if verdict.failed else (log.info, "rule held")
        facts = {"action": verdict.action, "failed": verdict.failed, "checked": verdict.checked}
        tell(event, job=job, rule=verdict.name, **facts)
