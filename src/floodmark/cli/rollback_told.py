"""What `floodmark rollback` says of each job: from which state to which, its marks, its tables, and what goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.cli.output import in_short
from floodmark.jobs.rollback_goals import LAST_GOOD
from floodmark.jobs.rollback_past import Past, batch_of
from floodmark.step.work import shown

if TYPE_CHECKING:
    from floodmark.hwm import Json
    from floodmark.jobs.rollback import WayBack
    from floodmark.stores.record import JobRecord

FLAWS_TOLD = 3


@dataclass(frozen=True)
class Told:
    """One job's way back in words and as JSON; tables are named from the project's folder on."""

    way: WayBack
    past: Past
    to: str
    folder: Path

    def lines(self) -> Iterator[str]:
        way = self.way
        yield f"{way.job}: {self._heading()}"
        if way.moves:
            behind = f", then behind the restore of {', '.join(self._follows())}" if way.follows else ""
            yield f"  mark {in_short(shown(way.record.marks))} → {in_short(shown(way.goal.marks))}{behind}"
            yield from (f"  {self.table(p.name)}: version {p.latest} → {p.version}" for p in way.points)
        yield from (f"  {line}" for line in [*self._open(), *self._undone(), *self._beneath()])

    def entry(self, after: JobRecord | None) -> dict[str, Json]:
        """`after` is the record that the rollback made, if it did."""
        way = self.way
        return {
            "job": way.job,
            "status": "stays" if not way.moves else "back" if after else "planned",
            "from": self._facts(way.record),
            "to": self._facts(way.goal),
            "tables": [
                {"table": self.table(p.name), "from_version": p.latest, "to_version": p.version} for p in way.points
            ],
            "follows": [*self._follows()],
            "undone": [*self._undone()],
            "beneath": [*self._beneath()],
            "open_batch": way.record.intent.number if way.record.intent else None,
            "number": after.number if after else None,
            "mark": shown(after.marks if after else way.record.marks),
        }

    def result(self, after: JobRecord) -> str:
        """The line after it was done."""
        mark = in_short(shown(after.marks))
        return f"{self.way.job}: back as {self._state(self.way.goal)} left it, mark {mark}, number {after.number}"

    def table(self, name: str) -> str:
        return name.removeprefix(f"{self.folder}/")

    def _heading(self) -> str:
        way, now = self.way, self._state(self.way.record)
        if not way.moves:
            return f"stays, {now} {'is good' if self.to == LAST_GOOD else 'is what it has'}"
        if way.follows and way.record == way.goal:
            return f"follows, {now} is what it has"
        return f"{now} → {self._state(way.goal)}"

    def _follows(self) -> list[str]:
        return [self.table(name) for name in self.way.follows]

    def _facts(self, record: JobRecord) -> dict[str, Json]:
        receipt = self.past.receipt_of(record)
        return {
            "number": record.number,
            "batch": batch_of(record),
            "run": receipt.run if receipt else None,
            "mark": shown(record.marks),
            "modified_time": record.modified_time.isoformat() if record.modified_time else None,
            "flaw": self.past.flaw(record) or None,
        }

    def _state(self, record: JobRecord) -> str:
        receipt = self.past.receipt_of(record)
        run = f" (run {receipt.run}, {receipt.started:%Y-%m-%d %H:%M:%S})" if receipt else ""
        by = f"{record.number}, a rollback to " if batch_of(record) != record.number else ""
        return f"batch {by}{batch_of(record)}{run}"

    def _open(self) -> Iterator[str]:
        intent = self.way.record.intent
        if intent is not None:
            what = "is given up" if self.way.moves else "is in no table; the next run takes it up"
            yield f"batch {intent.number} is open and {what}"

    def _undone(self) -> Iterator[str]:
        """How many states go, and what was wrong with them."""
        known = {batch_of(each) for each in self.past.leading_to(self.way.record)}
        goal = batch_of(self.way.goal)
        if not self.way.moves or goal not in known:
            return
        undone = [*takewhile(lambda each: batch_of(each) != goal, self.past.leading_to(self.way.record))]
        rows = sum(receipt.rows_read for each in undone if (receipt := self.past.receipt_of(each)))
        if undone:
            yield f"undoes {len(undone)} {'batch' if len(undone) == 1 else 'batches'}, {rows} rows read"
        yield from self._flaws(undone)

    def _beneath(self) -> Iterator[str]:
        """A good batch says nothing of the rows that were there before it."""
        if self.to != LAST_GOOD:
            return
        below = [each for each in self.past.leading_to(self.way.goal) if self.past.receipt_of(each)]
        for line in [*self._flaws(below)][:1]:
            yield f"beneath it, {line}; its rows may still be there: `--to RUN` goes further back"

    def _flaws(self, records: list[JobRecord]) -> Iterator[str]:
        flawed = [(each, flaw) for each in records if (flaw := self.past.flaw(each))]
        yield from (f"{self._state(each)}: {flaw}" for each, flaw in flawed[:FLAWS_TOLD])
        if len(flawed) > FLAWS_TOLD:
            yield f"and {len(flawed) - FLAWS_TOLD} more that were not good"
