"""The tables of silver and gold as plain values, each with the job that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import floodmark as fm
from floodmark.medallion import FactRows, Lookup, dimension, fact
from observability.lake import Lake
from observability.quality import rules_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from floodmark.sinks.contract import Sink


@dataclass(frozen=True)
class Silver:
    """What a table reads from bronze, what makes a row, and how rows are kept.

    `merge` keeps the newest row of each key, `scd1` too and remembers deletes, `scd2` keeps every version.
    """

    name: str
    reads: str
    key: tuple[str, ...]
    sequence: tuple[str, ...]
    mode: Literal["scd1", "scd2", "merge"] = "scd2"
    transform: str | Callable[..., DataFrame] | None = None
    delete_when: str | None = None
    untracked: tuple[str, ...] = ()
    first_valid_from: str | None = None
    part: str = ""
    """Tells the jobs apart where two of them fill one table."""

    def job(self, lake: Lake) -> fm.Job:
        """Its mark is called silver_<table>, and counts the versions of the bronze table."""
        name = f"silver_{self.name}{self.part}"
        return fm.Job(
            name=name,
            source=fm.sources.Delta(lake.bronze(self.reads)),
            transform=self.transform,
            rules=rules_of(self.name),
            quarantine=lake.quarantine(name),
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


@dataclass(frozen=True)
class Dimension:
    """The members of a silver table: the columns that name one, and all its columns as SQL over the silver row.

    The key of dim_entity is called entity_sk, and so on. Two of them may fill one table, told apart by `part`.
    """

    name: str
    reads: str
    natural: tuple[str, ...]
    columns: Mapping[str, str]
    versions: bool = True
    part: str = ""

    def job(self, lake: Lake) -> fm.Job:
        return dimension(
            f"gold_{self.name}{self.part}",
            source=lake.silver(self.reads),
            path=lake.gold(self.name),
            key=f"{self.name.removeprefix('dim_')}_sk",
            natural=self.natural,
            columns=self.columns,
            versions=self.versions,
            rules=rules_of(self.name),
        )


@dataclass(frozen=True)
class Fact:
    """Rows by date: what they are built of, by paths inside the lake, and how."""

    name: str
    rows: FactRows
    build: str | Callable[..., DataFrame]
    lookups: tuple[Lookup, ...] = ()
    change_feed: bool = False
    looked_up_by: tuple[str, ...] = ()
    """The columns by which its readers look rows up, beside the date."""

    def job(self, lake: Lake) -> fm.Job:
        return fact(
            f"gold_{self.name}",
            rows=replace(self.rows, path=lake.inside(self.rows.path)),
            lookups=[replace(lookup, path=lake.inside(lookup.path)) for lookup in self.lookups],
            build=self.build,
            path=lake.gold(self.name),
            change_feed=self.change_feed,
            rules=rules_of(self.name),
        )
