"""The platform example, run from arriving rows to gold as its workflow file says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.jobs.workflow import Library, Surroundings, WorkflowRun, read_workflow
from observability.arrivals import Arrivals, deliver
from observability.inventory import Rows
from observability.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.stores.contract import MarkStore

PLATFORM = Path(__file__).resolve().parents[2] / "examples" / "platform_observability"
WORKFLOW = PLATFORM / "jobs" / "daily_observability_workflow.json"
LAYERS = ("bronze", "silver", "gold", "views")


@dataclass(frozen=True)
class Story:
    """A lake in a folder of its own."""

    lake: Lake
    spark: SparkSession
    store: MarkStore
    arrivals: Arrivals

    def arrive(self, rows: Rows) -> None:
        deliver(self.lake, rows)

    def run(self) -> dict[str, str]:
        """How each task of the workflow ended."""
        around = Surroundings(lambda: self.spark, self.store)
        given = {"home": self.lake.home, "schema": self.lake.schema}
        run = WorkflowRun(read_workflow(WORKFLOW), Library((PLATFORM,)), around, given=given)
        return {each.outcome.task: each.outcome.state for each in run.go().ends}

    def files_of(self, fact: str) -> dict[str, tuple[tuple[str, int], ...]]:
        """By date: name and time of every data file."""
        folders = Path(self.lake.gold(fact)).glob("date_sk=*")
        return {
            folder.name: tuple((file.name, file.stat().st_mtime_ns) for file in sorted(folder.glob("*.parquet")))
            for folder in folders
        }

    def on_disk(self) -> set[str]:
        """Every file of the three layers and of the views; a commit would add one."""
        return {str(file) for layer in LAYERS for file in Path(self.lake.home, layer).rglob("*") if file.is_file()}
