"""The columns of Databricks' system tables as live workspaces print them, in their order, and the same for Arrow.

Databricks adds columns and fields without notice: nothing here or in the jobs goes by their position.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Mapping[str, str] = {
    "billing.usage": """
        account_id string, workspace_id string, record_id string, sku_name string, cloud string,
        usage_start_time timestamp, usage_end_time timestamp, usage_date date, custom_tags map<string,string>,
        usage_unit string, usage_quantity decimal(38,18), usage_metadata struct<cluster_id:string,job_id:string,
        warehouse_id:string,instance_pool_id:string,node_type:string,job_run_id:string,notebook_id:string,
        dlt_pipeline_id:string,endpoint_name:string,endpoint_id:string,dlt_update_id:string,dlt_maintenance_id:string,
        run_name:string,job_name:string,notebook_path:string,central_clean_room_id:string,source_region:string,
        destination_region:string,app_id:string,app_name:string,metastore_id:string,private_endpoint_name:string,
        storage_api_type:string,budget_policy_id:string,ai_runtime_pool_id:string,ai_runtime_workload_id:string,
        uc_table_catalog:string,uc_table_schema:string,uc_table_name:string,database_instance_id:string,
        sharing_materialization_id:string,schema_id:string,usage_policy_id:string,base_environment_id:string,
        agent_bricks_id:string,index_id:string,catalog_id:string,project_id:string,branch_id:string,table_id:string,
        supervisor_agent_id:string,networking_client:string,associated_product:string,recipient_id:string,
        interactive_source:string,snapshot_id:string,ai_gateway:struct<endpoint_name:string,endpoint_id:string,
        destination_id:string,destination_model:string>,genie:struct<surface:string,channel:string,agent_id:string>,
        data_source:string,operation:string,serverless_compute_id:string>, identity_metadata struct<run_as:string,
        created_by:string,owned_by:string,run_by:string>, record_type string, ingestion_date date,
        billing_origin_product string, product_features struct<jobs_tier:string,sql_tier:string,dlt_tier:string,
        is_serverless:boolean,is_photon:boolean,serving_type:string,networking:struct<connectivity_type:string>,
        ai_runtime:struct<compute_type:string>,model_serving:struct<offering_type:string>,
        ai_gateway:struct<feature_type:string>,serverless_gpu:struct<workload_type:string>,
        agent_bricks:struct<problem_type:string,workload_type:string>,performance_target:string,
        ai_functions:struct<ai_function:string>,apps:struct<compute_size:string>,
        lakeflow_connect:struct<task_type:string,zerobus_request_type:string>,lakebase:struct<storage_type:string,
        compute_type:string>,ai_bi_genie:struct<capability_type:string,offering_type:string>,
        genie:struct<offering_type:string>>, usage_type string""",
    "billing.list_prices": """
        account_id string, price_start_time timestamp, price_end_time timestamp, sku_name string, cloud string,
        currency_code string, usage_unit string, pricing struct<default:decimal(38,18),
        promotional:struct<default:decimal(38,18)>,effective_list:struct<default:decimal(38,18)>>""",
    "access.workspaces_latest": """
        account_id string, workspace_id string, workspace_name string, workspace_url string, create_time timestamp,
        status string""",
    "compute.clusters": """
        account_id string, workspace_id string, cluster_id string, cluster_name string, owned_by string,
        create_time timestamp, delete_time timestamp, driver_node_type string, worker_node_type string,
        worker_count bigint, min_autoscale_workers bigint, max_autoscale_workers bigint,
        auto_termination_minutes bigint, enable_elastic_disk boolean, tags map<string,string>, cluster_source string,
        init_scripts array<string>, aws_attributes struct<first_on_demand:bigint,availability:string,zone_id:string,
        instance_profile_arn:string,spot_bid_price_percent:bigint,ebs_volume_type:string,ebs_volume_count:bigint,
        ebs_volume_size:bigint,ebs_volume_iops:bigint,ebs_volume_throughput:bigint>,
        azure_attributes struct<first_on_demand:bigint,availability:string,spot_bid_max_price:double>,
        gcp_attributes struct<use_preemptible_executors:boolean,google_service_account:string,boot_disk_size:bigint,
        availability:string,zone_id:string,local_ssd_count:bigint>, driver_instance_pool_id string,
        worker_instance_pool_id string, dbr_version string, change_time timestamp, change_date date,
        data_security_mode string, policy_id string""",
    "compute.node_types": """
        account_id string, node_type string, core_count double, memory_mb bigint, gpu_count bigint""",
    "compute.node_timeline": """
        account_id string, workspace_id string, cluster_id string, instance_id string, start_time timestamp,
        end_time timestamp, driver boolean, cpu_user_percent double, cpu_system_percent double,
        cpu_wait_percent double, mem_used_percent double, mem_swap_percent double, network_sent_bytes bigint,
        network_received_bytes bigint, disk_free_bytes_per_mount_point map<string,bigint>, node_type string,
        private_ip string""",
    "compute.warehouses": """
        warehouse_id string, workspace_id string, account_id string, warehouse_name string, warehouse_type string,
        warehouse_channel string, warehouse_size string, min_clusters int, max_clusters int, auto_stop_minutes int,
        tags map<string,string>, change_time timestamp, delete_time timestamp, created_by string""",
    "compute.warehouse_events": """
        account_id string, workspace_id string, warehouse_id string, event_type string, cluster_count int,
        event_time timestamp""",
    "lakeflow.jobs": """
        account_id string, workspace_id string, job_id string, name string, creator_id string, tags map<string,
        string>, run_as string, change_time timestamp, delete_time timestamp, description string,
        trigger struct<file_arrival:struct<url:string,min_time_between_triggers_seconds:int,
        wait_after_last_change_seconds:int>,periodic:struct<interval:int,units:string>,
        continuous:struct<enabled:boolean>,table_update:struct<table_names:array<string>,
        min_time_between_triggers_seconds:bigint,wait_after_last_change_seconds:bigint,condition:string>,
        schedule:struct<quartz_cron_expression:string,timezone_id:string>>, trigger_type string,
        run_as_user_name string, creator_user_name string, paused boolean, timeout_seconds bigint,
        health_rules array<struct<metric:string,operator:string,value:bigint>>, deployment struct<kind:string,
        metadata_file_path:string>, create_time timestamp""",
    "lakeflow.job_tasks": """
        account_id string, workspace_id string, job_id string, task_key string, depends_on_keys array<string>,
        change_time timestamp, delete_time timestamp, timeout_seconds bigint, health_rules array<struct<metric:string,
        operator:string,value:bigint>>""",
    "lakeflow.job_run_timeline": """
        account_id string, workspace_id string, job_id string, run_id string, period_start_time timestamp,
        period_end_time timestamp, trigger_type string, result_state string, run_type string, run_name string,
        compute_ids array<string>, termination_code string, job_parameters map<string,map<string,string>>,
        source_task_run_id string, root_task_run_id string, compute array<struct<type:string,cluster_id:string,
        warehouse_id:string>>, termination_type string, setup_duration_seconds bigint, queue_duration_seconds bigint,
        run_duration_seconds bigint, cleanup_duration_seconds bigint, execution_duration_seconds bigint""",
    "lakeflow.job_task_run_timeline": """
        account_id string, workspace_id string, job_id string, run_id string, period_start_time timestamp,
        period_end_time timestamp, task_key string, compute_ids array<string>, result_state string, job_run_id string,
        parent_run_id string, termination_code string, compute array<struct<type:string,cluster_id:string,
        warehouse_id:string>>, termination_type string, task_parameters map<string,map<string,string>>,
        setup_duration_seconds bigint, cleanup_duration_seconds bigint, execution_duration_seconds bigint""",
    "lakeflow.pipelines": """
        workspace_id string, pipeline_id string, pipeline_type string, name string, created_by string, run_as string,
        tags map<string,string>, settings struct<photon:boolean,development:boolean,continuous:boolean,
        serverless:boolean,edition:string,channel:string>, configuration map<string,string>, change_time timestamp,
        delete_time timestamp, account_id string, create_time timestamp""",
}
COME_LATER: Mapping[str, tuple[str, ...]] = {"compute.warehouses": ("created_by",)}
"""Columns that a table gets only when the first row has a value for them."""


def columns_of(table: str) -> dict[str, str]:
    """By name the type of every column of a table, as SQL writes it."""
    return dict(column.split(" ", 1) for column in _parts(" ".join(COLUMNS[table].split())))


def arrow_schema(table: str, rows: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """The columns of a delivery of these rows."""
    import pyarrow as pa

    late = {name for name in COME_LATER.get(table, ()) if not any(name in row for row in rows)}
    return pa.schema([(name, arrow_type(kind)) for name, kind in columns_of(table).items() if name not in late])


def arrow_type(kind: str) -> pa.DataType:
    """A type of Spark's, nested ones included, in Arrow's words."""
    import pyarrow as pa

    kind = kind.replace(" ", "")
    outer, _, inner = kind.removesuffix(">").partition("<")
    if outer == "struct":
        return pa.struct([(name, arrow_type(of)) for name, of in (each.split(":", 1) for each in _parts(inner))])
    if outer == "map":
        key, value = _parts(inner)
        return pa.map_(arrow_type(key), arrow_type(value))
    if outer == "array":
        return pa.list_(arrow_type(inner))
    if kind.startswith("decimal"):
        return pa.decimal128(*map(int, kind.removeprefix("decimal(").rstrip(")").split(",")))
    plain = {"string": pa.string(), "boolean": pa.bool_(), "int": pa.int32(), "bigint": pa.int64()}
    return {**plain, "double": pa.float64(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC")}[kind]


def _parts(text: str) -> Iterator[str]:
    """What stands between the commas of the outermost level."""
    depth, begin = 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            yield text[begin:place].strip()
            begin = place + 1
    yield text[begin:].strip()
