"""Bronze: every system table as it came, one row per change, in the order of its ingestion."""

from __future__ import annotations

import floodmark as fm
from observability.lake import Lake
from observability.quality import rules_of
from observability.system import BY_BRONZE_NAME, SYSTEM

TABLES = tuple(BY_BRONZE_NAME)


def ingest(table: str, lake: Lake) -> fm.Job:
    """What is new in a system table is added; what is wrong with its rows is counted, and kept."""
    system = BY_BRONZE_NAME[table]
    return fm.Job(
        name=f"bronze_{table}",
        source=system.source(lake),
        transform=system.bronze_query(),
        rules=rules_of(f"brz_{table}"),
        sinks=[fm.sinks.Delta(lake.bronze(table), change_feed=True)],
        on_schema_change="evolve",
    )


def jobs(lake: Lake) -> list[fm.Job]:
    return [ingest(table.bronze, lake) for table in SYSTEM]
