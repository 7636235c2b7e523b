"""Gold, the facts: costs and runs by date. Only the dates that a change touches are built again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import floodmark as fm
from floodmark.medallion import UNKNOWN, FactRows, Lookup, asof, surrogate_key
from observability.lake import Lake
from observability.silver import TAGS
from observability.table import Fact

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AT = "usage_start_time"
BY_SKU = {"sku_name": "sku_name", "cloud": "cloud"}
BY_COMPUTE = {"workspace_id": "workspace_id", "compute_id": "compute_id"}
BY_ENTITY = {"workspace_id": "workspace_id", "entity_type": "entity_type", "entity_id": "entity_id"}
BY_WORKSPACE = {"workspace_id": "workspace_id"}
KEYS = ("workspace_sk", "entity_sk", "cluster_sk", "sku_sk")
STATUS = ("result_state", "termination_code")
COST = "decimal(28,8)"
SUM_OF_COST = f"cast(sum(list_cost) as {COST}) as list_cost"
BILLING = FactRows("billing", "gold/fact_billing_usage")
RUNS = FactRows("runs", "silver/job_run_timeline")


def billing_usage(
    usage: DataFrame, prices: DataFrame, cluster: DataFrame, entity: DataFrame, workspace: DataFrame, sku: DataFrame
) -> DataFrame:
    """One row per record of usage, with its price and all its keys; the nearest tag wins: usage, cluster, entity."""
    from pyspark.sql import functions as F

    priced = asof(usage, prices, on=BY_SKU, at=AT, take={"list_price": "list_price"})
    tagged = asof(priced, cluster, on=BY_COMPUTE, at=AT, take={"cluster_sk": "cluster_sk", "tags": "cluster_tags"})
    found = asof(tagged, entity, on=BY_ENTITY, at=AT, take={"entity_sk": "entity_sk", "tags": "entity_tags"})
    found = found.join(workspace.select("workspace_id", "workspace_sk"), ["workspace_id"], "left")
    found = found.join(sku.select("sku_name", "cloud", "sku_sk"), ["sku_name", "cloud"], "left")
    flat = TAGS.flatten(found, ["custom_tags", "cluster_tags", "entity_tags"]).fillna(UNKNOWN, list(KEYS))
    cost = (F.col("usage_quantity") * F.col("list_price")).cast(COST)
    own = ("date_sk", "record_id", *KEYS, "job_run_id", "usage_start_time", "usage_quantity", "list_price")
    return flat.select(*own, cost.alias("list_cost"), *TAGS.columns)


def by_status(billing: DataFrame, runs: DataFrame) -> DataFrame:
    """What runs cost by how they ended; a run that goes on has the unknown status."""
    from pyspark.sql import functions as F

    ended = runs.where("result_state is not null").select("run_id", *STATUS).distinct()
    of_runs = billing.where("job_run_id is not null")
    joined = with_status(of_runs.join(ended, F.col("job_run_id") == F.col("run_id"), "left"))
    cost, count = F.sum("list_cost").cast(COST).alias("list_cost"), F.countDistinct("job_run_id").alias("runs")
    return joined.groupBy("date_sk", "workspace_sk", "run_status_sk").agg(cost, count)


def finished(runs: DataFrame) -> DataFrame:
    """How many runs of a job ended on a date, how, and how long they took."""
    from pyspark.sql import functions as F

    ended = with_status(runs.where("result_state is not null"))
    return ended.groupBy("date_sk", "workspace_id", "job_id", "run_status_sk").agg(
        F.count("*").alias("runs"),
        F.sum("run_duration_seconds").alias("run_duration_seconds"),
        F.max("run_duration_seconds").alias("longest_seconds"),
    )


def with_status(rows: DataFrame) -> DataFrame:
    """The key of dim_run_status follows from the status, so nothing has to be looked up."""
    from pyspark.sql import functions as F

    key = F.when(F.col("result_state").isNotNull(), surrogate_key(rows, STATUS)).otherwise(F.lit(UNKNOWN))
    return rows.withColumn("run_status_sk", key)


def grouped(by: str, measures: str, where: str = "true") -> str:
    """The SELECT of a fact that sums up the rows of another one."""
    return f"select {by}, {measures} from source where {where} group by {by}"


BILLING_USAGE = Fact(
    "fact_billing_usage",
    rows=FactRows("usage", "silver/usage_txn"),
    lookups=(
        Lookup("prices", "silver/price_scd", on=BY_SKU, at=AT, columns=("list_price",)),
        Lookup("cluster", "gold/dim_cluster", on=BY_COMPUTE, at=AT, columns=("cluster_sk", "tags")),
        Lookup("entity", "gold/dim_entity", on=BY_ENTITY, at=AT, columns=("entity_sk", "tags")),
        Lookup("workspace", "gold/dim_workspace", on=BY_WORKSPACE, columns=("workspace_sk",)),
        Lookup("sku", "gold/dim_sku", on=BY_SKU, columns=("sku_sk",)),
    ),
    build=billing_usage,
    change_feed=True,
)

USAGE_PRICED_DAY = Fact(
    "fact_usage_priced_day",
    rows=BILLING,
    build=grouped(
        ", ".join(("date_sk", *KEYS, *TAGS.columns)),
        f"sum(usage_quantity) as usage_quantity, {SUM_OF_COST}, count(*) as records",
    ),
)

ENTITY_COST = Fact(
    "fact_entity_cost",
    rows=BILLING,
    build=grouped("date_sk, workspace_sk, entity_sk", f"{SUM_OF_COST}, count(distinct job_run_id) as runs"),
)

RUN_COST = Fact(
    "fact_run_cost",
    rows=BILLING,
    build=grouped(
        "date_sk, workspace_sk, entity_sk, cluster_sk, job_run_id",
        f"sum(usage_quantity) as usage_quantity, {SUM_OF_COST}",
        where="job_run_id is not null",
    ),
)

RUN_STATUS_COST = Fact(
    "fact_run_status_cost",
    rows=BILLING,
    lookups=(Lookup("runs", "silver/job_run_timeline", on={"job_run_id": "run_id"}, columns=STATUS),),
    build=by_status,
)

RUNS_FINISHED_DAY = Fact("fact_runs_finished_day", rows=RUNS, build=finished)

FACTS = (BILLING_USAGE, USAGE_PRICED_DAY, ENTITY_COST, RUN_COST, RUN_STATUS_COST, RUNS_FINISHED_DAY)


def jobs(lake: Lake) -> list[fm.Job]:
    return [each.job(lake) for each in FACTS]
