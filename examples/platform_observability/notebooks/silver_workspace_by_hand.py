# Databricks notebook source
# MAGIC %md
# MAGIC # Silver by three functions
# MAGIC The table `silver.workspace` is kept by a job. Here the same is done by hand, with the job's own mark: whoever
# MAGIC comes next, the job or this notebook, reads on from there.

# COMMAND ----------
# MAGIC %run ./_setup

# COMMAND ----------
# ruff: noqa: D100, ERA001, F821 - its text is in %md; spark, lake and store come from the notebook before
from floodmark.medallion import (
    commit_processing_state,
    get_last_processed_timestamp,
    read_bronze_since_timestamp,
    upto,
)
from observability.quality import validate_bronze_data, validate_silver_data
from observability.silver import WORKSPACE

# COMMAND ----------
# Get last processed timestamp
last_ts = get_last_processed_timestamp(spark, "silver_workspace", store=store)

# Read new data since last timestamp
df = read_bronze_since_timestamp(spark, f"{lake.schema}.brz_access_workspaces_latest", last_ts)
max_ts = upto(df)

# COMMAND ----------
validate_bronze_data(df, "brz_access_workspaces")
df.createOrReplaceTempView("new_workspaces")
spark.sql(WORKSPACE.transform.replace("from source", "from new_workspaces")).createOrReplaceTempView("workspaces")
newest = "row_number() over (partition by workspace_id order by snapshot_at desc)"
spark.sql(f"""
    merge into {lake.schema}.slv_workspace as t
    using (select * except (place) from (select *, {newest} as place from workspaces) where place = 1) as s
    on t.workspace_id = s.workspace_id
    when matched and s.snapshot_at > t.snapshot_at then update set *
    when not matched then insert *
""")
validate_silver_data(spark.table(f"{lake.schema}.slv_workspace"), "workspace")

# COMMAND ----------
# Update processing state after successful processing
if max_ts:
    commit_processing_state(spark, "silver_workspace", max_ts, store=store)
dbutils.notebook.exit(f"processed up to {max_ts}")
