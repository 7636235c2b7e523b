"""What `--to` names: a batch, a run, a run of a workflow, or the last good state of each job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, NoGoodRun, RunNotFound
from floodmark.jobs.diffing import Receipts, ended
from floodmark.jobs.rollback_past import READ, Past
from floodmark.jobs.workflow.memory import remembered_in

if TYPE_CHECKING:
    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import JobRecord

LAST_GOOD = "last-good"


@dataclass(frozen=True)
class Target:
    """Where to go back to: the last good states, the batch of a number, or how things were when a run had ended.

    `jobs` took part in that run; None where the text names no jobs.
    """

    text: str
    jobs: tuple[str, ...] | None = None
    number: int | None = None
    moment: datetime | None = None

    @classmethod
    def named(cls, text: str, store: MarkStore) -> Target:
        """What the text means to this store; a run may be named by how it begins. Raises RunNotFound."""
        if text == LAST_GOOD:
            return cls(text)
        receipts = Receipts.of(store)
        if text.isdigit() and text not in {each.run for each in receipts.kept}:
            return cls(text, number=int(text))
        try:
            run = receipts.run(text)
        except RunNotFound:
            found = _run_of_a_workflow(text, store)
            if found is None:
                raise
            return found
        return cls(run.run, (run.job,), run.number, ended(run))

    def goal(self, past: Past, now: JobRecord) -> JobRecord:
        """The state that a job goes back to. Raises NoGoodRun, or ConfigError if the store does not keep it."""
        if self.text == LAST_GOOD:
            return _last_good(past, now)
        if self.number is not None and (self.jobs is None or past.job in self.jobs):
            goal = past.numbered(self.number)
        else:
            goal = past.as_of(self.moment) if self.moment else None
        if goal is None:
            raise self._not_kept(past)
        return goal

    def require_one_job(self, jobs: Sequence[str]) -> None:
        """A number alone means another batch in every job."""
        if self.number is not None and self.jobs is None and len(jobs) != 1:
            raise ConfigError(
                f"'{self.text}' is the number of a batch, and {len(jobs)} jobs have batches.",
                hint="`--select` one job, or give the id of a run (`floodmark runs` shows them)",
            )

    def _not_kept(self, past: Past) -> ConfigError:
        kept = ", ".join(str(each.number) for each in past.records[:10][::-1]) or "none"
        when = f" (it ended {self.moment:%Y-%m-%d %H:%M:%S})" if self.moment else ""
        return ConfigError(
            f"job '{past.job}' has no batch or run '{self.text}'{when} to go back to (kept: {kept}).",
            hint="`floodmark runs --json` shows the number of each run; `floodmark run --full-refresh` rebuilds tables",
        )


def _run_of_a_workflow(text: str, store: MarkStore) -> Target | None:
    """As its last task left things: every end of a task is kept in the history of the workflow's record."""
    for name in store.jobs():
        for record in store.history(name, READ) if remembered_in(store.read(name)) else ():
            run = remembered_in(record)
            if run is not None and run.run == text:
                return Target(text, tuple(run.tasks), None, record.modified_time)
    return None


def _last_good(past: Past, now: JobRecord) -> JobRecord:
    good = past.last_good(now)
    if good is None:
        looked = len(list(past.leading_to(now)))
        raise NoGoodRun(past.job, looked=looked, newest=now.number, flaw=past.flaw(now) or "")
    return good
