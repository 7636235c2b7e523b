"""Gold, the dimensions: what facts point to. Entities and clusters have versions, and are filled from two tables."""

from __future__ import annotations

import floodmark as fm
from floodmark.medallion.dates import dates_for
from floodmark.medallion.dimension import dimension
from observability.lake import Lake
from observability.quality import rules_of

WORKSPACE = {"workspace_id": "workspace_id", "workspace_name": "workspace_name", "workspace_url": "workspace_url"}
ENTITY = {"workspace_id": "workspace_id", "entity_name": "name", "tags": "tags"}
ENTITY_KEY = ("workspace_id", "entity_type", "entity_id")
COMPUTE = {"workspace_id": "workspace_id", "tags": "tags"}
COMPUTE_KEY = ("workspace_id", "compute_id")
SKU = {"sku_name": "sku_name", "cloud": "cloud", "usage_unit": "usage_unit"}
STATUS = {"result_state": "result_state", "termination_code": "termination_code"}
NODE_TYPE = {name: name for name in ("node_type", "core_count", "memory_mb", "gpu_count")}


def workspace(lake: Lake) -> fm.Job:
    return _kept("dim_workspace", "workspace", lake, ("workspace_id",), {**WORKSPACE, "status": "status"}, False)


def entities(lake: Lake) -> list[fm.Job]:
    job = {**ENTITY, "entity_type": "'JOB'", "entity_id": "job_id", "creator": "creator_id"}
    pipeline = {**ENTITY, "entity_type": "'PIPELINE'", "entity_id": "pipeline_id", "creator": "created_by"}
    return [
        _kept("dim_entity", "jobs_scd", lake, ENTITY_KEY, job, part="_jobs"),
        _kept("dim_entity", "pipelines_scd", lake, ENTITY_KEY, pipeline, part="_pipelines"),
    ]


def clusters(lake: Lake) -> list[fm.Job]:
    cluster = {
        **COMPUTE, "compute_type": "'CLUSTER'", "compute_id": "cluster_id", "compute_name": "cluster_name",
        "node_type": "node_type_id", "spark_version": "spark_version", "policy_id": "policy_id",
    }  # fmt: skip
    warehouse = {
        **COMPUTE, "compute_type": "'WAREHOUSE'", "compute_id": "warehouse_id", "compute_name": "warehouse_name",
        "node_type": "warehouse_size", "spark_version": "cast(null as string)", "policy_id": "cast(null as string)",
    }  # fmt: skip
    return [
        _kept("dim_cluster", "clusters_scd", lake, COMPUTE_KEY, cluster, part="_clusters"),
        _kept("dim_cluster", "warehouses_scd", lake, COMPUTE_KEY, warehouse, part="_warehouses"),
    ]


def sku(lake: Lake) -> fm.Job:
    return _kept("dim_sku", "price_scd", lake, ("sku_name", "cloud"), SKU, False)


def run_status(lake: Lake) -> fm.Job:
    return _kept("dim_run_status", "job_run_timeline", lake, ("result_state", "termination_code"), STATUS, False)


def node_type(lake: Lake) -> fm.Job:
    return _kept("dim_node_type", "node_type_scd", lake, ("node_type",), NODE_TYPE)


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
    each = (workspace(lake), sku(lake), run_status(lake), node_type(lake), dates(lake))
    return [*each, *entities(lake), *clusters(lake)]


def _kept(
    table: str,
    source: str,
    lake: Lake,
    natural: tuple[str, ...],
    columns: dict[str, str],
    versions: bool = True,
    part: str = "",
) -> fm.Job:
    """The key of dim_entity is called entity_sk, and so on."""
    return dimension(
        f"gold_{table}{part}",
        source=lake.silver(source),
        path=lake.gold(table),
        key=f"{table.removeprefix('dim_')}_sk",
        natural=natural,
        columns=columns,
        versions=versions,
        rules=rules_of(table),
    )
