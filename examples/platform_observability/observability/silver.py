"""Silver: what the changes mean, by key. A table is a value; add one, and it is built with the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import floodmark as fm
from floodmark.medallion import Tags, date_sk
from observability.lake import ROOT, Lake
from observability.table import Silver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ZONE = "UTC"
TAGS = Tags.load(ROOT / "tags.yaml")


def usage_txn(source: DataFrame) -> DataFrame:
    """Usage with its date, its cause and its own tags as columns; what those leave open, gold asks further."""
    told = source.selectExpr(
        "record_id", "workspace_id", "sku_name", "cloud", "usage_unit", "usage_quantity", "usage_start_time",
        "usage_end_time", "coalesce(cluster_id, warehouse_id) as compute_id",
        "case when job_id is not null then 'JOB' when pipeline_id is not null then 'PIPELINE' end as entity_type",
        "coalesce(job_id, pipeline_id) as entity_id", "job_run_id", "custom_tags", "record_type", "change_time",
    )  # fmt: skip
    return TAGS.flatten(told.withColumn("date_sk", date_sk(told, "usage_start_time", ZONE)), ["custom_tags"])


def run_timeline(source: DataFrame) -> DataFrame:
    """Runs by the date on which they ended."""
    return source.withColumn("date_sk", date_sk(source, "period_end_time", ZONE)).drop("_ingest_version")


WORKSPACE = Silver(
    "workspace", reads="access_workspaces", mode="merge", key=("workspace_id",), sequence=("change_time",),
    transform="select * except (_ingest_version) from source",
)  # fmt: skip

ENTITY_LATEST_JOBS = Silver(
    "entity_latest",
    reads="lakeflow_jobs",
    mode="merge",
    key=("workspace_id", "entity_type", "entity_id"),
    sequence=("change_time",),
    transform="""
        select workspace_id, 'JOB' as entity_type, job_id as entity_id, name, creator_id as creator, tags, change_time,
               delete_time from source
    """,
    part="_jobs",
)

ENTITY_LATEST_PIPELINES = Silver(
    "entity_latest",
    reads="lakeflow_pipelines",
    mode="merge",
    key=("workspace_id", "entity_type", "entity_id"),
    sequence=("change_time",),
    transform="""
        select workspace_id, 'PIPELINE' as entity_type, pipeline_id as entity_id, name, created_by as creator, tags,
               change_time, delete_time from source
    """,
    part="_pipelines",
)

JOBS_SCD = Silver(
    "jobs_scd", reads="lakeflow_jobs", key=("workspace_id", "job_id"), sequence=("change_time",),
    delete_when="delete_time is not null", transform="select * except (_ingest_version) from source",
)  # fmt: skip

PIPELINES_SCD = Silver(
    "pipelines_scd", reads="lakeflow_pipelines", key=("workspace_id", "pipeline_id"), sequence=("change_time",),
    delete_when="delete_time is not null", transform="select * except (_ingest_version) from source",
)  # fmt: skip

CLUSTERS_SCD = Silver(
    "clusters_scd",
    reads="compute_clusters",
    key=("workspace_id", "cluster_id"),
    sequence=("updated_time",),
    delete_when="delete_time is not null",
    first_valid_from="created_time",
    transform="select * except (_ingest_version) from source",
)

WAREHOUSES_SCD = Silver(
    "warehouses_scd", reads="compute_warehouses", key=("workspace_id", "warehouse_id"), sequence=("change_time",),
    delete_when="delete_time is not null", transform="select * except (_ingest_version) from source",
)  # fmt: skip

NODE_TYPE_SCD = Silver(
    "node_type_scd", reads="compute_node_types", key=("node_type",), sequence=("change_time",),
    transform="select * except (_ingest_version) from source",
)  # fmt: skip

PRICE_SCD = Silver(
    "price_scd", reads="billing_list_prices", key=("sku_name", "cloud"), sequence=("price_start_time",),
    transform="select * except (_ingest_version) from source",
)  # fmt: skip

USAGE_TXN = Silver(
    "usage_txn", reads="billing_usage", mode="scd1", key=("record_id",), sequence=("change_time",),
    delete_when="record_type = 'RETRACTION'", transform=usage_txn,
)  # fmt: skip

JOB_RUN_TIMELINE = Silver(
    "job_run_timeline", reads="lakeflow_job_run_timeline", mode="merge",
    key=("workspace_id", "run_id", "period_start_time"), sequence=("period_end_time",), transform=run_timeline,
)  # fmt: skip

JOB_TASK_RUN_TIMELINE = Silver(
    "job_task_run_timeline", reads="lakeflow_job_task_run_timeline", mode="merge",
    key=("workspace_id", "run_id", "period_start_time"), sequence=("period_end_time",), transform=run_timeline,
)  # fmt: skip

TABLES = (
    WORKSPACE, ENTITY_LATEST_JOBS, ENTITY_LATEST_PIPELINES, JOBS_SCD, PIPELINES_SCD, CLUSTERS_SCD, WAREHOUSES_SCD,
    NODE_TYPE_SCD, PRICE_SCD, USAGE_TXN, JOB_RUN_TIMELINE, JOB_TASK_RUN_TIMELINE,
)  # fmt: skip


def jobs(lake: Lake) -> list[fm.Job]:
    return [table.job(lake) for table in TABLES]
