"""Which guard stands before a table of PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args

from floodmark.errors import ConfigError, UnknownKind
from floodmark.hwm import Json
from floodmark.hwm.parsing import seconds_in
from floodmark.logs import get_logger
from floodmark.probes.postgres.fence import (
    UNSEEN_SECONDS,
    FenceProbe,
    OpenTransaction,
    PreparedTransaction,
    Writers,
    horizon_of,
)
from floodmark.probes.tables import Bounds, Ceiling, CursorColumn, Kind, Low, Point, TableProbe

if TYPE_CHECKING:
    from floodmark.probes.postgres import PostgresProbe
    from floodmark.sources.contract import Request


log = get_logger(__name__)
# How a table is read while others write to it: what a user may choose, and what guards a look by that choice.
Way = Literal["fence", "delay", "lag", "none"]
Chosen: TypeAlias = "str | Mapping[str, str]"
DEFAULTS: dict[Way, str] = {"fence": "5s", "delay": "30s", "lag": "1h", "none": "0s"}
OPTIONS: dict[str, Way] = {"fence_wait": "fence", "delay": "delay", "lag": "lag"}
TIMES: tuple[Kind, ...] = ("timestamp", "timestamptz")


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
        require_time("delay", self.probe.cursor().columns[0], TIMES)
        reason = f"are younger than {self.seconds:g} s (safety: delay)"
        every = (*ceilings, Ceiling(ahead_seconds=-self.seconds, reason=reason))
        return Guarded(self.probe.bounds(low, max_rows, every), every)


def require_time(way: Way, column: CursorColumn, kinds: Sequence[Kind]) -> None:
    """How old is an id?"""
    if column.kind not in kinds:
        raise ConfigError(
            f"safety: {way} needs a cursor that is a time; {column.name} is {column.type}, compared as {column.kind}.",
            hint="read by a time, or choose safety: fence",
        )


# The fence: up to which value no transaction can add a row any more, and who is waited for.
#
# A fence is the highest value that was seen, and the transactions that were open right after. It is passed once none of
# those lives, however many younger ones came, since those take higher values (probes/postgres_fence.py says why). Only
# one fence is waited for at a time, and the job record keeps it, so a busy database delays rows and never starves them.
@dataclass(frozen=True)
class Pending:
    """A fence that somebody still stands before."""

    upto: Json
    holders: Writers

    def followed(self, now: Writers) -> Pending | None:
        """The same fence, with those that have gone left out; None if it is passed.

        A transaction that is gone from the open ones may have been prepared. It is then the prepared one of its id;
        where its id was not known, every prepared one that came since may be it. They are taken in once, when it goes.
        """
        gone = [one for one in self.holders.open if one not in now.open]
        ids, is_unknown = {one.xid for one in gone}, any(one.xid is None for one in gone)
        prepared = tuple(p for p in now.prepared if p in self.holders.prepared or is_unknown or p.xid in ids)
        living = Writers(tuple(one for one in now.open if one in self.holders.open), prepared)
        return Pending(self.upto, living) if living else None

    def serialize(self) -> dict[str, Json]:
        return {
            "upto": self.upto,
            "open": [[one.pid, one.began, one.xid] for one in self.holders.open],
            "prepared": [[one.gid, one.xid] for one in self.holders.prepared],
        }

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> Pending:
        holders = Writers(
            tuple(OpenTransaction(*one) for one in stored["open"]),
            tuple(PreparedTransaction(*one) for one in stored["prepared"]),
        )
        return cls(stored["upto"], holders)


@dataclass(frozen=True)
class Fence:
    """How far a table is final (`passed`, None: not at all yet), and the fence that is waited for."""

    passed: Json = None
    pending: Pending | None = None

    def after(self, highest: Json, now: Writers) -> Fence:
        """The fence once a look has seen the highest value and then, in this order, who may still write."""
        pending = self.pending.followed(now) if self.pending else None
        if pending is not None:
            return Fence(self.passed, pending)
        passed = self.pending.upto if self.pending else self.passed
        if not now or highest is None or highest == passed:
            return Fence(highest if highest is not None else passed)
        return Fence(passed, Pending(highest, now))

    def has_to_be_kept(self, before: Fence) -> bool:
        """Whether the record has to learn of it: of a new fence, a passed one, or a prepared transaction taken in.

        That a holder has gone is found out again at the next look, so an idle tick writes nothing.
        """
        if self.pending is None or before.pending is None or self.passed != before.passed:
            return self.serialize() != before.serialize()
        new = [one for one in self.pending.holders.prepared if one not in before.pending.holders.prepared]
        return bool(new) or self.pending.upto != before.pending.upto

    def serialize(self) -> dict[str, Json]:
        return {"passed": self.passed, "pending": self.pending.serialize() if self.pending else None}

    @classmethod
    def deserialize(cls, stored: Json) -> Fence:
        """As it stands in the record; nothing there is a fence that nobody took yet."""
        if not isinstance(stored, dict):
            return cls()
        pending = stored["pending"]
        return cls(stored["passed"], Pending.deserialize(pending) if isinstance(pending, dict) else None)


# Reading behind a fence: what lies above it waits for the transactions that may still write below.
POLL_SECONDS = 0.1
FENCE, HELD = "fence", "held"
"""What the record keeps: the fence itself, and for people who is waited for since when."""
TAKEN_FROM_A_CLOCK = ("date", "timestamp", "timestamptz")


@dataclass(frozen=True)
class Fenced:
    """One table of PostgreSQL. `wait_seconds` is how long a run by itself waits for the fence it finds."""

    probe: FenceProbe
    wait_seconds: float = 5.0

    def bounds(self, low: Low, max_rows: int | None, ceilings: Sequence[Ceiling], request: Request) -> Guarded:
        self._require_fit()
        before = Fence.deserialize(request.pending.get(FENCE))
        bounds, now = self.probe.bounds(low, max_rows, ceilings)
        top = bounds.top
        if bounds.lowest is None or top is None:
            return Guarded(bounds, tuple(ceilings), _given_up(before))
        fence = self._followed(before, top, now, waits=request.waits)
        if fence.passed == list(top):
            final = replace(bounds, held=(*bounds.held, 0))
            return Guarded(final, (*ceilings, self._ceiling(fence)), self._learnt(fence, before, request, bounds))
        every = (*ceilings, self._ceiling(fence))
        held = self.probe.probe.bounds(low, max_rows, every)
        if fence.passed is not None and not held.held[-1]:  # the values have gone down since: it was another table then
            return self.bounds(low, max_rows, ceilings, replace(request, pending={}))
        return Guarded(held, every, self._learnt(fence, before, request, held))

    def _followed(self, before: Fence, top: Point, now: Writers, *, waits: bool) -> Fence:
        """The fence as it is now, or as it is after a run that has the time has waited for it."""
        is_new = before.pending is None or before.pending.followed(now) is None
        if self.probe.probe.cursor().columns[0].kind in TAKEN_FROM_A_CLOCK and (is_new or waits):
            time.sleep(UNSEEN_SECONDS)
            now = self.probe.writers()
        fence, deadline = before.after(list(top), now), time.monotonic() + self.wait_seconds
        while waits and fence.pending is not None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            fence = fence.after(list(top), self.probe.writers())
        return fence

    def _ceiling(self, fence: Fence) -> Ceiling:
        upto = tuple(map(str, fence.passed)) if isinstance(fence.passed, list) else None
        return Ceiling(upto, reason=_reason(fence), is_final=self.probe.moves_on)

    def _learnt(self, fence: Fence, before: Fence, request: Request, bounds: Bounds) -> dict[str, Json]:
        """What the record has to learn, or knows already: then it is not written again."""
        if not fence.has_to_be_kept(before):
            return dict(request.pending)
        if fence.pending is None:
            return {FENCE: fence.serialize(), HELD: None}
        rows, reason = bounds.held[-1], _reason(fence)
        log.info("rows are held back", source=self.probe.probe.name, rows=rows, reason=reason)
        since = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return {FENCE: fence.serialize(), HELD: {"rows": rows, "reason": reason, "since": since}}

    def _require_fit(self) -> None:
        for doubt in self.probe.newly_fit():
            log.warning(
                "the fence may be incomplete: a value that is taken early and written late is missed",
                rule=doubt.rule,
                source=self.probe.probe.name,
                column=self.probe.probe.cursor().columns[0].name,
                reason=doubt.reason,
                instead="safety: {lag: 1h}, safety: {delay: 30s}, cursor: xmin",
            )


def _reason(fence: Fence) -> str:
    return f"wait, since a lower one may come from {fence.pending.holders if fence.pending else 'nobody'}"


def _given_up(before: Fence) -> dict[str, Json]:
    """What was held back is no longer there: nobody is waited for."""
    return {FENCE: Fence(before.passed).serialize(), HELD: None} if before.pending else {}


# Reading by xmin: up to the oldest transaction that still runs, for all before it have ended.
@dataclass(frozen=True)
class BelowHorizon:
    """The horizon is asked for before the rows, so whatever lies below it is there to be read."""

    probe: PostgresProbe

    def bounds(self, low: Low, max_rows: int | None, ceilings: Sequence[Ceiling], request: Request) -> Guarded:
        horizon = horizon_of(self.probe)
        if low.value is not None and not low.inclusive:
            horizon.require_reaches(int(low.value[0]), self.probe.place())
        reason = f"wait for an older transaction: {horizon.holder}"
        every = (*ceilings, Ceiling((str(horizon.over),), reason=reason, is_final=True))
        return Guarded(self.probe.bounds(low, max_rows, every), every)


def postgres_guard(chosen: Chosen | None, probe: PostgresProbe, *, is_by_xmin: bool) -> Guard:
    """The guard by the user's choice; a fence if there is none. Raises ConfigError for a choice beside xmin."""
    if is_by_xmin and chosen is not None:
        raise ConfigError("cursor: xmin is safe by itself and takes no `safety`.", hint="leave safety out")
    if is_by_xmin:
        return BelowHorizon(probe)
    safety = Safety.of(chosen or "fence")
    return Fenced(FenceProbe(probe), safety.seconds) if safety.way == "fence" else guard_of(chosen, probe)
