"""Reading by xmin: up to the oldest transaction that still runs, for all before it have ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.probes.postgres_xmin import horizon_of
from floodmark.probes.tables import Ceiling, Low
from floodmark.sources.table_safety import Guarded

if TYPE_CHECKING:
    from floodmark.probes.postgres import PostgresProbe
    from floodmark.sources.contract import Request


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
