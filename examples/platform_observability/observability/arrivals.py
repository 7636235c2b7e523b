"""Makes up what a Databricks account would deliver: files of ten system tables, day by day, with all their troubles.

The same seed gives the same rows. On purpose there are rows that come late, change, go away, come twice, break rules,
and from the second day on a column that was not there before.
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
from observability.inventory import Inventory
from observability.lake import Lake

Rows = dict[str, list[dict[str, Any]]]
RUNS_A_DAY = 3
STATES = ("SUCCEEDED", "SUCCEEDED", "SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELLED")
CODES = {
    "SUCCEEDED": "SUCCESS", "FAILED": "RUN_EXECUTION_ERROR", "TIMED_OUT": "TIMEOUT", "CANCELLED": "USER_CANCELED",
}  # fmt: skip


@dataclass(frozen=True)
class Arrivals:
    """What arrives at a platform of `size` jobs; days count from 0."""

    size: int = 12
    seed: int = 7
    first: date = date(2026, 11, 2)

    @property
    def inventory(self) -> Inventory:
        return Inventory(self.size, self._midnight(0))

    def day(self, number: int) -> Rows:
        """Everything of one day: on the first day the whole inventory, later what changed in it."""
        draw = random.Random(f"{self.seed} day {number}")
        rows = self.inventory.all_of_it() if number == 0 else self.inventory.changes_of(number)
        runs = list(self._runs(number, draw))
        rows["lakeflow_job_run_timeline"] = [run for run, _ in runs]
        rows["lakeflow_job_task_run_timeline"] = [task for _, task in runs]
        rows["billing_usage"] = [*self._usage_of_runs(number, runs, draw), *self._usage_of_the_rest(number, draw)]
        _spoil(rows, self._midnight(number))
        return rows

    def late(self, number: int) -> Rows:
        """Rows of a day that come after it was delivered: one is new, one is corrected, one is taken back."""
        known = [row for row in self.day(number)["billing_usage"] if row["record_id"] and row["usage_quantity"] > 0]
        later = self._midnight(number) + timedelta(days=3)
        new = {**known[0], "record_id": f"late-{number}", "usage_quantity": Decimal("40.000000")}
        corrected = {**known[1], "usage_quantity": Decimal("25.000000"), "record_type": "RESTATEMENT"}
        taken_back = {**known[2], "record_type": "RETRACTION"}
        return {"billing_usage": [{**row, "change_time": later} for row in (new, corrected, taken_back)]}

    def _midnight(self, number: int) -> datetime:
        return datetime(self.first.year, self.first.month, self.first.day, tzinfo=timezone.utc) + timedelta(days=number)

    def _runs(self, number: int, draw: random.Random) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """The runs of each job, each with its one task; the last one of a day ends after midnight."""
        for job in self.inventory.jobs:
            for place in range(RUNS_A_DAY):
                begun = self._midnight(number) + timedelta(hours=place * 11 + 1, minutes=draw.randrange(60))
                ended = begun + timedelta(minutes=draw.randrange(5, 90))
                state = draw.choice(STATES)
                run = {
                    "workspace_id": job["workspace_id"], "job_id": job["job_id"],
                    "run_id": f"{job['job_id']}-{number}-{place}",
                    "period_start_time": begun, "period_end_time": ended, "trigger_type": "CRON", "run_type": "JOB_RUN",
                    "result_state": state, "termination_code": CODES[state],
                    "run_duration_seconds": int((ended - begun).total_seconds()),
                }  # fmt: skip
                task = {name: run[name] for name in run if name not in ("trigger_type", "run_type")}
                yield run, {**task, "run_id": f"{run['run_id']}-main", "job_run_id": run["run_id"], "task_key": "main"}

    def _usage_of_runs(
        self, number: int, runs: list[tuple[dict[str, Any], dict[str, Any]]], draw: random.Random
    ) -> Iterator[dict[str, Any]]:
        clusters = {each["workspace_id"]: each["cluster_id"] for each in self.inventory.clusters}
        for place, (run, _) in enumerate(runs):
            for part in range(2):
                begun = run["period_start_time"] + timedelta(minutes=2 * part)
                who = {
                    "job_id": run["job_id"],
                    "job_run_id": run["run_id"],
                    "cluster_id": clusters[run["workspace_id"]],
                }
                tags = {"environment": "Production "} if place % 4 == 0 else {}
                usage = self._usage(f"run-{number}-{place}-{part}", begun, draw, "PREMIUM_JOBS_COMPUTE", tags)
                yield {**usage, **who, "workspace_id": run["workspace_id"]}

    def _usage_of_the_rest(self, number: int, draw: random.Random) -> Iterator[dict[str, Any]]:
        """Warehouses by the hour, pipelines four times a day, and one cost that nobody has tagged or priced."""
        for hour in range(0, 24, 3):
            at = self._midnight(number) + timedelta(hours=hour)
            for each in self.inventory.warehouses:
                usage = self._usage(f"wh-{each['warehouse_id']}-{number}-{hour}", at, draw, "SERVERLESS_SQL", {})
                yield {**usage, "workspace_id": each["workspace_id"], "warehouse_id": each["warehouse_id"]}
            for each in self.inventory.pipelines if hour % 6 == 0 else ():
                usage = self._usage(f"dlt-{each['pipeline_id']}-{number}-{hour}", at, draw, "PREMIUM_DLT", {})
                yield {**usage, "workspace_id": each["workspace_id"], "pipeline_id": each["pipeline_id"]}
        yield self._usage(f"new-{number}", self._midnight(number), draw, "SKU_NOBODY_PRICED", {})

    def _usage(self, name: str, at: datetime, draw: random.Random, sku: str, tags: Mapping[str, str]) -> dict[str, Any]:
        return {
            "record_id": name, "workspace_id": "ws-1", "sku_name": sku, "cloud": "AWS", "usage_unit": "DBU",
            "usage_quantity": Decimal(draw.randrange(100_000, 20_000_000)) / 1_000_000,
            "usage_start_time": at, "usage_end_time": at + timedelta(minutes=2), "custom_tags": dict(tags),
            "cluster_id": None, "warehouse_id": None, "job_id": None, "job_run_id": None, "pipeline_id": None,
            "record_type": "ORIGINAL", "change_time": at + timedelta(hours=1),
        }  # fmt: skip


def _spoil(rows: Rows, midnight: datetime) -> None:
    """Rows that a rule has to catch, and one that comes twice."""
    usage, runs = rows["billing_usage"], rows["lakeflow_job_run_timeline"]
    nameless = {**usage[0], "record_id": None}
    negative = {**usage[1], "record_id": f"negative-{midnight:%d}", "usage_quantity": Decimal("-3.000000")}
    usage += [nameless, negative, dict(usage[2])]
    runs.append({**runs[0], "run_id": f"backwards-{midnight:%d}", "period_end_time": midnight - timedelta(days=1)})


def deliver(lake: Lake, label: str, rows: Rows) -> int:
    """One Parquet file per table, put in place in one act, as an upload should; returns how many rows there are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for table, listed in rows.items():
        folder = Path(lake.incoming(table))
        folder.mkdir(parents=True, exist_ok=True)
        hidden = folder / f".{label}.parquet"
        pq.write_table(pa.Table.from_pylist(listed, arrow_schema(table, listed)), hidden)
        hidden.rename(folder / f"{label}.parquet")
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
        print(deliver(lake, f"late-{asked.late}", arrivals.late(asked.late)), "late rows")
        return
    for number in range(asked.days):
        print(f"day {number}:", deliver(lake, f"day-{number}", arrivals.day(number)), "rows")


if __name__ == "__main__":
    main()
