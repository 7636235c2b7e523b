"""How a table is read while others write to it: what a user may choose, and what guards a look by that choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, get_args

from floodmark.errors import ConfigError, UnknownKind
from floodmark.probes.durations import seconds_in
from floodmark.probes.tables import Bounds, Ceiling, Low, TableProbe

if TYPE_CHECKING:
    from floodmark.hwm import Json
    from floodmark.sources.contract import Request

Way = Literal["fence", "delay", "lag", "none"]
Chosen: TypeAlias = "str | Mapping[str, str]"
DEFAULTS: dict[Way, str] = {"fence": "5s", "delay": "30s", "lag": "1h", "none": "0s"}
OPTIONS: dict[str, Way] = {"fence_wait": "fence", "delay": "delay", "lag": "lag"}
TIMES = ("timestamp", "timestamptz")


@dataclass(frozen=True)
class Safety:
    """A choice: `fence` (with how long a run by itself waits for it), `delay` or `lag` (with how long), or `none`."""

    way: Way = "none"
    seconds: float = 0.0

    @classmethod
    def of(cls, chosen: Chosen) -> Safety:
        """As a user writes it: a word, or one option with its duration."""
        if isinstance(chosen, str):
            if chosen not in get_args(Way):
                raise UnknownKind("safety", chosen, known=get_args(Way))
            way: Way = chosen  # type: ignore[assignment]  # it is one of them
            return cls(way, seconds_in(DEFAULTS[way], field=way))
        if len(chosen) != 1 or not set(chosen) <= set(OPTIONS):
            raise ConfigError(
                f"safety: {', '.join(chosen) or 'nothing'} cannot be chosen.",
                hint="one of: fence, none, {fence_wait: 5s}, {delay: 30s}, {lag: 1h}",
            )
        ((option, duration),) = chosen.items()
        return cls(OPTIONS[option], seconds_in(duration, field=option))


def guard_of(chosen: Chosen | None, probe: TableProbe) -> Guard:
    """What guards a look by this choice, in any database. Raises ConfigError for a fence, which few can tell."""
    safety = Safety.of(chosen or "none")
    if safety.way == "fence":
        raise ConfigError(
            f"safety: a fence needs PostgreSQL, and this is {probe.place()}.",
            hint="choose safety: {delay: 30s} or safety: {lag: 1h}",
        )
    return Delayed(probe, safety.seconds) if safety.way == "delay" else Unguarded(probe)


@dataclass(frozen=True)
class Guarded:
    """What a look may use: how far the table reaches under every ceiling, and what the record has to learn."""

    bounds: Bounds
    ceilings: tuple[Ceiling, ...]
    pending: Mapping[str, Json] = field(default_factory=dict)


class Guard(Protocol):
    """Stands between a look and the table."""

    def bounds(self, low: Low, max_rows: int | None, ceilings: Sequence[Ceiling], request: Request) -> Guarded:
        """What lies above the low bound and may be read now. Raises FenceBlind, SourceUnreadable."""


@dataclass(frozen=True)
class Unguarded:
    """Everything that is there is read: a row that commits late with a lower value is missed."""

    probe: TableProbe

    def bounds(self, low: Low, max_rows: int | None, ceilings: Sequence[Ceiling], request: Request) -> Guarded:
        return Guarded(self.probe.bounds(low, max_rows, ceilings), tuple(ceilings))


@dataclass(frozen=True)
class Delayed:
    """Rows wait until they are so old by the database's clock: who writes longer than that is missed."""

    probe: TableProbe
    seconds: float

    def bounds(self, low: Low, max_rows: int | None, ceilings: Sequence[Ceiling], request: Request) -> Guarded:
        first = self.probe.cursor().columns[0]
        if first.kind not in TIMES:
            raise ConfigError(
                f"safety: delay needs a cursor that is a time, and {first.name} is {first.type}.",
                hint="read by a time, or choose safety: fence",
            )
        reason = f"are younger than {self.seconds:g} s (safety: delay)"
        every = (*ceilings, Ceiling(ahead_seconds=-self.seconds, reason=reason))
        return Guarded(self.probe.bounds(low, max_rows, every), every)
