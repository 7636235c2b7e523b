"""How a table is read while others write to it: what a user may choose, and the guard that stands before a look by it.

A row that commits late with a lower value than the mark would be lost. A fence waits for those who may still write, a
delay waits for a time, `cursor: xmin` reads up to the oldest transaction; a lag reads again (`looking.LagLook`).
"""

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
    OpenTransaction,
    PreparedTransaction,
    Trust,
    Writers,
    bounds_and_writers,
    current_writers,
    horizon_of,
    table_trust,
)
from floodmark.probes.tables import CursorColumn, CursorValue, Kind, LowerBound, TableBounds, TableProbe, UpperBound

if TYPE_CHECKING:
    from floodmark.probes.postgres import PostgresProbe
    from floodmark.probes.tables import ResolvedCursor
    from floodmark.sources.contract import Request


log = get_logger(__name__)

Way = Literal["fence", "delay", "lag", "none"]
SafetyOption: TypeAlias = "str | Mapping[str, str]"
DEFAULTS: dict[Way, str] = {"fence": "5s", "delay": "30s", "lag": "1h", "none": "0s"}
OPTIONS: dict[str, Way] = {"fence_wait": "fence", "delay": "delay", "lag": "lag"}
TIMES: tuple[Kind, ...] = ("timestamp", "timestamptz")
POLL_SECONDS = 0.1
FENCE, HELD = "fence", "held"
"""What the record keeps: the fence itself, and for people who is waited for since when."""


@dataclass(frozen=True)
class Safety:
    """A choice: `fence` (with how long a run by itself waits for it), `delay` or `lag` (with how long), or `none`."""

    way: Way = "none"
    seconds: float = 0.0

    @classmethod
    def of(cls, option: SafetyOption) -> Safety:
        """As a user writes it: a word, or one option with its duration."""
        if isinstance(option, str):
            if option not in get_args(Way):
                raise UnknownKind("safety", option, known=get_args(Way))
            way: Way = option  # type: ignore[assignment]  # it is one of them
            return cls(way, seconds_in(DEFAULTS[way], field=way))
        if len(option) != 1 or not set(option) <= set(OPTIONS):
            raise ConfigError(
                f"safety: {', '.join(option) or 'nothing'} cannot be chosen.",
                hint="one of: fence, none, {fence_wait: 5s}, {delay: 30s}, {lag: 1h}",
            )
        ((name, duration),) = option.items()
        return cls(OPTIONS[name], seconds_in(duration, field=name))


class Guard(Protocol):
    """Stands between a look and the table."""

    def bounds(
        self, low: LowerBound, max_rows: int | None, upper: Sequence[UpperBound], request: Request
    ) -> SafeBounds:
        """What lies above the lower bound and may be read now. Raises FenceBlind, SourceUnreadable."""


@dataclass(frozen=True)
class SafeBounds:
    """What a look may use: how far the table reaches under every upper bound, and what the record has to learn."""

    bounds: TableBounds
    upper: tuple[UpperBound, ...]
    pending: Mapping[str, Json] = field(default_factory=dict)


def guard_for(option: SafetyOption | None, probe: TableProbe) -> Guard:
    """The guard by the user's choice, in any database. Raises ConfigError for a fence, which few can tell."""
    safety = Safety.of(option or "none")
    if safety.way == "fence":
        raise ConfigError(
            f"safety: a fence needs PostgreSQL, and this is {probe.place()}.",
            hint="choose safety: {delay: 30s} or safety: {lag: 1h}",
        )
    return DelayGuard(probe, safety.seconds) if safety.way == "delay" else NoGuard(probe)


def postgres_guard(option: SafetyOption | None, probe: PostgresProbe, *, is_by_xmin: bool) -> Guard:
    """The guard by the user's choice; a fence if there is none. Raises ConfigError for a choice beside xmin."""
    if is_by_xmin and option is not None:
        raise ConfigError("cursor: xmin is safe by itself and takes no `safety`.", hint="leave safety out")
    if is_by_xmin:
        return XminGuard(probe)
    safety = Safety.of(option or "fence")
    return FenceGuard(probe, safety.seconds) if safety.way == "fence" else guard_for(option, probe)


@dataclass(frozen=True)
class NoGuard:
    """Everything that is there is read: a row that commits late with a lower value is missed."""

    probe: TableProbe

    def bounds(
        self, low: LowerBound, max_rows: int | None, upper: Sequence[UpperBound], request: Request
    ) -> SafeBounds:
        return SafeBounds(self.probe.bounds(low, max_rows, upper), tuple(upper))


