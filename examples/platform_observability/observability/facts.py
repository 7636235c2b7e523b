"""Gold, the facts: costs and runs by date. Only the dates that a change touches are built again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import floodmark as fm
from floodmark.medallion.asof import asof
from floodmark.medallion.fact import fact
from floodmark.medallion.fact_inputs import FactRows, Lookup
from floodmark.medallion.keys import UNKNOWN, surrogate_key
from observability.lake import Lake
from observability.quality import rules_of
from observability.silver import TAGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COST = "decimal(28,8)"
TAG_COLUMNS = tuple(TAGS.columns)
AT = "usage_start_time"
BY_SKU = {"sku_name": "sku_name", "cloud": "cloud"}
BY_COMPUTE = {"workspace_id": "workspace_id", "compute_id": "compute_id"}
BY_ENTITY = {"workspace_id": "workspace_id", "entity_type": "entity_type", "entity_id": "entity_id"}
KEYS = ("workspace_sk", "entity_sk", "cluster_sk", "sku_sk")
STATUS = ("result_state", "termination_code")


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
    return flat.select(*own, cost.alias("list_cost"), *TAG_COLUMNS)


def atomic(lake: Lake) -> fm.Job:
    """The fact that the others sum up."""
    by_workspace = {"workspace_id": "workspace_id"}
    return fact(
        "gold_fact_billing_usage",
        rows=FactRows("usage", lake.silver("usage_txn")),
        lookups=[
            Lookup("prices", lake.silver("price_scd"), on=BY_SKU, at=AT, columns=("list_price",)),
            Lookup("cluster", lake.gold("dim_cluster"), on=BY_COMPUTE, at=AT, columns=("cluster_sk", "tags")),
            Lookup("entity", lake.gold("dim_entity"), on=BY_ENTITY, at=AT, columns=("entity_sk", "tags")),
            Lookup("workspace", lake.gold("dim_workspace"), on=by_workspace, columns=("workspace_sk",)),
            Lookup("sku", lake.gold("dim_sku"), on=BY_SKU, columns=("sku_sk",)),
        ],
        build=billing_usage,
        path=lake.gold("fact_billing_usage"),
        change_feed=True,
        rules=rules_of("fact_billing_usage"),
    )


def sums(table: str, lake: Lake, build: str) -> fm.Job:
    """A fact that groups the rows of the atomic one."""
    rows = FactRows("billing", lake.gold("fact_billing_usage"))
    return fact(f"gold_{table}", rows=rows, build=build, path=lake.gold(table), rules=rules_of(table))


def usage_priced_day(lake: Lake) -> fm.Job:
    by = ", ".join(("date_sk", *KEYS, *TAG_COLUMNS))
    measures = (
        f"sum(usage_quantity) as usage_quantity, cast(sum(list_cost) as {COST}) as list_cost, count(*) as records"
    )
    return sums("fact_usage_priced_day", lake, f"select {by}, {measures} from source group by {by}")


def entity_cost(lake: Lake) -> fm.Job:
    by = "date_sk, workspace_sk, entity_sk"
    measures = f"cast(sum(list_cost) as {COST}) as list_cost, count(distinct job_run_id) as runs"
    return sums("fact_entity_cost", lake, f"select {by}, {measures} from source group by {by}")


def run_cost(lake: Lake) -> fm.Job:
    by = "date_sk, workspace_sk, entity_sk, cluster_sk, job_run_id"
    measures = f"sum(usage_quantity) as usage_quantity, cast(sum(list_cost) as {COST}) as list_cost"
    build = f"select {by}, {measures} from source where job_run_id is not null group by {by}"
    return sums("fact_run_cost", lake, build)


def run_status_cost(lake: Lake) -> fm.Job:
    """What runs cost by how they ended; a run that goes on has the unknown status."""
    return fact(
        "gold_fact_run_status_cost",
        rows=FactRows("billing", lake.gold("fact_billing_usage")),
        lookups=[Lookup("runs", lake.silver("job_run_timeline"), on={"job_run_id": "run_id"}, columns=STATUS)],
        build=by_status,
        path=lake.gold("fact_run_status_cost"),
        rules=rules_of("fact_run_status_cost"),
    )


def by_status(billing: DataFrame, runs: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    ended = runs.where("result_state is not null").select("run_id", *STATUS).distinct()
    of_runs = billing.where("job_run_id is not null")
    joined = of_runs.join(ended, F.col("job_run_id") == F.col("run_id"), "left")
    cost, runs_ended = F.sum("list_cost").cast(COST).alias("list_cost"), F.countDistinct("job_run_id").alias("runs")
    return _with_status(joined).groupBy("date_sk", "workspace_sk", "run_status_sk").agg(cost, runs_ended)


def runs_finished_day(lake: Lake) -> fm.Job:
    rows = FactRows("runs", lake.silver("job_run_timeline"))
    table = "fact_runs_finished_day"
    return fact(f"gold_{table}", rows=rows, build=finished, path=lake.gold(table), rules=rules_of(table))


def finished(runs: DataFrame) -> DataFrame:
    """How many runs of a job ended on a date, how, and how long they took."""
    from pyspark.sql import functions as F

    by = ("date_sk", "workspace_id", "job_id", "run_status_sk")
    seconds = F.sum("run_duration_seconds").alias("run_duration_seconds")
    longest = F.max("run_duration_seconds").alias("longest_seconds")
    return (
        _with_status(runs.where("result_state is not null"))
        .groupBy(*by)
        .agg(F.count("*").alias("runs"), seconds, longest)
    )


def _with_status(rows: DataFrame) -> DataFrame:
    """The key of dim_run_status follows from the status, so nothing has to be looked up."""
    from pyspark.sql import functions as F

    key = F.when(F.col("result_state").isNotNull(), surrogate_key(rows, STATUS)).otherwise(F.lit(UNKNOWN))
    return rows.withColumn("run_status_sk", key)


def jobs(lake: Lake) -> list[fm.Job]:
    each = (atomic, usage_priced_day, entity_cost, run_cost, run_status_cost, runs_finished_day)
    return [build(lake) for build in each]
