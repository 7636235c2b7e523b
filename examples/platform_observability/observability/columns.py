"""The columns of the ten system tables, as they are delivered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Mapping[str, str] = {
    "billing_usage": """
        record_id string, workspace_id string, sku_name string, cloud string, usage_unit string,
        usage_quantity decimal, usage_start_time timestamp, usage_end_time timestamp, custom_tags tags,
        cluster_id string, warehouse_id string, job_id string, job_run_id string, pipeline_id string,
        record_type string, change_time timestamp""",
    "billing_list_prices": """
        sku_name string, cloud string, currency_code string, usage_unit string, list_price decimal,
        price_start_time timestamp""",
    "lakeflow_jobs": """
        workspace_id string, job_id string, name string, creator_id string, tags tags, change_time timestamp,
        delete_time timestamp""",
    "lakeflow_pipelines": """
        workspace_id string, pipeline_id string, pipeline_type string, name string, created_by string, tags tags,
        change_time timestamp, delete_time timestamp""",
    "lakeflow_job_run_timeline": """
        workspace_id string, job_id string, run_id string, period_start_time timestamp, period_end_time timestamp,
        trigger_type string, run_type string, result_state string, termination_code string,
        run_duration_seconds bigint""",
    "lakeflow_job_task_run_timeline": """
        workspace_id string, job_id string, run_id string, job_run_id string, task_key string,
        period_start_time timestamp, period_end_time timestamp, result_state string, termination_code string,
        run_duration_seconds bigint""",
    "access_workspaces": """
        account_id string, workspace_id string, workspace_name string, workspace_url string, status string,
        create_time timestamp, change_time timestamp""",
    "compute_clusters": """
        cluster_id string, workspace_id string, cluster_name string, spark_version string, cluster_source string,
        node_type_id string, driver_node_type_id string, creator string, policy_id string, tags tags,
        created_time timestamp, updated_time timestamp, delete_time timestamp""",
    "compute_node_types": """
        node_type string, core_count bigint, memory_mb bigint, gpu_count bigint, change_time timestamp""",
    "compute_warehouses": """
        warehouse_id string, workspace_id string, warehouse_name string, warehouse_type string,
        warehouse_size string, auto_stop_minutes bigint, tags tags, change_time timestamp, delete_time timestamp""",
}
NEW_COLUMNS: Mapping[str, str] = {"warehouse_channel": "string"}
"""What a later file may bring that the first one did not have."""


def arrow_schema(table: str, rows: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """The columns of a file with these rows."""
    import pyarrow as pa

    kinds = {
        "string": pa.string(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "decimal": pa.decimal128(18, 6),
        "tags": pa.map_(pa.string(), pa.string()),
    }
    declared = dict(column.split() for column in COLUMNS[table].split(","))
    come_new = {name: kind for name, kind in NEW_COLUMNS.items() if any(name in row for row in rows)}
    return pa.schema([(name, kinds[kind]) for name, kind in {**declared, **come_new}.items()])
