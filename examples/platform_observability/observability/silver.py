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
    """Usage with its date, its cause and its own tags as columns; what those leave open, gold asks further.

    Every record counts: a retraction takes its original back by a quantity below zero, a restatement says it anew.
    """
    causes = source.selectExpr(
        "record_id", "record_type", "workspace_id", "sku_name", "cloud", "usage_unit",
        "cast(usage_quantity as decimal(24,12)) as usage_quantity", "usage_start_time", "usage_end_time",
        "coalesce(usage_metadata.cluster_id, usage_metadata.warehouse_id) as compute_id",
        "case when usage_metadata.job_id is not null then 'JOB'"
        " when usage_metadata.dlt_pipeline_id is not null then 'PIPELINE' end as entity_type",
        "coalesce(usage_metadata.job_id, usage_metadata.dlt_pipeline_id) as entity_id",
        "usage_metadata.job_run_id", "billing_origin_product", "custom_tags", "ingestion_date", "_ingest_version",
    )  # fmt: skip
    return TAGS.flatten(causes.withColumn("date_sk", date_sk(causes, "usage_start_time", ZONE)), ["custom_tags"])


def run_timeline(source: DataFrame) -> DataFrame:
    """Slices of runs by the date on which they ended."""
    return source.withColumn("date_sk", date_sk(source, "period_end_time", ZONE)).drop("_ingest_version")


WORKSPACE = Silver(
    "workspace", reads="access_workspaces", mode="merge", key=("workspace_id",), sequence=("snapshot_at",),
    transform="""
        select account_id, workspace_id, workspace_name, workspace_url, create_time,
               case when _deleted then 'CANCELLED' else status end as status, snapshot_at from source
    """,
)  # fmt: skip

ENTITY_LATEST_JOBS = Silver(
    "entity_latest",
    reads="lakeflow_jobs",
    mode="merge",
    key=("workspace_id", "entity_type", "entity_id"),
    sequence=("change_time",),
    transform="""
        select workspace_id, 'JOB' as entity_type, job_id as entity_id, name,
               coalesce(creator_user_name, creator_id) as creator, tags, change_time, delete_time from source
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
    transform="""
        select workspace_id, cluster_id, cluster_name, dbr_version as spark_version, worker_node_type as node_type_id,
               driver_node_type as driver_node_type_id, owned_by as creator, create_time as created_time, policy_id,
               change_time as updated_time, delete_time, cluster_source, tags from source""",
)

WAREHOUSES_SCD = Silver(
    "warehouses_scd", reads="compute_warehouses", key=("workspace_id", "warehouse_id"), sequence=("change_time",),
    delete_when="delete_time is not null", transform="select * except (_ingest_version) from source",
)  # fmt: skip

NODE_TYPE_SCD = Silver(
    "node_type_scd", reads="compute_node_types", key=("account_id", "node_type"), sequence=("snapshot_at",),
    transform="select * except (_ingest_version) from source",
)  # fmt: skip

PRICE_SCD = Silver(
    "price_scd", reads="billing_list_prices", key=("sku_name", "cloud", "usage_unit"), sequence=("price_start_time",),
    transform="""
        select sku_name, cloud, usage_unit, currency_code, price_start_time,
               cast(pricing.effective_list.default as decimal(13,8)) as list_price from source
    """,
)  # fmt: skip

USAGE_TXN = Silver(
    "usage_txn", reads="billing_usage", mode="merge", key=("record_id", "record_type"),
    sequence=("ingestion_date", "_ingest_version"), transform=usage_txn,
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
