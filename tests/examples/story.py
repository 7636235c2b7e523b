"""The platform example as a story: days arrive, the workflow runs, and one looks at what is on the disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.jobs.workflow import Library, Surroundings, WorkflowRun, read_workflow
from observability.arrivals import Arrivals, Rows, deliver
from observability.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.stores.contract import MarkStore

PLATFORM = Path(__file__).resolve().parents[2] / "examples" / "platform_observability"
WORKFLOW = PLATFORM / "jobs" / "daily_observability_workflow.json"
LAYERS = ("bronze", "silver", "gold")


@dataclass(frozen=True)
class Story:
    """A lake in a folder of its own."""

    lake: Lake
    spark: SparkSession
    store: MarkStore
    arrivals: Arrivals

    def arrive(self, label: str, rows: Rows) -> None:
        deliver(self.lake, label, rows)

    def run(self) -> dict[str, str]:
        """How each task of the workflow ended."""
        around = Surroundings(lambda: self.spark, self.store)
        finished = WorkflowRun(read_workflow(WORKFLOW), Library((PLATFORM,)), around).go()
        return {each.outcome.task: each.outcome.state for each in finished.ends}

    def files_of(self, fact: str) -> dict[str, tuple[tuple[str, int], ...]]:
        """By date: name and time of every data file."""
        folders = Path(self.lake.gold(fact)).glob("date_sk=*")
        return {
            folder.name: tuple((file.name, file.stat().st_mtime_ns) for file in sorted(folder.glob("*.parquet")))
            for folder in folders
        }

    def on_disk(self) -> set[str]:
        """Every file of the three layers; a commit would add one."""
        return {str(file) for layer in LAYERS for file in (self.lake.home / layer).rglob("*") if file.is_file()}
