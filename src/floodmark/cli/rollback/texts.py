"""What `rollback` says: of each job where it goes back to, and of the jobs that will not fit any more afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.cli.output import counted
from floodmark.hwm.mark import short_mark
from floodmark.jobs.rollback import LAST_GOOD, Past, batch_of
from floodmark.jobs.table_readers import newest_built_on, versions_read
from floodmark.lineage import datasets as places
from floodmark.lineage.flows import Parts, inputs_of
from floodmark.step.work import display_marks

if TYPE_CHECKING:
    from floodmark.hwm import Json
    from floodmark.jobs.rollback import WayBack
    from floodmark.sinks.delta.target import RestorePoint
    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import JobRecord


@dataclass(frozen=True)
class Readers:
    """The jobs of a project that read tables which go back: those that will not fit any more are warned of before
    anything is done."""

    jobs: Sequence[Parts]
    ways: Sequence[WayBack]
    store: MarkStore
    folder: Path

    def warnings(self) -> Iterator[str]:
        """For each job that reads a table which goes back, and would not go on as if nothing had been."""
        tables = {places.delta(p.table.path, p.table.table): p for way in self.ways for p in way.points}
        for parts in self.jobs if tables else ():
            read = [tables[dataset] for dataset in inputs_of(parts) if dataset in tables]
            misfits = (self._misfit(parts, point) for point in read)
            yield from (f"{parts.name} {misfit}" for misfit in misfits if misfit)

    def _misfit(self, parts: Parts, point: RestorePoint) -> str | None:
        way = next((each for each in self.ways if each.job == parts.name and each.moves), None)
        record = way.goal if way else self.store.read(parts.name)
        if record is None:
            return None  # it never ran
        version, name = versions_read(record).get(point.table_id), self._short(point)
        if version is None:
            return None if way else f"reads {name} beside its source: what it made of the rows that go stays"
        if not point.holds(version):
            ahead = f"is ahead of {name}: it has read version {version}, and the table goes back to {point.version}"
            return ahead + self._remedy(parts, point)
        if not point.is_same(version):
            return f"has read {name} up to version {version} of {point.version}: {self._meets(parts, point)}"
        return None if way else f"has read of {name} what stays: `--select {parts.name}` lets its mark follow the table"

    def _remedy(self, parts: Parts, point: RestorePoint) -> str:
        """The state of the reader that fits, by the run that left it."""
        past = Past.of(self.store, parts.name)
        fitting = newest_built_on(past, {point.table_id: point})
        receipt = past.receipt_of(fitting) if fitting else None
        if receipt is None:
            return f"; `floodmark run --select {parts.name} --full-refresh` builds it again"
        return f"; then `floodmark rollback --select {parts.name} --to {receipt.run}` puts it back to what it had of it"

    def _meets(self, parts: Parts, point: RestorePoint) -> str:
        appends = any(getattr(source, "changes", None) == "append" for source in parts.sources)
        return f"its next run meets rows that came and went{', and stops there (changes: append)' if appends else ''}"

    def _short(self, point: RestorePoint) -> str:
        return point.name.removeprefix(f"{self.folder}/")


FLAWS_LISTED = 3


@dataclass(frozen=True)
class RollbackText:
    """One job's way back in words and as JSON: from which state to which, its marks, its tables, and what goes.

    Tables are named from the project's folder on.
    """

    way: WayBack
    past: Past
    to: str
    folder: Path

    def lines(self) -> Iterator[str]:
        way = self.way
        yield f"{way.job}: {self._heading()}"
        if way.moves:
            behind = f", then behind the restore of {', '.join(self._follows())}" if way.follows else ""
            before, after = display_marks(way.record.marks), display_marks(way.goal.marks)
            yield f"  mark {short_mark(before)} → {short_mark(after)}{behind}"
            yield from (f"  {self.table(p.name)}: version {p.latest} → {p.version}" for p in way.points)
        yield from (f"  {line}" for line in [*self._open_batch(), *self._undone_batches(), *self._flaw_beneath()])

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
            "undone": [*self._undone_batches()],
            "beneath": [*self._flaw_beneath()],
            "open_batch": way.record.intent.number if way.record.intent else None,
            "number": after.number if after else None,
            "mark": display_marks(after.marks if after else way.record.marks),
        }

    def result(self, after: JobRecord) -> str:
        """The line after it was done."""
        mark = short_mark(display_marks(after.marks))
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
            "mark": display_marks(record.marks),
            "modified_time": record.modified_time.isoformat() if record.modified_time else None,
            "flaw": self.past.flaw(record) or None,
        }

    def _state(self, record: JobRecord) -> str:
        receipt = self.past.receipt_of(record)
        run = f" (run {receipt.run}, {receipt.started:%Y-%m-%d %H:%M:%S})" if receipt else ""
        by = f"{record.number}, a rollback to " if batch_of(record) != record.number else ""
        return f"batch {by}{batch_of(record)}{run}"

    def _open_batch(self) -> Iterator[str]:
        intent = self.way.record.intent
        if intent is not None:
            what = "is given up" if self.way.moves else "is in no table; the next run takes it up"
            yield f"batch {intent.number} is open and {what}"

    def _undone_batches(self) -> Iterator[str]:
        """How many states go, and what was wrong with them."""
        known = {batch_of(each) for each in self.past.leading_to(self.way.record)}
        goal = batch_of(self.way.goal)
        if not self.way.moves or goal not in known:
            return
        undone = [*takewhile(lambda each: batch_of(each) != goal, self.past.leading_to(self.way.record))]
        rows = sum(receipt.rows_read for each in undone if (receipt := self.past.receipt_of(each)))
        if undone:
            batches = f"{len(undone)} {'batch' if len(undone) == 1 else 'batches'}"
            yield f"undoes {batches}, {counted(rows, 'row')} read"
        yield from self._flaws(undone)

    def _flaw_beneath(self) -> Iterator[str]:
        """A good batch says nothing of the rows that were there before it."""
        if self.to != LAST_GOOD:
            return
        below = [each for each in self.past.leading_to(self.way.goal) if self.past.receipt_of(each)]
        for line in [*self._flaws(below)][:1]:
            yield f"beneath it, {line}; its rows may still be there: `--to RUN` goes further back"

    def _flaws(self, records: list[JobRecord]) -> Iterator[str]:
        flawed = [(each, flaw) for each in records if (flaw := self.past.flaw(each))]
        yield from (f"{self._state(each)}: {flaw}" for each, flaw in flawed[:FLAWS_LISTED])
        if len(flawed) > FLAWS_LISTED:
            yield f"and {len(flawed) - FLAWS_LISTED} more that were not good"
