"""Batches outside the mark, which leave it where it is: a backfill, a repair, a replay of dead letters.

They go through the step as every batch does, under the job's own numbers, so a kill at any point is finished by
whoever comes next: `run`, or the act itself. What that needs beside the spans is kept in the intent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from floodmark.errors import ConfigError
from floodmark.hwm import Json
from floodmark.rules import RuleSet
from floodmark.sinks.contract import Sink
from floodmark.sources.contract import Reading
from floodmark.step.letters import Letters
from floodmark.step.saved_records import SavedRecords
from floodmark.step.spool import Spool
from floodmark.step.work import Work
from floodmark.stores.record import Intent

OUTSIDE = ("backfill", "repair", "replay")
OPTIONS = "outside"
GONE = "_fm_gone"
"""Tells a repair's rows that delete their key from those that are put in place."""


@dataclass(frozen=True)
class Outside:
    """How such a batch differs from the job's own.

    `conditions` are SQL by source: a span ends with a value, a range before one. `sequences` are columns by sink: a
    merge that has none of its own must not put an older row over a newer one. A repair writes to one sink alone.
    A replay is of the letters with these ids; of all, if there are none.
    """

    conditions: Mapping[str, str] = field(default_factory=dict)
    sequences: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sink: str | None = None
    letters: tuple[str, ...] = ()

    def serialize(self) -> dict[str, Json]:
        return {
            "conditions": dict(self.conditions),
            "sequences": {name: list(columns) for name, columns in self.sequences.items()},
            "sink": self.sink,
            "letters": list(self.letters),
        }

    @classmethod
    def of(cls, intent: Intent) -> Outside:
        stored: Any = intent.extras.get(OPTIONS) or {}
        sequences = {name: tuple(columns) for name, columns in stored.get("sequences", {}).items()}
        return cls(stored.get("conditions", {}), sequences, stored.get("sink"), tuple(stored.get("letters", ())))


def work_of(intent: Intent, work: Work) -> Work:
    """The job's work as this batch does it; the work itself for a batch that raises the mark."""
    if intent.kind not in OUTSIDE:
        return work
    outside = Outside.of(intent)
    ordered = tuple(in_sequence(sink, outside.sequences.get(sink.name)) for sink in work.sinks)
    if intent.kind == "backfill":
        return replace(work, sinks=ordered)
    if intent.kind == "replay":
        return replace(work, sinks=ordered, sources=(saved_records(intent, work),))
    chosen = tuple(repairing(sink) for sink in work.sinks if sink.name == outside.sink)
    if not chosen:
        raise ConfigError(
            f"a repair of sink '{outside.sink}' of job '{work.name}' is open, and the job has no such sink any more.",
            hint=f"bring the sink back, or `floodmark run --select {work.name} --abandon`",
        )
    return replace(work, sinks=chosen, rules=RuleSet())


def saved_records(intent: Intent, work: Work) -> SavedRecords:
    """What a replay reads: the letters as they were when it was begun."""
    unread = Spool(f"{intent.spool}-unread")
    return SavedRecords(work.sources[0], Letters.of(work, intent.number), Outside.of(intent).letters, unread)


def within(reading: Reading, source: str, intent: Intent) -> Reading:
    """The rows of a span that the batch is about."""
    condition = Outside.of(intent).conditions.get(source)
    return replace(reading, rows=reading.rows.where(condition)) if condition else reading


def in_sequence(sink: Sink, columns: tuple[str, ...] | None) -> Sink:
    """The sink, which tells older rows from newer ones by these columns."""
    return varied(sink, sequence=columns) if columns else sink


def repairing(sink: Sink) -> Sink:
    """The sink, which believes what it is given: the rows were read from the source again, whatever is stored."""
    return varied(sink, sequence=(), delete_when=GONE)


def varied(sink: Sink, **options: object) -> Sink:
    """A copy of a sink with other options; one that does not have them stays as it is."""
    if not is_dataclass(sink) or not options.keys() <= {each.name for each in fields(sink)}:
        return sink
    return replace(sink, **options)
