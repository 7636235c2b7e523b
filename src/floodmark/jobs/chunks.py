"""A load in chunks: batch after batch, each with a mark of its own, until no full chunk is left or it is stopped."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from floodmark.logs import get_logger
from floodmark.step.stopping import asked_to_stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from floodmark.step import Step
    from floodmark.stores.record import Receipt

log = get_logger(__name__)


@dataclass(frozen=True)
class Pace:
    """How fast rows come, and how long the rest will take at this rate."""

    rows: int
    seconds: float
    last_rows: int = 0
    ahead: float | None = None
    """The share of what lay above the mark that is left for later chunks."""

    @property
    def rows_per_second(self) -> float:
        return self.rows / max(self.seconds, 0.001)

    @property
    def seconds_left(self) -> float | None:
        """By the share that the last chunk was; None where the source cannot tell how far it reaches."""
        if self.ahead is None or self.ahead >= 1:
            return None
        return self.last_rows * self.ahead / (1 - self.ahead) / max(self.rows_per_second, 0.001)


@dataclass(frozen=True)
class Chunks:
    """Runs a step in chunks of so many rows; `most` bounds them all together."""

    step: Step
    rows: int
    most: int | None = None
    clock: Callable[[], float] = field(default=time.monotonic)

    def run(self) -> Receipt:
        """One receipt for all chunks; each of them is committed, and stays if the next one fails."""
        begun = self.clock()
        whole = last = self._step(0, is_first=True).run()
        while self._goes_on(whole, last) and not asked_to_stop():
            self._tell(Pace(whole.rows_read, self.clock() - begun, last.rows_read, self._ahead()))
            last = self._step(whole.rows_read, is_first=False).run()
            if last.status != "done":
                break
            whole = whole.followed_by(last)
        return whole

    def _goes_on(self, whole: Receipt, last: Receipt) -> bool:
        is_full = last.recovered or last.rows_read >= self.rows
        return last.status == "done" and is_full and (self.most is None or whole.rows_read < self.most)

    def _step(self, read: int, *, is_first: bool) -> Step:
        """What a person asked for, as --from, is of the first chunk; the others go on from the mark."""
        limit = self.rows if self.most is None else min(self.rows, self.most - read)
        asked = self.step.request
        later = replace(asked, start=None, full_refresh=False, finish=False, abandon=False)
        return replace(self.step, request=replace(asked if is_first else later, max_rows=limit))

    def _ahead(self) -> float | None:
        outlook = self.step.last_seen.outlook
        return outlook.ahead if outlook else None

    def _tell(self, pace: Pace) -> None:
        left = pace.seconds_left
        log.info(
            "chunk done",
            job=self.step.work.name,
            rows=pace.rows,
            rows_per_second=round(pace.rows_per_second),
            seconds_left=None if left is None else round(left),
        )
