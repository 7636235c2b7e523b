"""Reading behind a fence: what lies above it waits for the transactions that may still write below."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from floodmark.logs import get_logger
from floodmark.probes.postgres_fence import UNSEEN_SECONDS, FenceProbe, Writers
from floodmark.probes.tables import Bounds, Ceiling, Low, Point
from floodmark.sources.table_safety import Guarded
from floodmark.sources.table_safety_fence import Fence

if TYPE_CHECKING:
    from floodmark.hwm import Json
    from floodmark.sources.contract import Request

log = get_logger(__name__)
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
