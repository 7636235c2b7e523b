"""What a step is asked to do: a job as plain values, without the user's spelling of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from floodmark.hwm import HWM, Json
from floodmark.rules import RuleSet
from floodmark.sinks.contract import Atomic, Ordered, Sink
from floodmark.sources.contract import Immutable, Source
from floodmark.step.settling import Settling
from floodmark.step.transform import Identity, Transform, program_fingerprint

OnSchemaChange = Literal["fail", "evolve", "ignore"]


@dataclass(frozen=True)
class Work:
    """One job: where rows come from, what happens to them, where they go."""

    name: str
    sources: tuple[Source, ...]
    sinks: tuple[Sink, ...]
    transform: Transform = field(default_factory=Identity)
    rules: RuleSet = field(default_factory=RuleSet)
    dead_letters: Sink | None = None
    on_schema_change: OnSchemaChange = "fail"
    spool_folder: str = ".floodmark/spool"

    def needs_spool(self) -> bool:
        """Whether rows must be frozen before they are written: they might not be the same when asked for again."""
        if isinstance(self.transform, Settling):
            return True  # its outcomes are frozen too: the user's code may do more than return rows
        if not all(isinstance(sink, Atomic) for sink in self.sinks):
            return True  # a sink that takes only some of the rows would also spoil the count
        repeatable = all(isinstance(source, Immutable) for source in self.sources) and self.transform.is_deterministic()
        return len(self.sinks) > 1 and not repeatable

    def needs_position(self) -> bool:
        wanted = any(isinstance(sink, Ordered) and sink.needs_position() for sink in self.sinks)
        return wanted or isinstance(self.transform, Settling)  # a failed record is named by its place

    def fingerprints(self) -> dict[str, str]:
        """What must not change between a crash and its rerun."""
        sinks = {f"sink '{sink.name}'": sink.fingerprint() for sink in self.sinks}
        return {
            "the transform": self.transform.fingerprint(),
            "the rules": self.rules.fingerprint(),
            "the program": program_fingerprint(self.transform),
            **sinks,
        }


@dataclass(frozen=True)
class RunRequest:
    """How this run differs from the next one on the clock."""

    start: str | None = None
    full_refresh: bool = False
    max_rows: int | None = None
    finish: bool = False
    abandon: bool = False
    waits_for_settling: bool = True


def shown(marks: Mapping[str, HWM[Any]]) -> Json:
    """Marks as people read them: the one value, or a value per source."""
    values: dict[str, Json] = {source: mark.show() for source, mark in marks.items()}
    return next(iter(values.values())) if len(values) == 1 else (values or None)
