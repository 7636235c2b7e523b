"""The system tables that the platform reads: what makes a row of each the same, and how far each was read.

They are shared tables: they have no version that could be a mark, and but for usage no time of arrival. So each is read
by a column that grows, with an overlap for what comes late, or as a whole where no column tells of a change.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import floodmark as fm
from floodmark.medallion import name_tables
from observability.columns import COLUMNS
from observability.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OVERLAP = "1d"
"""Usage arrives by the day and takes up to 12 hours; what else is late is so by hours."""


@dataclass(frozen=True)
class SystemTable:
    """One table: its name in the catalog, what makes two rows the same row, and two rows the same thing.

    `cursor` is the column that grows; without it the table is compared as a whole, and `absent` says what it means
    that a key is gone: retention takes rows away whose things are still there.
    """

    name: str
    thing: tuple[str, ...]
    cursor: str | None = None
    absent: Literal["keep", "delete"] = "keep"

    @property
    def bronze(self) -> str:
        """What it is called in bronze, without `brz_`: the view of its latest rows is ours, whatever it shows."""
        return self.name.replace(".", "_").removesuffix("_latest")

    @property
    def key(self) -> tuple[str, ...]:
        """What tells two rows apart; a new version of a thing is another row."""
        return tuple(dict.fromkeys((*self.thing, *((self.cursor,) if self.cursor else ()))))

    def source(self, lake: Lake) -> fm.sources.Table:
        """The rows that are new, from the catalog of this platform: `system` on Databricks."""
        name = f"{lake.catalog}.{self.name}"
        if self.cursor is None:
            return fm.sources.Table(name, snapshot=True, key=self.thing, absent=self.absent)
        cursor = fm.sources.Cursor(self.cursor, on_null="exclude", safety={"lag": OVERLAP})
        return fm.sources.Table(name, cursor, key=self.key)

    def bronze_query(self) -> str:
        """As it came, with a number that grows from batch to batch, and within one with each version of a thing."""
        batch = "unix_millis(:batch_time) * 1048576"
        if self.cursor is None:
            return f"select *, {batch} as _ingest_version from source"
        rank = f"row_number() over (partition by {', '.join(self.thing)} order by {self.cursor})"
        return f"select *, {batch} + {rank} as _ingest_version from source"


PRICE = ("account_id", "cloud", "sku_name", "usage_unit", "currency_code", "price_start_time")
SLICE = ("workspace_id", "run_id", "period_start_time")

SYSTEM = (
    SystemTable("billing.usage", ("record_id", "record_type"), "ingestion_date"),
    SystemTable("billing.list_prices", PRICE),
    SystemTable("access.workspaces_latest", ("workspace_id",), absent="delete"),
    SystemTable("lakeflow.jobs", ("workspace_id", "job_id"), "change_time"),
    SystemTable("lakeflow.job_tasks", ("workspace_id", "job_id", "task_key"), "change_time"),
    SystemTable("lakeflow.pipelines", ("workspace_id", "pipeline_id"), "change_time"),
    SystemTable("lakeflow.job_run_timeline", SLICE, "period_end_time"),
    SystemTable("lakeflow.job_task_run_timeline", SLICE, "period_end_time"),
    SystemTable("compute.clusters", ("workspace_id", "cluster_id"), "change_time"),
    SystemTable("compute.node_types", ("account_id", "node_type")),
    SystemTable("compute.node_timeline", ("workspace_id", "cluster_id", "instance_id", "start_time"), "end_time"),
    SystemTable("compute.warehouses", ("workspace_id", "warehouse_id"), "change_time"),
    SystemTable("compute.warehouse_events", ("workspace_id", "warehouse_id", "event_type", "event_time"), "event_time"),
)
BY_BRONZE_NAME = {table.bronze: table for table in SYSTEM}


def attach(spark: SparkSession, lake: Lake) -> None:
    """Let this session's catalog know the made-up system tables of a lake; a lake that has none has real ones."""
    places = {name: Path(lake.system(name)) for name in COLUMNS}
    name_tables(spark, {f"{lake.catalog}.{name}": str(path) for name, path in places.items() if path.is_dir()})
