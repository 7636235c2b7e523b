"""The things of a made-up platform: workspaces, jobs, pipelines, clusters, warehouses, node types, prices."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

LINES = ("Retail", "Banking", "Insurance")
PRICES = {"PREMIUM_JOBS_COMPUTE": "0.150000", "SERVERLESS_SQL": "0.700000", "PREMIUM_DLT": "0.360000"}
NODE_TYPES = {"m5.xlarge": (4, 16_384, 0), "r5.2xlarge": (8, 65_536, 0), "g4dn.xlarge": (4, 16_384, 1)}


@dataclass(frozen=True)
class Inventory:
    """What a platform of `size` jobs has, as it was on its first day."""

    size: int
    begin: datetime

    @property
    def workspaces(self) -> list[dict[str, Any]]:
        return [
            {
                "account_id": "acc-1", "workspace_id": f"ws-{number}", "workspace_name": f"platform-{number}",
                "workspace_url": f"https://platform-{number}.example.org", "status": "RUNNING",
                "create_time": self._before(90), "change_time": self._before(90),
            }
            for number in (1, 2, 3)
        ]  # fmt: skip

    @property
    def jobs(self) -> list[dict[str, Any]]:
        return [
            {
                "workspace_id": f"ws-{number % 3 + 1}", "job_id": f"job-{number}", "name": f"load_{number}",
                "creator_id": "ann", "tags": self._tags(number), "change_time": self._before(60), "delete_time": None,
            }
            for number in range(self.size)
        ]  # fmt: skip

    @property
    def pipelines(self) -> list[dict[str, Any]]:
        return [
            {
                "workspace_id": f"ws-{number % 3 + 1}", "pipeline_id": f"pipe-{number}", "pipeline_type": "ETL",
                "name": f"stream_{number}", "created_by": "bob",
                "tags": {"project": LINES[number % 3], "job_pipeline": f"stream_{number}"},
                "change_time": self._before(60), "delete_time": None,
            }
            for number in range(max(2, self.size // 4))
        ]  # fmt: skip

    @property
    def clusters(self) -> list[dict[str, Any]]:
        return [
            {
                "cluster_id": f"cl-{number}", "workspace_id": f"ws-{number % 3 + 1}", "cluster_name": f"etl-{number}",
                "spark_version": "16.4.x-scala2.13" if number % 2 else "13.3.x-scala2.12", "cluster_source": "JOB",
                "node_type_id": list(NODE_TYPES)[number % 3], "driver_node_type_id": "m5.xlarge", "creator": "ann",
                "policy_id": None if number % 3 == 2 else "standard",
                "tags": {"cluster_name": f"etl-{number}", "env": "staging", "cost_center": f"cc-{number % 2}"},
                "created_time": self._before(50), "updated_time": self._before(40), "delete_time": None,
            }
            for number in range(3)
        ]  # fmt: skip

    @property
    def warehouses(self) -> list[dict[str, Any]]:
        return [
            {
                "warehouse_id": f"wh-{number}", "workspace_id": f"ws-{number + 1}", "warehouse_name": f"bi-{number}",
                "warehouse_type": "PRO", "warehouse_size": "SMALL", "auto_stop_minutes": 10,
                "tags": {"project": "Retail", "sub_project": "bi", "env": "prod"},
                "change_time": self._before(30), "delete_time": None,
            }
            for number in range(2)
        ]  # fmt: skip

    @property
    def node_types(self) -> list[dict[str, Any]]:
        return [
            {
                "node_type": name, "core_count": cores, "memory_mb": memory, "gpu_count": gpus,
                "change_time": self._before(90),
            }
            for name, (cores, memory, gpus) in NODE_TYPES.items()
        ]  # fmt: skip

    @property
    def prices(self) -> list[dict[str, Any]]:
        return [
            {
                "sku_name": sku, "cloud": "AWS", "currency_code": "USD", "usage_unit": "DBU",
                "list_price": Decimal(price), "price_start_time": self._before(60),
            }
            for sku, price in PRICES.items()
        ]  # fmt: skip

    def all_of_it(self) -> dict[str, list[dict[str, Any]]]:
        """The first delivery."""
        return {
            "access_workspaces": self.workspaces, "billing_list_prices": self.prices, "lakeflow_jobs": self.jobs,
            "lakeflow_pipelines": self.pipelines, "compute_clusters": self.clusters,
            "compute_warehouses": self.warehouses, "compute_node_types": self.node_types,
        }  # fmt: skip

    def changes_of(self, number: int) -> dict[str, list[dict[str, Any]]]:
        """A later day: a job is moved to another department, one is deleted, a price rises, a column is new."""
        noon = self.begin + timedelta(days=number, hours=12)
        moved = {**self.jobs[0], "tags": {**self.jobs[0]["tags"], "sub_project": "moved"}, "change_time": noon}
        deleted = {**self.jobs[-1], "change_time": noon, "delete_time": noon}
        dearer = {**self.prices[1], "list_price": Decimal("0.750000"), "price_start_time": noon}
        bigger = {**self.clusters[1], "node_type_id": "g4dn.xlarge", "updated_time": noon}
        channelled = {**self.warehouses[0], "warehouse_channel": "PREVIEW", "change_time": noon}
        return {
            "lakeflow_jobs": [moved, deleted], "billing_list_prices": [dearer], "compute_clusters": [bigger],
            "compute_warehouses": [channelled],
        }  # fmt: skip

    def _tags(self, number: int) -> dict[str, str]:
        """Two of three jobs say whom they work for."""
        if number % 3 == 2:
            return {}
        return {"project": LINES[number % 3], "sub_project": f"team-{number % 2}", "data_product": f"report_{number}"}

    def _before(self, days: int) -> datetime:
        return self.begin - timedelta(days=days)
