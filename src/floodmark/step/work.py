"""What a step is asked to do: a job as plain values, without the user's spelling of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from floodmark.errors import ConfigError
from floodmark.hwm import HWM, Json
from floodmark.rules import RuleSet
from floodmark.sinks.contract import Atomic, Discerning, Freezing, Ordered, Sink, merges
from floodmark.sources.contract import Immutable, Repeating, Restating, Source
from floodmark.step.transform import Identity, RowByRow, Settling, Transform, program_fingerprint
from floodmark.stores.opening import HIDDEN_FOLDER

if TYPE_CHECKING:
    from collections.abc import Sequence


OUTSIDE = ("backfill", "repair", "replay")


# Sources that read some rows again, to find those that came late: only sinks that know a row again may take them.
def without_repeats(job: str, sources: Sequence[Source], sinks: tuple[Sink, ...], rules: RuleSet) -> tuple[Sink, ...]:
    """The sinks as they leave out what they have, if a source may repeat rows. Raises ConfigError if one cannot."""
    by = tuple(name for source in sources if isinstance(source, Repeating) for name in source.repeats_by())
    if not by:
        return sinks
    if rules.quarantines():
        raise ConfigError(
            f"job '{job}' reads some rows again (safety: lag) and would quarantine them again.",
            hint="choose safety: fence or {delay: 30s}, or another action than quarantine",
        )
    return tuple(_discerning(job, sink, by) for sink in sinks)


def require_merging(job: str, sources: Sequence[Source], sinks: Sequence[Sink]) -> None:
    """A row that comes again after it has changed has to replace what it was. Raises ConfigError."""
    choices = [source.restates() for source in sources if isinstance(source, Restating)]
    appending = [sink.name for sink in sinks if not merges(sink)]
    if any(choices) and appending:
        choice, sink = next(filter(None, choices)), appending[0]
        raise ConfigError(
            f"job '{job}' reads a row again once it has a cursor ({choice}), and its sink '{sink}' would keep both.",
            hint="write to a sink with mode: merge, or choose on_null: exclude or coalesce",
        )


def _discerning(job: str, sink: Sink, by: tuple[str, ...]) -> Sink:
    able = sink.without_repeats(by) if isinstance(sink, Discerning) else None
    if able is None:
        raise ConfigError(
            f"job '{job}' reads some rows again (safety: lag), and its sink '{sink.name}' would write them twice.",
            hint="use a Delta table, or mode: merge; or choose safety: fence or {delay: 30s}",
        )
    return able


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
    quarantine: Sink | None = None
    on_schema_change: OnSchemaChange = "fail"
    spool_folder: str = str(HIDDEN_FOLDER / "spool")

    def __post_init__(self) -> None:
        if self.rules.quarantines() and self.quarantine is None:
            raise ConfigError(f"job '{self.name}' has no place for its quarantine.", hint="give it `quarantine`")
        require_merging(self.name, self.sources, self.sinks)
        object.__setattr__(self, "sinks", without_repeats(self.name, self.sources, self.sinks, self.rules))

    def needs_spool(self) -> bool:
        """Whether rows must be frozen before they are written: they might not be the same when asked for again."""
        if isinstance(self.transform, Settling):
            return True  # its outcomes are frozen too: the user's code may do more than return rows
        if self.rules and not self.judges_on_the_way():
            return True
        if self.is_repeatable():  # a sink that reads only some of the rows, or reads them twice, would spoil the count
            return not all(isinstance(sink, (Atomic, Freezing)) for sink in self.sinks)
        return len(self.sinks) > 1 or not isinstance(self.sinks[0], Atomic)

    def is_repeatable(self) -> bool:
        """Whether the same span is known to give the same rows."""
        return all(isinstance(source, Immutable) for source in self.sources) and self.transform.is_deterministic()

    def judges_on_the_way(self) -> bool:
        """Whether rules can be judged and counted in the pass that writes, and the quarantine be read again after it.

        Above a shuffle a row may be counted twice, so only a transform that goes row by row allows it, and only sinks
        that take the batch as one.
        """
        row_by_row = isinstance(self.transform, RowByRow) and self.transform.is_row_by_row()
        as_one = all(isinstance(sink, Atomic) for sink in self.sinks)
        if not row_by_row or not as_one or self.rules.needs_whole_batch():
            return False
        return self.is_repeatable() or not self.rules.quarantines()

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

    @property
    def drops_open_batch(self) -> bool:
        """Whether a batch that was begun is given up instead of finished."""
        return self.abandon or self.full_refresh


def shown(marks: Mapping[str, HWM[Any]]) -> Json:
    """Marks as people read them: the one value, or a value per source."""
    values: dict[str, Json] = {source: mark.show() for source, mark in marks.items()}
    return next(iter(values.values())) if len(values) == 1 else (values or None)


# Sources whose rows are not what the transform works on, but say what it has to make.
@runtime_checkable
class Building(Protocol):
    """A source that puts the job's transform to work itself."""

    def building(self, transform: Transform) -> Transform:
        """The transform that makes the job's rows of what this source reads; asked once per run."""
