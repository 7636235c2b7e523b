"""The things of a made-up platform: workspaces, jobs, pipelines, clusters, warehouses, node types, prices."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

ACCOUNT = "acc-1"
LINES = ("Retail", "Banking", "Insurance")
PRICES = {"PREMIUM_JOBS_COMPUTE": "0.15", "SERVERLESS_SQL": "0.70", "PREMIUM_DLT": "0.36"}
DEARER = ("SERVERLESS_SQL", "0.75")
NODE_TYPES = {"m5.xlarge": (4.0, 16_384, 0), "r5.2xlarge": (8.0, 65_536, 0), "g4dn.xlarge": (4.0, 16_384, 1)}

Rows = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Inventory:
    """What a platform of `size` jobs has, as it was on its first day. Whatever a row does not name is null."""

    size: int
    begin: datetime

    @property
    def jobs(self) -> list[dict[str, Any]]:
        return [
            {
                "account_id": ACCOUNT, "workspace_id": f"ws-{number % 3 + 1}", "job_id": f"job-{number}",
                "name": f"load_{number}", "creator_id": "4711", "creator_user_name": "ann@example.org",
                "tags": self._tags(number), "run_as": "4711", "run_as_user_name": "ann@example.org",
                "change_time": self._before(60), "create_time": self._before(60), "paused": False,
                "trigger": {"schedule": {"quartz_cron_expression": "0 0 1 * * ?", "timezone_id": "UTC"}},
                "trigger_type": "SCHEDULE", "timeout_seconds": 7200, "description": "",
                "health_rules": [{"metric": "RUN_DURATION_SECONDS", "operator": "GREATER_THAN", "value": 3600}],
            }
            for number in range(self.size)
        ]  # fmt: skip

    @property
    def tasks(self) -> list[dict[str, Any]]:
        return [
            {
                "account_id": ACCOUNT, "workspace_id": job["workspace_id"], "job_id": job["job_id"], "task_key": "main",
                "depends_on_keys": [], "change_time": job["change_time"],
            }
            for job in self.jobs
        ]  # fmt: skip

    @property
    def pipelines(self) -> list[dict[str, Any]]:
        return [
            {
                "account_id": ACCOUNT, "workspace_id": f"ws-{number % 3 + 1}", "pipeline_id": f"pipe-{number}",
                "pipeline_type": "ETL_PIPELINE", "name": f"stream_{number}", "created_by": "bob@example.org",
                "run_as": "bob@example.org", "tags": {"project": LINES[number % 3], "job_pipeline": f"stream_{number}"},
                "settings": {"photon": True, "serverless": False, "edition": "ADVANCED", "channel": "CURRENT"},
                "configuration": {"pipelines.trigger": "daily"}, "change_time": self._before(60),
                "create_time": self._before(60),
            }
            for number in range(max(2, self.size // 4))
        ]  # fmt: skip

    @property
    def clusters(self) -> list[dict[str, Any]]:
        return [
            {
                "account_id": ACCOUNT, "workspace_id": f"ws-{number % 3 + 1}", "cluster_id": f"cl-{number}",
                "cluster_name": f"etl-{number}", "owned_by": "ann@example.org", "create_time": self._before(50),
                "driver_node_type": "m5.xlarge", "worker_node_type": list(NODE_TYPES)[number % 3], "worker_count": 4,
                "auto_termination_minutes": 30, "enable_elastic_disk": True, "cluster_source": "JOB",
                "tags": {"cluster_name": f"etl-{number}", "env": "staging", "cost_center": f"cc-{number % 2}"},
                "aws_attributes": {"availability": "SPOT_WITH_FALLBACK", "zone_id": "auto", "first_on_demand": 1},
                "dbr_version": "16.4.x-scala2.13" if number % 2 else "13.3.x-scala2.12",
                "change_time": self._before(40), "change_date": self._before(40).date(),
                "data_security_mode": "SINGLE_USER", "policy_id": None if number % 3 == 2 else "standard",
            }
            for number in range(3)
        ]  # fmt: skip

    @property
    def warehouses(self) -> list[dict[str, Any]]:
        return [
            {
                "account_id": ACCOUNT, "workspace_id": f"ws-{number + 1}", "warehouse_id": f"wh-{number}",
                "warehouse_name": f"bi-{number}", "warehouse_type": "PRO", "warehouse_channel": "CURRENT",
                "warehouse_size": "SMALL", "min_clusters": 1, "max_clusters": 2, "auto_stop_minutes": 10,
                "tags": {"project": "Retail", "sub_project": "bi", "env": "prod"}, "change_time": self._before(30),
            }
            for number in range(2)
        ]  # fmt: skip

    def workspaces(self, day: int) -> list[dict[str, Any]]:
        """Those that there are on a day: the last one is cancelled on the second day, and no row tells of it."""
        return [
            {
                "account_id": ACCOUNT, "workspace_id": f"ws-{number}", "workspace_name": f"platform-{number}",
                "workspace_url": f"https://platform-{number}.example.org", "create_time": self._before(90),
                "status": "RUNNING",
            }
            for number in ((1, 2, 3, 4) if day == 0 else (1, 2, 3))
        ]  # fmt: skip

    def node_types(self) -> list[dict[str, Any]]:
        return [
            {"account_id": ACCOUNT, "node_type": name, "core_count": cores, "memory_mb": memory, "gpu_count": gpus}
            for name, (cores, memory, gpus) in NODE_TYPES.items()
        ]

    def prices(self, day: int) -> list[dict[str, Any]]:
        """All prices as they stand on a day: from the second on one has risen at noon, and the old one is closed."""
        first = [self._price(sku, price, self._before(60)) for sku, price in PRICES.items()]
        if day == 0:
            return first
        noon, (sku, price) = self.begin + timedelta(days=1, hours=12), DEARER
        closed = [{**each, "price_end_time": noon} if each["sku_name"] == sku else each for each in first]
        return [*closed, self._price(sku, price, noon)]

    def all_of_it(self) -> Rows:
        """The first delivery of what has versions."""
        return {
            "lakeflow.jobs": self.jobs, "lakeflow.job_tasks": self.tasks, "lakeflow.pipelines": self.pipelines,
            "compute.clusters": self.clusters, "compute.warehouses": self.warehouses,
        }  # fmt: skip

    def changes_of(self, day: int) -> Rows:
        """A later day: a job is renamed and moved in two steps, one is deleted, a cluster grows, a column is new."""
        noon = self.begin + timedelta(days=day, hours=12)
        renamed = {**self.jobs[0], "name": "load_first", "change_time": noon - timedelta(hours=1)}
        moved = {**renamed, "tags": {**self.jobs[0]["tags"], "sub_project": "moved"}, "change_time": noon}
        deleted = {**self.jobs[-1], "change_time": noon, "delete_time": noon}
        bigger = {**self.clusters[1], "worker_node_type": "g4dn.xlarge", "change_time": noon}
        claimed = {**self.warehouses[0], "warehouse_channel": "PREVIEW", "created_by": "bob", "change_time": noon}
        return {
            "lakeflow.jobs": [moved, renamed, deleted], "compute.clusters": [{**bigger, "change_date": noon.date()}],
            "compute.warehouses": [claimed],
        }  # fmt: skip

    def _price(self, sku: str, price: str, begun: datetime) -> dict[str, Any]:
        amount = Decimal(price)
        pricing = {"default": amount, "promotional": {"default": amount}, "effective_list": {"default": amount}}
        return {
            "account_id": ACCOUNT, "price_start_time": begun, "sku_name": sku, "cloud": "AWS", "currency_code": "USD",
            "usage_unit": "DBU", "pricing": pricing,
        }  # fmt: skip

    def _tags(self, number: int) -> dict[str, str]:
        """Two of three jobs say whom they work for."""
        if number % 3 == 2:
            return {}
        return {"project": LINES[number % 3], "sub_project": f"team-{number % 2}", "data_product": f"report_{number}"}

    def _before(self, days: int) -> datetime:
        return self.begin - timedelta(days=days)
