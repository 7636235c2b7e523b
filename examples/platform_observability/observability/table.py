"""A silver table as a plain value, and the job that it stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import floodmark as fm
from observability.lake import Lake
from observability.quality import rules_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from floodmark.sinks.contract import Sink


@dataclass(frozen=True)
class Silver:
    """What a table reads from bronze, what makes a row, and how rows are kept: latest, every version, or merged."""

    name: str
    reads: tuple[str, ...]
    key: tuple[str, ...]
    sequence: tuple[str, ...]
    mode: Literal["scd1", "scd2", "merge"] = "scd2"
    transform: str | Callable[..., DataFrame] | None = None
    delete_when: str | None = None
    untracked: tuple[str, ...] = ()
    first_valid_from: str | None = None

    def job(self, lake: Lake) -> fm.Job:
        """Its mark is called silver_<table>, and counts the versions of the bronze tables."""
        return fm.Job(
            name=f"silver_{self.name}",
            source=[fm.sources.Delta(lake.bronze(table), name=table) for table in self.reads],
            transform=self.transform,
            rules=rules_of(self.name),
            quarantine=lake.quarantine(f"silver_{self.name}"),
            sinks=[self.sink(lake)],
            on_schema_change="evolve",
        )

    def sink(self, lake: Lake) -> Sink:
        path, key, sequence, delete_when = lake.silver(self.name), self.key, self.sequence, self.delete_when
        if self.mode == "merge":
            return fm.sinks.Delta(path, mode="merge", key=key, sequence=sequence, change_feed=True)
        if self.mode == "scd1":
            return fm.sinks.Scd1(path, key=key, sequence=sequence, delete_when=delete_when)
        return fm.sinks.Scd2(
            path, key=key, sequence=sequence, delete_when=delete_when, untracked=self.untracked,
            first_valid_from=self.first_valid_from,
        )  # fmt: skip
