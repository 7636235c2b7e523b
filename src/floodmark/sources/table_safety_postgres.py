"""Which guard stands before a table of PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.probes.postgres_fence import FenceProbe
from floodmark.sources.table_safety import Chosen, Guard, Safety, guard_of
from floodmark.sources.table_safety_fenced import Fenced
from floodmark.sources.table_safety_xmin import BelowHorizon

if TYPE_CHECKING:
    from floodmark.probes.postgres import PostgresProbe


def postgres_guard(chosen: Chosen | None, probe: PostgresProbe, *, is_by_xmin: bool) -> Guard:
    """The guard by the user's choice; a fence if there is none. Raises ConfigError for a choice beside xmin."""
    if is_by_xmin and chosen is not None:
        raise ConfigError("cursor: xmin is safe by itself and takes no `safety`.", hint="leave safety out")
    if is_by_xmin:
        return BelowHorizon(probe)
    safety = Safety.of(chosen or "fence")
    return Fenced(FenceProbe(probe), safety.seconds) if safety.way == "fence" else guard_of(chosen, probe)