@dataclass(frozen=True)
class DelayGuard:
    """Rows wait until they are so old by the database's clock: who writes longer than that is missed."""

    probe: TableProbe
    seconds: float

    def bounds(
        self, low: LowerBound, max_rows: int | None, upper: Sequence[UpperBound], request: Request
    ) -> SafeBounds:
        require_time("delay", self.probe.cursor().columns[0], TIMES)
        reason = f"are younger than {self.seconds:g} s (safety: delay)"
        every = (*upper, UpperBound(ahead_seconds=-self.seconds, reason=reason))
        return SafeBounds(self.probe.bounds(low, max_rows, every), every)


def require_time(way: Way, column: CursorColumn, kinds: Sequence[Kind]) -> None:
    """How old is an id?"""
    if column.kind not in kinds:
        raise ConfigError(
            f"safety: {way} needs a cursor that is a time; {column.name} is {column.type}, compared as {column.kind}.",
            hint="read by a time, or choose safety: fence",
        )


@dataclass(frozen=True)
class XminGuard:
    """Up to the oldest transaction that still runs; that is asked before the rows, so all below is there."""

    probe: PostgresProbe

    def bounds(
        self, low: LowerBound, max_rows: int | None, upper: Sequence[UpperBound], request: Request
    ) -> SafeBounds:
        horizon = horizon_of(self.probe)
        if low.value is not None and not low.inclusive:
            horizon.require_reaches(int(low.value[0]), self.probe.place())
        reason = f"wait for an older transaction: {horizon.holder}"
        every = (*upper, UpperBound((str(horizon.over),), reason=reason, is_final=True))
        return SafeBounds(self.probe.bounds(low, max_rows, every), every)


@dataclass
class FenceGuard:
    """What lies above the fence waits for the transactions that may still write below.

    `wait_seconds` is how long a run by itself waits for the fence it finds. How far the fence can be trusted is asked
    once per connection, for another one may lead elsewhere.
    """

    probe: PostgresProbe
    wait_seconds: float = 5.0
    _trust: Trust = field(default_factory=Trust)
    _trusted_cursor: ResolvedCursor | None = None

    def bounds(
        self, low: LowerBound, max_rows: int | None, upper: Sequence[UpperBound], request: Request
    ) -> SafeBounds:
        self._require_fit()
        before = Fence.deserialize(request.pending.get(FENCE))
        bounds, writers = bounds_and_writers(self.probe, low, max_rows, upper)
        if bounds.lowest is None or bounds.top is None:  # what was held back is no longer there: nobody is waited for
            nobody: dict[str, Json] = {FENCE: Fence(before.passed_value).serialize(), HELD: None}
            return SafeBounds(bounds, tuple(upper), nobody if before.pending else {})
        fence = self._wait_for(before, bounds.top, writers, waits=request.waits)
        every = (*upper, self._upper_bound(fence))
        if fence.passed_value == list(bounds.top):
            held = replace(bounds, held_rows=(*bounds.held_rows, 0))
        else:
            held = self.probe.bounds(low, max_rows, every)
            if fence.passed_value is not None and not held.held_rows[-1]:  # values went down: it was another table then
                return self.bounds(low, max_rows, upper, replace(request, pending={}))
        return SafeBounds(held, every, self._pending(fence, before, request, held))

    def _wait_for(self, before: Fence, top: CursorValue, writers: Writers, *, waits: bool) -> Fence:
        """The fence as it is now, or as it is after a run that has the time has waited for it."""
        is_new = before.pending is None or before.pending.follow(writers) is None
        if self.probe.cursor().columns[0].kind in (*TIMES, "date") and (is_new or waits):
            time.sleep(UNSEEN_SECONDS)
            writers = current_writers(self.probe)
        fence, deadline = before.follow(list(top), writers), time.monotonic() + self.wait_seconds
        while waits and fence.pending is not None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            fence = fence.follow(list(top), current_writers(self.probe))
        return fence

    def _upper_bound(self, fence: Fence) -> UpperBound:
        """No row comes at a passed value any more, unless the column is coarse: then a later one may take it again."""
        upto = tuple(map(str, fence.passed_value)) if isinstance(fence.passed_value, list) else None
        return UpperBound(upto, reason=fence.reason, is_final=not self._trust.is_coarse)

    def _pending(self, fence: Fence, before: Fence, request: Request, bounds: TableBounds) -> dict[str, Json]:
        """What the record has to learn, or knows already: then it is not written again."""
        if not fence.is_news_after(before):
            return dict(request.pending)
        if fence.pending is None:
            return {FENCE: fence.serialize(), HELD: None}
        rows = bounds.held_rows[-1]
        log.info("rows are held back", source=self.probe.name, rows=rows, reason=fence.reason)
        since = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return {FENCE: fence.serialize(), HELD: {"rows": rows, "reason": fence.reason, "since": since}}

    def _require_fit(self) -> None:
        cursor = self.probe.cursor()  # kept with the connection
        if self._trusted_cursor is cursor:
            return
        self._trust, self._trusted_cursor = table_trust(self.probe), cursor
        for doubt in self._trust.doubts:
            log.warning(
                "the fence may be incomplete: a value that is taken early and written late is missed",
                rule=doubt.rule,
                source=self.probe.name,
                column=cursor.columns[0].name,
                reason=doubt.reason,
                instead="safety: {lag: 1h}, safety: {delay: 30s}, cursor: xmin",
            )


