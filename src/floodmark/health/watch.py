"""What is watched: tables and jobs, each with the limits that it is held to."""

from __future__ import annotations

from dataclasses import dataclass, field

HOUR = 3600.0


@dataclass(frozen=True)
class Limits:
    """From when on something is not as it should be."""

    freshness_seconds: float = 24 * HOUR
    """A table is FRESH below this age, STALE below twice of it, VERY_STALE above."""
    lag_seconds: float = 72 * HOUR
    min_rows: int = 1
    count_change: float = 0.5
    """The part by which a table may grow or shrink between two looks."""
    slow_factor: float = 2.0


@dataclass(frozen=True)
class TableWatch:
    """A Delta table by its folder or address."""

    name: str
    where: str
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class JobWatch:
    """A job. `keeps_rows`: every row that it reads is written, refused or dead, so the numbers must agree."""

    name: str
    limits: Limits = field(default_factory=Limits)
    keeps_rows: bool = False


@dataclass(frozen=True)
class Watch:
    """All that is looked at."""

    tables: tuple[TableWatch, ...] = ()
    jobs: tuple[JobWatch, ...] = ()
    limits: Limits = field(default_factory=Limits)
    """For streams, which nobody has to name."""
