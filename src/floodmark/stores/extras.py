"""What a record and an intent keep beside marks and spans, by name; the JSON in which they are stored stays as it is.

Every part is optional: a record is a job's, a stream's, a workflow's or the health check's own. A part that this
program does not know, since a newer one wrote it, is kept as it is.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from floodmark.hwm import HWM, Json, deserialize

PENDING = "pending"
HELD = "held"
BACKFILL = "@backfill"
"""No source can be called so."""
SINKS = "@sinks"
"""No source can be called so, either."""
IDENTITY = "@identity"
"""Nor so."""
HEALING = "healing"
OF_A_STREAM = frozenset({"last", "seen", "ended", "done", "stopped"})
"""What a mill remembers of each of its streams; no source remembers these."""
WORKFLOW = "workflow"
HEALTH = "health"
DELIVERIES = "deliveries"
"""Beside `health`: which alerts each channel has heard of."""
INTENT_PARTS = ("sources", "remember", "frozen", "healing", "flushes", "outside", "sinks", "identity")
WENT_BACK_TO = "went back to"
"""A name that no source can have either."""


@dataclass(frozen=True)
class SourceMemory:
    """What a record remembers of one source: what goes with its mark, and what is true whether it was read or not."""

    extras: Mapping[str, Json] = field(default_factory=dict)
    pending: Mapping[str, Json] = field(default_factory=dict)

    @property
    def held_rows(self) -> Mapping[str, Json] | None:
        """Rows that wait for a transaction of somebody else: how many, since when and why."""
        held = self.pending.get(HELD)
        return held if isinstance(held, dict) else None

    def serialize(self) -> dict[str, Json]:
        return {**self.extras, **({PENDING: dict(self.pending)} if self.pending else {})}

    @classmethod
    def deserialize(cls, stored: Json) -> SourceMemory:
        """Nothing is remembered where something else than a mapping is stored."""
        if not isinstance(stored, dict):
            return cls()
        pending = stored.get(PENDING)
        own = {name: part for name, part in stored.items() if name != PENDING}
        return cls(own, pending if isinstance(pending, dict) else {})


@dataclass(frozen=True)
class BackfillProgress:
    """How far a backfill came: `after` is the end of its last chunk; None, that it has not begun."""

    start: str
    stop: str
    after: HWM[Any] | None = None
    chunks: int = 0
    is_done: bool = False
    remembered: Mapping[str, Json] = field(default_factory=dict)

    def serialize(self) -> dict[str, Json]:
        return {
            **vars(self),
            "after": self.after.serialize() if self.after else None,
            "remembered": dict(self.remembered),
        }

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> BackfillProgress:
        return cls(**{**stored, "after": deserialize(stored["after"]) if stored["after"] else None})


@dataclass(frozen=True)
class SinkLedger:
    """Under which id a sink keeps the numbers of a job, and in which target.

    In a record, `number` is that of the last batch that the sink confirmed; in an intent, that of the batch.
    """

    id: str
    target: str
    number: int

    def serialize(self) -> dict[str, Json]:
        return {"ledger": self.id, "target": self.target, "number": self.number}

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> SinkLedger:
        return cls(stored["ledger"], stored["target"], stored["number"])


@dataclass(frozen=True)
class RecordIdentity:
    """What tells the record of a job from one of the same name in another project's store; every batch carries it.

    It goes wherever the record goes: a store that is moved, copied or restored has it still. `accepted` are others
    whose batches somebody has taken over.
    """

    id: str
    accepted: tuple[str, ...] = ()

    @classmethod
    def new(cls) -> RecordIdentity:
        return cls(uuid.uuid4().hex[:12])

    def owns(self, owner: str | None) -> bool:
        """Whether a batch with this identity, or with none, is one of the record's own."""
        return owner is None or owner == self.id or owner in self.accepted

    def accepting(self, owners: Iterable[str | None]) -> RecordIdentity:
        """With all that these have written."""
        others = [owner for owner in owners if owner is not None and not self.owns(owner)]
        return RecordIdentity(self.id, (*self.accepted, *dict.fromkeys(others)))

    def serialize(self) -> dict[str, Json]:
        return {"id": self.id, "accepted": list(self.accepted)}

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> RecordIdentity:
        return cls(stored["id"], tuple(stored["accepted"]))


