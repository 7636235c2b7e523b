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

AT, PRICED_AT = "usage_start_time", "usage_end_time"
BY_PRICE = {"sku_name": "sku_name", "cloud": "cloud", "usage_unit": "usage_unit"}
BY_SKU = {"sku_name": "sku_name", "cloud": "cloud"}
BY_RUN = {"workspace_id": "workspace_id", "job_run_id": "run_id"}
BY_COMPUTE = {"workspace_id": "workspace_id", "compute_id": "compute_id"}
BY_ENTITY = {"workspace_id": "workspace_id", "entity_type": "entity_type", "entity_id": "entity_id"}
BY_WORKSPACE = {"workspace_id": "workspace_id"}
KEYS = ("workspace_sk", "entity_sk", "cluster_sk", "sku_sk")
STATUS = ("result_state", "termination_code")
COST = "decimal(28,8)"
"""A quantity of 24 digits times a price of 13 is exact in 38, and rounded once."""
SUM_OF_COST = f"cast(sum(list_cost) as {COST}) as list_cost"
BILLING = FactRows("billing", "gold/fact_billing_usage")
RUNS = FactRows("runs", "silver/job_run_timeline")


def billing_usage(
    usage: DataFrame, prices: DataFrame, cluster: DataFrame, entity: DataFrame, workspace: DataFrame, sku: DataFrame
) -> DataFrame:
    """One row per record of usage, with its price and all its keys; the nearest tag wins: usage, cluster, entity."""
    from pyspark.sql import functions as F

    priced = asof(usage, prices, on=BY_PRICE, at=PRICED_AT, take={"list_price": "list_price"})
    tagged = asof(priced, cluster, on=BY_COMPUTE, at=AT, take={"cluster_sk": "cluster_sk", "tags": "cluster_tags"})
    found = asof(tagged, entity, on=BY_ENTITY, at=AT, take={"entity_sk": "entity_sk", "tags": "entity_tags"})
    found = found.join(workspace.select("workspace_id", "workspace_sk"), ["workspace_id"], "left")
    found = found.join(sku.select("sku_name", "cloud", "sku_sk"), ["sku_name", "cloud"], "left")
    flat = TAGS.flatten(found, ["custom_tags", "cluster_tags", "entity_tags"]).fillna(UNKNOWN, list(KEYS))
    cost = (F.col("usage_quantity") * F.col("list_price")).cast(COST)
    own = ("date_sk", "record_id", "record_type", *KEYS, "workspace_id", "job_run_id", "usage_start_time")
    own = (*own, "usage_quantity", "list_price")
    return flat.select(*own, cost.alias("list_cost"), *TAGS.columns)


def by_status(billing: DataFrame, runs: DataFrame) -> DataFrame:
    """What runs cost by how they ended; a run that goes on has the unknown status."""
    from pyspark.sql import functions as F

    last = F.max_by(F.struct(*STATUS), F.col("period_end_time")).alias("last")  # a run that was repaired ended twice
    ended = (
        runs.where("result_state is not null").groupBy("workspace_id", F.col("run_id").alias("job_run_id")).agg(last)
    )
    of_runs = billing.where("job_run_id is not null")
    joined = of_runs.join(ended.select("*", "last.*"), ["workspace_id", "job_run_id"], "left")
    joined = with_status(joined)
    cost, count = F.sum("list_cost").cast(COST).alias("list_cost"), F.countDistinct("job_run_id").alias("runs")
    return joined.groupBy("date_sk", "workspace_sk", "run_status_sk").agg(cost, count)


def finished(runs: DataFrame) -> DataFrame:
    """How many runs of a job ended on a date and how, and how long runs took on it, slice by slice."""
    from pyspark.sql import functions as F

    seconds = F.expr("unix_seconds(period_end_time) - unix_seconds(period_start_time)")
    return (
        with_status(runs)
        .groupBy("date_sk", "workspace_id", "job_id", "run_status_sk")
        .agg(
            F.count("result_state").alias("runs"),
            F.sum(seconds).alias("run_duration_seconds"),
            F.max("run_duration_seconds").alias("longest_seconds"),
        )
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
        Lookup("prices", "silver/price_scd", on=BY_PRICE, at=PRICED_AT, columns=("list_price",)),
        Lookup("cluster", "gold/dim_cluster", on=BY_COMPUTE, at=AT, columns=("cluster_sk", "tags")),
        Lookup("entity", "gold/dim_entity", on=BY_ENTITY, at=AT, columns=("entity_sk", "tags")),
        Lookup("workspace", "gold/dim_workspace", on=BY_WORKSPACE, columns=("workspace_sk",)),
        Lookup("sku", "gold/dim_sku", on=BY_SKU, columns=("sku_sk",)),
    ),
    build=billing_usage,
    change_feed=True,
    looked_up_by=("workspace_sk", "entity_sk", "job_run_id"),
)

USAGE_PRICED_DAY = Fact(
    "fact_usage_priced_day",
    rows=BILLING,
    build=grouped(
        ", ".join(("date_sk", *KEYS, *TAGS.columns)),
        f"sum(usage_quantity) as usage_quantity, {SUM_OF_COST}, count(*) as records",
    ),
    looked_up_by=("workspace_sk", "cluster_sk", "sku_sk"),
)

ENTITY_COST = Fact(
    "fact_entity_cost",
    rows=BILLING,
    build=grouped("date_sk, workspace_sk, entity_sk", f"{SUM_OF_COST}, count(distinct job_run_id) as runs"),
    looked_up_by=("workspace_sk", "entity_sk"),
)

RUN_COST = Fact(
    "fact_run_cost",
    rows=BILLING,
    build=grouped(
        "date_sk, workspace_sk, entity_sk, cluster_sk, job_run_id",
        f"sum(usage_quantity) as usage_quantity, {SUM_OF_COST}",
        where="job_run_id is not null",
    ),
    looked_up_by=("entity_sk", "job_run_id"),
)

RUN_STATUS_COST = Fact(
    "fact_run_status_cost",
    rows=BILLING,
    lookups=(Lookup("runs", "silver/job_run_timeline", on=BY_RUN, columns=STATUS),),
    build=by_status,
    looked_up_by=("run_status_sk",),
)

RUNS_FINISHED_DAY = Fact("fact_runs_finished_day", rows=RUNS, build=finished, looked_up_by=("workspace_id", "job_id"))

FACTS = (BILLING_USAGE, USAGE_PRICED_DAY, ENTITY_COST, RUN_COST, RUN_STATUS_COST, RUNS_FINISHED_DAY)


def jobs(lake: Lake) -> list[fm.Job]:
    return [each.job(lake) for each in FACTS]
