"""Where a fence cannot be trusted, by what the catalog says; tests/sources/tables/test_safety.py asks real servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from floodmark.errors import FenceBlind
from floodmark.probes.postgres.fence import SERVER, require_fit

FINE = (False, True, True, 0)
"""No standby, may see others, activities are tracked, no subscription."""


def refused(server: Sequence[Any], table: Sequence[Any] | None) -> FenceBlind | None:
    """The answer to these rows of the catalog; None for a table is a query, which has no row there."""
    named = "'o'" if table is not None else None
    try:
        require_fit(lambda sql: server if sql == SERVER else table or (), "orders", named)
    except FenceBlind as error:
        return error
    return None


@pytest.mark.parametrize(
    ("server", "table"),
    [(FINE, ("r", 0)), (FINE, ("p", 0)), (FINE, ("v", 0)), (FINE, None), ((False, True, True, 3), ("r", 0))],
)
def test_a_table_view_or_query_whose_writers_are_all_here_is_fit(server: Sequence[Any], table: Sequence[Any]) -> None:
    """Also a table beside others that a subscription fills."""
    assert refused(server, table) is None


@pytest.mark.parametrize(
    ("server", "table", "reason"),
    [
        ((True, True, True, 0), ("r", 0), "standby"),
        ((False, False, True, 0), ("r", 0), "may not see"),
        ((False, True, False, 0), ("r", 0), "track_activities"),
        ((False, True, True, 1), ("r", 1), "it is a table that a subscription fills"),
        ((False, True, True, 1), ("v", 0), "the database has tables that a subscription fills"),
        ((False, True, True, 1), None, "the database has tables that a subscription fills"),
        (FINE, ("f", 0), "foreign table"),
    ],
)
def test_where_a_writer_may_be_out_of_sight_it_stops(
    server: Sequence[Any], table: Sequence[Any] | None, reason: str
) -> None:
    """With the reason, and what may be chosen instead."""
    found = refused(server, table)
    assert found is not None
    assert (reason in found.reason, "safety: {delay: 30s}" in found.hint) == (True, True)