@dataclass(frozen=True)
class RecordExtras:
    """What a record keeps beside its marks.

    `stored` is the JSON itself: sources and the parts below share its names, so each is read only when it is asked
    for, and a source that is called like a part is none the worse for it.
    """

    stored: Mapping[str, Json] = field(default_factory=dict)

    def source(self, name: str) -> SourceMemory:
        """What is remembered of the source of this name."""
        return SourceMemory.deserialize(self.stored.get(name))

    def with_source(self, name: str, memory: SourceMemory) -> RecordExtras:
        return self.with_part(name, memory.serialize())

    def held_rows(self) -> Mapping[str, Json] | None:
        """Rows of any source that wait for somebody."""
        held = (self.source(name).held_rows for name in self.stored)
        return next((each for each in held if each is not None), None)

    @property
    def backfill(self) -> BackfillProgress | None:
        stored = self.part(BACKFILL)
        return BackfillProgress.deserialize(stored) if stored else None

    def with_backfill(self, progress: BackfillProgress) -> RecordExtras:
        return self.with_part(BACKFILL, progress.serialize())

    @property
    def sinks(self) -> dict[str, SinkLedger]:
        """What each sink last confirmed, by its name; records from before this was kept have none."""
        return {name: SinkLedger.deserialize(stored) for name, stored in (self.part(SINKS) or {}).items()}

    def with_sinks(self, sinks: Mapping[str, SinkLedger]) -> RecordExtras:
        return self.with_part(SINKS, {name: sink.serialize() for name, sink in sinks.items()})

    @property
    def identity(self) -> RecordIdentity | None:
        """None until the first batch of a version that knows of it."""
        stored = self.part(IDENTITY)
        return RecordIdentity.deserialize(stored) if stored else None

    def with_identity(self, identity: RecordIdentity | None) -> RecordExtras:
        return self.with_part(IDENTITY, identity.serialize()) if identity else self

    @property
    def healing(self) -> Mapping[str, Any] | None:
        """What the healer of a stream has done ahead of its marks, by topic and partition; None for any other job."""
        return self.part(HEALING)

    def with_healing(self, topics: Mapping[str, Json]) -> RecordExtras:
        return self.with_part(HEALING, dict(topics))

    @property
    def went_back_to(self) -> int | None:
        """The batch whose state a rollback put back."""
        number = self.stored.get(WENT_BACK_TO)
        return number if isinstance(number, int) else None

    def with_went_back_to(self, number: int) -> RecordExtras:
        return self.with_part(WENT_BACK_TO, number)

    @property
    def workflow(self) -> Mapping[str, Any] | None:
        """The last run of a workflow, in its own record."""
        return self.part(WORKFLOW)

    @property
    def health(self) -> Mapping[str, Any] | None:
        """What the health check remembers between two looks, in its own record."""
        return self.part(HEALTH)

    @property
    def is_of_a_mill(self) -> bool:
        """Whether it has what a mill remembers of its streams."""
        return any(isinstance(part, dict) and part.keys() >= OF_A_STREAM for part in self.stored.values())

    @property
    def is_of_a_job(self) -> bool:
        """Whether the record may be that of a job which a project file declares."""
        return not {WORKFLOW, HEALTH, HEALING} & self.stored.keys()

    def part(self, name: str) -> Mapping[str, Any] | None:
        """The mapping that is stored under this name."""
        stored = self.stored.get(name)
        return stored if isinstance(stored, dict) else None

    def with_part(self, name: str, part: Json) -> RecordExtras:
        return RecordExtras({**self.stored, name: part})

    def without(self, names: Collection[str]) -> RecordExtras:
        return RecordExtras({name: part for name, part in self.stored.items() if name not in names})

    def with_parts_of(self, later: RecordExtras) -> RecordExtras:
        """These, with the parts of the later ones in the place of their own."""
        return RecordExtras({**self.stored, **later.stored})


