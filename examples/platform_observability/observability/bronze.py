"""Bronze: every system table as it came, one row per change, in the order of its ingestion."""

from __future__ import annotations

from collections.abc import Mapping

import floodmark as fm
from observability.lake import Lake
from observability.quality import rules_of

KEYS: Mapping[str, tuple[str, ...]] = {
    "billing_usage": ("record_id",),
    "billing_list_prices": ("sku_name", "cloud", "price_start_time"),
    "lakeflow_jobs": ("workspace_id", "job_id"),
    "lakeflow_pipelines": ("workspace_id", "pipeline_id"),
    "lakeflow_job_run_timeline": ("workspace_id", "run_id", "period_start_time"),
    "lakeflow_job_task_run_timeline": ("workspace_id", "run_id", "period_start_time"),
    "access_workspaces": ("workspace_id",),
    "compute_clusters": ("workspace_id", "cluster_id"),
    "compute_node_types": ("node_type",),
    "compute_warehouses": ("workspace_id", "warehouse_id"),
}
"""What makes two rows of a table the same thing; the latest of them is in the view `brz_<table>_latest`."""


def ingest(table: str, lake: Lake) -> fm.Job:
    """Files that were not read yet are added; what is wrong with their rows is counted, and kept."""
    return fm.Job(
        name=f"bronze_{table}",
        source=fm.sources.Files(lake.incoming(table), format="parquet", settle=0),
        transform="select *, unix_micros(:batch_time) as _ingest_version from source",
        rules=rules_of(f"brz_{table}"),
        sinks=[fm.sinks.Delta(lake.bronze(table), change_feed=True)],
        on_schema_change="evolve",
    )


def jobs(lake: Lake) -> list[fm.Job]:
    return [ingest(table, lake) for table in KEYS]
