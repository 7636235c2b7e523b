"""Gold, the dimensions: what facts point to. Entities and clusters have versions, and are filled from two tables."""

from __future__ import annotations

import floodmark as fm
from floodmark.medallion import dates_for
from observability.lake import Lake
from observability.quality import rules_of
from observability.table import Dimension

ENTITY = ("workspace_id", "entity_type", "entity_id")
COMPUTE = ("workspace_id", "compute_id")

WORKSPACE = Dimension(
    "dim_workspace",
    reads="workspace",
    natural=("workspace_id",),
    columns={name: name for name in ("workspace_id", "workspace_name", "workspace_url", "status")},
    versions=False,
)

JOBS = Dimension(
    "dim_entity",
    reads="jobs_scd",
    natural=ENTITY,
    columns={
        "workspace_id": "workspace_id", "entity_type": "'JOB'", "entity_id": "job_id", "entity_name": "name",
        "creator": "coalesce(creator_user_name, creator_id)", "tags": "tags",
    },
    part="_jobs",
)  # fmt: skip

PIPELINES = Dimension(
    "dim_entity",
    reads="pipelines_scd",
    natural=ENTITY,
    columns={
        "workspace_id": "workspace_id", "entity_type": "'PIPELINE'", "entity_id": "pipeline_id", "entity_name": "name",
        "creator": "created_by", "tags": "tags",
    },
    part="_pipelines",
)  # fmt: skip

CLUSTERS = Dimension(
    "dim_cluster",
    reads="clusters_scd",
    natural=COMPUTE,
    columns={
        "workspace_id": "workspace_id", "compute_type": "'CLUSTER'", "compute_id": "cluster_id",
        "compute_name": "cluster_name", "node_type": "node_type_id", "spark_version": "spark_version",
        "policy_id": "policy_id", "tags": "tags",
    },
    part="_clusters",
)  # fmt: skip

WAREHOUSES = Dimension(
    "dim_cluster",
    reads="warehouses_scd",
    natural=COMPUTE,
    columns={
        "workspace_id": "workspace_id", "compute_type": "'WAREHOUSE'", "compute_id": "warehouse_id",
        "compute_name": "warehouse_name", "node_type": "warehouse_size", "spark_version": "cast(null as string)",
        "policy_id": "cast(null as string)", "tags": "tags",
    },
    part="_warehouses",
)  # fmt: skip

SKU = Dimension(
    "dim_sku",
    reads="price_scd",
    natural=("sku_name", "cloud"),
    columns={name: name for name in ("sku_name", "cloud", "usage_unit")},
    versions=False,
)

RUN_STATUS = Dimension(
    "dim_run_status",
    reads="job_run_timeline",
    natural=("result_state", "termination_code"),
    columns={name: name for name in ("result_state", "termination_code")},
    versions=False,
)

NODE_TYPE = Dimension(
    "dim_node_type",
    reads="node_type_scd",
    natural=("node_type",),
    columns={name: name for name in ("node_type", "core_count", "memory_mb", "gpu_count")},
)

DIMENSIONS = (WORKSPACE, JOBS, PIPELINES, CLUSTERS, WAREHOUSES, SKU, RUN_STATUS, NODE_TYPE)


def dates(lake: Lake) -> fm.Job:
    """Whole years of days, as soon as a row of usage asks for them."""
    return fm.Job(
        name="gold_dim_date",
        source=fm.sources.Delta(lake.silver("usage_txn"), changes="feed"),
        transform=dates_for,
        rules=rules_of("dim_date"),
        sinks=[fm.sinks.Delta(lake.gold("dim_date"), mode="merge", key=("date_sk",))],
    )


def jobs(lake: Lake) -> list[fm.Job]:
    return [*(each.job(lake) for each in DIMENSIONS), dates(lake)]