@dataclass(frozen=True)
class OutsideBatch:
    """How a batch that leaves the mark where it is differs from the job's own.

    `conditions` are SQL by source: a span ends with a value, a range before one. `sequences` are columns by sink: a
    merge that has none of its own must not put an older row over a newer one. A repair writes to one sink alone.
    A replay is of the letters with these ids (of all, if there are none) for which the SQL `where` holds; of a
    quarantine, `changes` are the columns that are set first, each with its SQL.
    """

    conditions: Mapping[str, str] = field(default_factory=dict)
    sequences: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sink: str | None = None
    letters: tuple[str, ...] = ()
    kind: Literal["dead_letter", "quarantine"] = "dead_letter"
    where: str = "true"
    changes: Mapping[str, str] = field(default_factory=dict)

    def serialize(self) -> dict[str, Json]:
        parts: dict[str, Json] = {
            "conditions": dict(self.conditions),
            "sequences": {name: list(columns) for name, columns in self.sequences.items()},
            "sink": self.sink,
            "letters": list(self.letters),
        }
        if self.kind == "quarantine":
            parts |= {"kind": self.kind, "where": self.where, "changes": dict(self.changes)}
        return parts

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> OutsideBatch:
        sequences = {name: tuple(columns) for name, columns in stored.get("sequences", {}).items()}
        return cls(
            stored.get("conditions", {}),
            sequences,
            stored.get("sink"),
            tuple(stored.get("letters", ())),
            stored.get("kind", "dead_letter"),
            stored.get("where", "true"),
            stored.get("changes", {}),
        )


@dataclass(frozen=True)
class IntentExtras:
    """What a batch needs beside its spans to be finished by whoever comes next; None, where it has no such part."""

    sources: Mapping[str, str] | None = None
    """The fingerprints of the sources that the spans are of."""
    remember: RecordExtras | None = None
    """What the record learns with the commit."""
    frozen_options: Mapping[str, Mapping[str, Json]] | None = None
    """What sinks asked to find again at every attempt, by their names."""
    healing: Mapping[str, Any] | None = None
    """Where the partitions of a stream stood when the turn was planned."""
    flushes: bool | None = None
    """Whether the steps of a stream let go at its end what they hold."""
    outside: OutsideBatch | None = None
    sinks: Mapping[str, SinkLedger] | None = None
    """Where the batch goes, in the order of the writes, by the names that the sinks had when it was begun."""
    identity: str | None = None
    """Of the record that began the batch; batches of earlier versions have none."""
    unknown_parts: Mapping[str, Json] = field(default_factory=dict)
    """What a newer program wrote."""

    def serialize(self) -> dict[str, Json]:
        parts: dict[str, Json] = {
            "sources": dict(self.sources) if self.sources is not None else None,
            "remember": dict(self.remember.stored) if self.remember is not None else None,
            "frozen": None if self.frozen_options is None else {n: dict(own) for n, own in self.frozen_options.items()},
            "healing": dict(self.healing) if self.healing is not None else None,
            "flushes": self.flushes,
            "outside": self.outside.serialize() if self.outside is not None else None,
            "sinks": None if self.sinks is None else [{"name": n, **s.serialize()} for n, s in self.sinks.items()],
            "identity": self.identity,
        }
        return {**{name: part for name, part in parts.items() if part is not None}, **self.unknown_parts}

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> IntentExtras:
        remember, outside, sinks = stored.get("remember"), stored.get("outside"), stored.get("sinks")
        return cls(
            sources=stored.get("sources"),
            remember=RecordExtras(remember) if remember is not None else None,
            frozen_options=stored.get("frozen"),
            healing=stored.get("healing"),
            flushes=stored.get("flushes"),
            outside=OutsideBatch.deserialize(outside) if outside is not None else None,
            sinks=None if sinks is None else {sink["name"]: SinkLedger.deserialize(sink) for sink in sinks},
            identity=stored.get("identity"),
            unknown_parts={name: part for name, part in stored.items() if name not in INTENT_PARTS},
        )
