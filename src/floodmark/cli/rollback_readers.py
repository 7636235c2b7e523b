"""Jobs that read tables which go back: those that do not fit them any more are told before anything is done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.jobs.rollback_past import Past
from floodmark.jobs.rollback_readers import newest_built_on, versions_read
from floodmark.lineage import places
from floodmark.lineage.flows import Parts, flow_of
from floodmark.lineage.inputs import tables_of

if TYPE_CHECKING:
    from floodmark.jobs.rollback import WayBack
    from floodmark.lineage.columns import Dataset
    from floodmark.sinks.delta_restore import RestorePoint
    from floodmark.stores.contract import MarkStore


@dataclass(frozen=True)
class Readers:
    """The jobs of a project, what goes back of them, and where they keep their marks."""

    jobs: Sequence[Parts]
    ways: Sequence[WayBack]
    store: MarkStore
    folder: Path

    def warnings(self) -> Iterator[str]:
        """For each job that reads a table which goes back, and would not go on as if nothing had been."""
        tables = {places.delta(p.table.path, p.table.table): p for way in self.ways for p in way.points}
        for parts in self.jobs if tables else ():
            read = [tables[dataset] for dataset in inputs_of(parts) if dataset in tables]
            said = (self._told(parts, point) for point in read)
            yield from (f"{parts.job} {what}" for what in said if what)

    def _told(self, parts: Parts, point: RestorePoint) -> str | None:
        way = next((each for each in self.ways if each.job == parts.job and each.moves), None)
        record = way.goal if way else self.store.read(parts.job)
        if record is None:
            return None  # it never ran
        version, name = versions_read(parts.sources, record.marks).get(point.name), self._short(point)
        if version is None:
            return None if way else f"reads {name} beside its source: what it made of the rows that go stays"
        if not point.holds(version):
            ahead = f"is ahead of {name}: it has read version {version}, and the table goes back to {point.version}"
            return ahead + self._remedy(parts, point)
        if not point.is_same(version):
            return f"has read {name} up to version {version} of {point.version}: {self._meets(parts, point)}"
        return None if way else f"has read of {name} what stays: `--select {parts.job}` lets its mark follow the table"

    def _remedy(self, parts: Parts, point: RestorePoint) -> str:
        """The state of the reader that fits, by the run that left it."""
        past = Past.of(self.store, parts.job)
        fitting = newest_built_on(past, parts.sources, {point.name: point})
        receipt = past.receipt_of(fitting) if fitting else None
        if receipt is None:
            return f"; `floodmark run --select {parts.job} --full-refresh` builds it again"
        return f"; then `floodmark rollback --select {parts.job} --to {receipt.run}` puts it back to what it had of it"

    def _meets(self, parts: Parts, point: RestorePoint) -> str:
        appends = any(getattr(source, "changes", None) == "append" for source in parts.sources)
        return f"its next run meets rows that came and went{', and stops there (changes: append)' if appends else ''}"

    def _short(self, point: RestorePoint) -> str:
        return point.name.removeprefix(f"{self.folder}/")


def inputs_of(parts: Parts) -> set[Dataset]:
    """What a job reads; where its SQL is such as only Spark can read, what its sources do."""
    try:
        return set(flow_of(parts, _unknown).inputs)
    except ConfigError:
        rows = [each for source in parts.sources for each in tables_of(source, _unknown).values()]
        return {dataset for each in rows for dataset in each.datasets}


def _unknown(_dataset: Dataset) -> None:
    """Columns are not asked for."""
