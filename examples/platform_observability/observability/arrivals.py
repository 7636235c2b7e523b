"""Makes up what a Databricks account would have in its system tables, day by day, with all their troubles.

The same seed gives the same rows. On purpose there are rows that come late, are corrected, come twice, break rules,
things that change twice in a day or go away without a word, and from the second day on a column that was not there.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

from observability.columns import arrow_schema
from observability.inventory import ACCOUNT, Inventory, Rows
from observability.lake import Lake

RUNS_A_DAY = 3
STATES = ("SUCCEEDED", "SUCCEEDED", "SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELLED")
CODES = {
    "SUCCEEDED": "SUCCESS", "FAILED": "RUN_EXECUTION_ERROR", "TIMED_OUT": "TIMEOUT", "CANCELLED": "USER_CANCELED",
}  # fmt: skip
WHOLE = ("billing.list_prices", "access.workspaces_latest", "compute.node_types")
"""Tables that are overwritten in place: a delivery is all that there is."""
ORIGIN = {"PREMIUM_JOBS_COMPUTE": "JOBS", "SERVERLESS_SQL": "SQL", "PREMIUM_DLT": "DLT"}


@dataclass(frozen=True)
class Arrivals:
    """What happens on a platform of `size` jobs; days count from 0."""

    size: int = 12
    seed: int = 7
    first: date = date(2026, 11, 2)

    @property
    def inventory(self) -> Inventory:
        return Inventory(self.size, self._midnight(0))

    def day(self, number: int) -> Rows:
        """Everything of one day: on the first day the whole inventory, later what changed in it."""
        draw, things = random.Random(f"{self.seed} day {number}"), self.inventory
        rows = things.all_of_it() if number == 0 else things.changes_of(number)
        rows |= {
            "billing.list_prices": things.prices(number),
            "access.workspaces_latest": things.workspaces(number),
            "compute.node_types": things.node_types(),
        }
        runs = [list(self._slices(run, draw)) for run in self._runs(number, draw)]
        rows["lakeflow.job_run_timeline"] = [row for run in runs for row in run]
        rows["lakeflow.job_task_run_timeline"] = [_task_slice(row) for run in runs for row in run]
        rows["compute.node_timeline"] = list(self._nodes(number, draw))
        rows["compute.warehouse_events"] = list(self._events(number))
        rows["billing.usage"] = [*self._usage_of_runs(number, runs, draw), *self._usage_of_the_rest(number, draw)]
        _spoil(rows, self._midnight(number))
        return rows

    def late(self, number: int) -> Rows:
        """Rows of a day that come with the next: one is new, one is corrected by two, one is taken back alone."""
        known = [row for row in self.day(number)["billing.usage"] if row["record_id"] and row["usage_quantity"] > 0]
        today = (self._midnight(number) + timedelta(days=1)).date()
        late = {**known[0], "record_id": f"late-{number}", "usage_quantity": Decimal(40)}
        restated = {**known[1], "usage_quantity": Decimal(25), "record_type": "RESTATEMENT"}
        rows = (late, _taken_back(known[1]), restated, _taken_back(known[2]))
        return {"billing.usage": [{**row, "ingestion_date": today} for row in rows]}

    def _midnight(self, number: int) -> datetime:
        return datetime(self.first.year, self.first.month, self.first.day, tzinfo=timezone.utc) + timedelta(days=number)

    def _runs(self, number: int, draw: random.Random) -> Iterator[dict[str, Any]]:
        """The runs of each job; the last one of a day may end after midnight."""
        for job in self.inventory.jobs:
            for place in range(RUNS_A_DAY):
                begun = self._midnight(number) + timedelta(hours=place * 11 + 1, minutes=draw.randrange(60))
                yield {
                    "account_id": ACCOUNT, "workspace_id": job["workspace_id"], "job_id": job["job_id"],
                    "run_id": f"{job['job_id']}-{number}-{place}", "period_start_time": begun,
                    "period_end_time": begun + timedelta(minutes=draw.randrange(5, 90)), "trigger_type": "CRON",
                    "run_type": "JOB_RUN", "job_parameters": {"day": {"value": str(number)}},
                }  # fmt: skip

    def _slices(self, run: dict[str, Any], draw: random.Random) -> Iterator[dict[str, Any]]:
        """A run that goes on over a clock hour has a row for each; only the last one tells how it ended."""
        begun, ended, state = run["period_start_time"], run["period_end_time"], draw.choice(STATES)
        while (hour := begun.replace(minute=0, second=0) + timedelta(hours=1)) < ended:
            yield {**run, "period_start_time": begun, "period_end_time": hour}
            begun = hour
        whole = int((ended - run["period_start_time"]).total_seconds())
        outcome = {"result_state": state, "termination_code": CODES[state], "run_duration_seconds": whole}
        yield {**run, "period_start_time": begun, **outcome}

    def _nodes(self, number: int, draw: random.Random) -> Iterator[dict[str, Any]]:
        """The first minute of each cluster's driver."""
        for cluster in self.inventory.clusters:
            begun = self._midnight(number) + timedelta(hours=1)
            yield {
                "account_id": ACCOUNT, "workspace_id": cluster["workspace_id"], "cluster_id": cluster["cluster_id"],
                "instance_id": f"i-{cluster['cluster_id']}", "start_time": begun,
                "end_time": begun + timedelta(minutes=1), "driver": True, "cpu_user_percent": draw.random() * 100,
                "disk_free_bytes_per_mount_point": {"/local_disk0": 10**11}, "node_type": cluster["driver_node_type"],
            }  # fmt: skip

    def _events(self, number: int) -> Iterator[dict[str, Any]]:
        """Each warehouse starts in the morning."""
        for each in self.inventory.warehouses:
            ids = {name: each[name] for name in ("account_id", "workspace_id", "warehouse_id")}
            at = self._midnight(number) + timedelta(hours=7)
            yield {**ids, "event_type": "RUNNING", "cluster_count": 1, "event_time": at}

    def _usage_of_runs(
        self, number: int, runs: list[list[dict[str, Any]]], draw: random.Random
    ) -> Iterator[dict[str, Any]]:
        clusters = {each["workspace_id"]: each["cluster_id"] for each in self.inventory.clusters}
        for place, (run, *_) in enumerate(runs):
            for part in range(2):
                begun = run["period_start_time"] + timedelta(minutes=2 * part)
                what = {
                    "job_id": run["job_id"], "job_run_id": run["run_id"], "cluster_id": clusters[run["workspace_id"]],
                }  # fmt: skip
                tags = {"environment": "Production "} if place % 4 == 0 else {}
                name = f"run-{number}-{place}-{part}"
                yield self._usage(name, begun, draw, "PREMIUM_JOBS_COMPUTE", run["workspace_id"], what, tags)

    def _usage_of_the_rest(self, number: int, draw: random.Random) -> Iterator[dict[str, Any]]:
        """Warehouses by the hour, pipelines four times a day, and one cost that nobody has tagged or priced."""
        for hour in range(0, 24, 3):
            at = self._midnight(number) + timedelta(hours=hour)
            for each in self.inventory.warehouses:
                what = {"warehouse_id": each["warehouse_id"]}
                name = f"wh-{each['warehouse_id']}-{number}-{hour}"
                yield self._usage(name, at, draw, "SERVERLESS_SQL", each["workspace_id"], what)
            for each in self.inventory.pipelines if hour % 6 == 0 else ():
                what = {"dlt_pipeline_id": each["pipeline_id"]}
                name = f"dlt-{each['pipeline_id']}-{number}-{hour}"
                yield self._usage(name, at, draw, "PREMIUM_DLT", each["workspace_id"], what)
        yield self._usage(f"new-{number}", self._midnight(number), draw, "SKU_NOBODY_PRICED", "ws-1", {})

    def _usage(
        self, name: str, at: datetime, draw: random.Random, sku: str, workspace: str, what: Mapping[str, str],
        tags: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        return {
            "account_id": ACCOUNT, "workspace_id": workspace, "record_id": name, "sku_name": sku, "cloud": "AWS",
            "usage_start_time": at, "usage_end_time": at + timedelta(minutes=2), "usage_date": at.date(),
            "custom_tags": dict(tags or {}), "usage_unit": "DBU",
            "usage_quantity": Decimal(draw.randrange(100_000, 20_000_000)) / 1_000_000, "usage_metadata": dict(what),
            "identity_metadata": {"run_as": "ann@example.org"}, "record_type": "ORIGINAL", "ingestion_date": at.date(),
            "billing_origin_product": ORIGIN.get(sku, "INTERACTIVE"), "usage_type": "COMPUTE_TIME",
            "product_features": {"is_serverless": sku == "SERVERLESS_SQL", "networking": None},
        }  # fmt: skip


def _taken_back(row: dict[str, Any]) -> dict[str, Any]:
    """A retraction repeats its original, with the quantity negated."""
    return {**row, "usage_quantity": -row["usage_quantity"], "record_type": "RETRACTION"}


def _task_slice(run: dict[str, Any]) -> dict[str, Any]:
    """The one task of a run, slice by slice as the run itself."""
    own = ("account_id", "workspace_id", "job_id", "period_start_time", "period_end_time")
    ended = {name: run.get(name) for name in ("result_state", "termination_code")}
    names = {"run_id": f"{run['run_id']}-main", "job_run_id": run["run_id"], "task_key": "main"}
    return {**{name: run[name] for name in own}, **names, **ended}


def _spoil(rows: Rows, midnight: datetime) -> None:
    """Rows that a rule has to catch, and one that comes twice."""
    usage, runs = rows["billing.usage"], rows["lakeflow.job_run_timeline"]
    nameless = {**usage[0], "record_id": None}
    negative = {**usage[1], "record_id": f"negative-{midnight:%d}", "usage_quantity": Decimal(-3)}
    usage += [nameless, negative, dict(usage[2])]
    backwards = {"run_id": f"backwards-{midnight:%d}", "period_start_time": midnight + timedelta(hours=2)}
    runs.append({**runs[0], **backwards, "period_end_time": midnight + timedelta(hours=1)})


def deliver(lake: Lake, rows: Rows) -> int:
    """Write the rows into the system tables of a lake, each delivery one commit; returns how many there are."""
    import pyarrow as pa
    from deltalake import write_deltalake

    for table, listed in rows.items():
        Path(lake.system(table)).parent.mkdir(parents=True, exist_ok=True)
        delivery = pa.Table.from_pylist(listed, arrow_schema(table, listed))
        mode = "overwrite" if table in WHOLE else "append"
        write_deltalake(lake.system(table), delivery, mode=mode, schema_mode="merge" if mode == "append" else None)
    return sum(map(len, rows.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", help="where the lake is (PLATFORM_HOME, else .platform)")
    parser.add_argument("--days", type=int, default=2)
    parser.add_argument("--size", type=int, default=12, help="how many jobs the platform has")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--late", type=int, metavar="DAY", help="only the late rows of this day, counted from 0")
    asked = parser.parse_args()
    arrivals, lake = Arrivals(asked.size, asked.seed), Lake.at(asked.home)
    if asked.late is not None:
        print(deliver(lake, arrivals.late(asked.late)), "late rows")
        return
    for number in range(asked.days):
        print(f"day {number}:", deliver(lake, arrivals.day(number)), "rows")


if __name__ == "__main__":
    main()