@dataclass(frozen=True)
class Fence:
    """Up to which value no transaction can add a row any more (None: none yet), and the fence that is waited for.

    A fence is the highest value that was seen, and the transactions that were open right after. It is passed once none
    of those lives, however many younger ones came, since those take higher values (`probes/postgres/fence.py` says
    why). Only one is waited for at a time, and the job record keeps it, so a busy database delays rows and never
    starves them.
    """

    passed_value: Json = None
    pending: PendingFence | None = None

    def follow(self, highest: Json, writers: Writers) -> Fence:
        """The fence once a look has seen the highest value and then, in this order, who may still write."""
        pending = self.pending.follow(writers) if self.pending else None
        if pending is not None:
            return Fence(self.passed_value, pending)
        value = self.pending.upto if self.pending else self.passed_value
        if not writers or highest is None or highest == value:
            return Fence(highest if highest is not None else value)
        return Fence(value, PendingFence(highest, writers))

    def is_news_after(self, before: Fence) -> bool:
        """Whether the record has to learn of it: of a new fence, a passed one, or a prepared transaction taken in.

        That a holder has gone is found out again at the next look, so an idle tick writes nothing.
        """
        if self.pending is None or before.pending is None or self.passed_value != before.passed_value:
            return self.serialize() != before.serialize()
        new = [one for one in self.pending.holders.prepared if one not in before.pending.holders.prepared]
        return bool(new) or self.pending.upto != before.pending.upto

    @property
    def reason(self) -> str:
        """Why rows above it wait."""
        return f"wait, since a lower one may come from {self.pending.holders if self.pending else 'nobody'}"

    def serialize(self) -> dict[str, Json]:
        return {"passed": self.passed_value, "pending": self.pending.serialize() if self.pending else None}

    @classmethod
    def deserialize(cls, stored: Json) -> Fence:
        """As it stands in the record; nothing there is a fence that nobody took yet."""
        if not isinstance(stored, dict):
            return cls()
        pending = stored["pending"]
        return cls(stored["passed"], PendingFence.deserialize(pending) if isinstance(pending, dict) else None)


@dataclass(frozen=True)
class PendingFence:
    """A fence that somebody still stands before."""

    upto: Json
    holders: Writers

    def follow(self, writers: Writers) -> PendingFence | None:
        """The same fence, with those that have gone left out; None if it is passed.

        A transaction that is gone from the open ones may have been prepared. It is then the prepared one of its id;
        where its id was not known, every prepared one that came since may be it. They are taken in once, when it goes.
        """
        gone = [one for one in self.holders.open if one not in writers.open]
        ids, is_unknown = {one.xid for one in gone}, any(one.xid is None for one in gone)
        prepared = tuple(p for p in writers.prepared if p in self.holders.prepared or is_unknown or p.xid in ids)
        left = Writers(tuple(one for one in writers.open if one in self.holders.open), prepared)
        return PendingFence(self.upto, left) if left else None

    def serialize(self) -> dict[str, Json]:
        return {
            "upto": self.upto,
            "open": [[one.pid, one.began, one.xid] for one in self.holders.open],
            "prepared": [[one.gid, one.xid] for one in self.holders.prepared],
        }

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> PendingFence:
        holders = Writers(
            tuple(OpenTransaction(*one) for one in stored["open"]),
            tuple(PreparedTransaction(*one) for one in stored["prepared"]),
        )
        return cls(stored["upto"], holders)
