"""Mills as a project names them: made in Python, and run, planned and watched like jobs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from floodmark.errors import ConfigError
from floodmark.locations import load_name
from floodmark.patience import stop_requested
from floodmark.project.kinds import Duration, Model, Name, PythonName, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from floodmark.jobs.job import Plan, Retries
    from floodmark.mill import WaterMill
    from floodmark.project.kinds import Site
    from floodmark.project.models import Project
    from floodmark.step.work import RunRequest
    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import Receipt


class MillModel(Model):
    """One mill: its streams and its function stand in Python, its marks in the project's store under this name."""

    name: Name
    python: PythonName = Field(description="module:name of a WaterMill, or of a function that gives one")
    every: Duration | None = None
    spool: Text | None = Field(default=None, description="folder where turns are frozen; beside the marks by default")

    def build(self, site: Site) -> MillJob:
        """The mill as something that runs; importing the user's module happens here."""
        from floodmark.mill import WaterMill

        named = load_name(self.python, site.folder)
        mill = named() if callable(named) and not isinstance(named, WaterMill) else named
        if not isinstance(mill, WaterMill):
            raise ConfigError(
                f"mill '{self.name}': {self.python} is {type(mill).__name__}, no WaterMill.",
                hint="name a floodmark.mill.WaterMill, or a function without arguments that gives one",
            )
        send_by_value(site.folder)
        return MillJob(self.name, mill, self.every, site.path(self.spool) if self.spool else None)


def send_by_value(folder: Path) -> None:
    """Let functions and classes of the project's own modules travel to Spark's tasks as they are.

    A task that is sent only their names would have to find modules that lie beside the project file.
    """
    from pyspark import cloudpickle

    root, installed = folder.resolve(), Path(sys.prefix).resolve()
    for module in list(sys.modules.values()):
        place = Path(getattr(module, "__file__", None) or "/").resolve()
        if place.is_relative_to(root) and not place.is_relative_to(installed):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # pyspark ships it without types


@dataclass(frozen=True)
class MillJob:
    """A mill with the name, the store and the session of its project."""

    name: str
    mill: WaterMill
    every: str | None = None
    spool: str | None = None

    @property
    def retries(self) -> Retries:
        """As a job's that says nothing of it."""
        from floodmark.jobs.job import Retries

        return Retries()

    def run_request(
        self, request: RunRequest, spark: Callable[[], SparkSession] | None = None, store: MarkStore | None = None
    ) -> Receipt:
        """Turn while there is something to do now; `full_refresh` reads every stream from its beginning first."""
        from floodmark.jobs.running import total

        self._refuse(start=request.start is not None, finish=request.finish, abandon=request.abandon)
        self.mill.use(name=self.name, spark=spark, store=store, spool=self.spool)
        if request.full_refresh:
            self.mill.reset()
        receipt = turn = self.mill.turn()
        while turn.status == "done" and not stop_requested() and not self.mill.has_stopped():
            turn = self.mill.turn()
            receipt = total(receipt, turn)
        return receipt

    def plan_request(
        self, request: RunRequest, spark: Callable[[], SparkSession] | None = None, store: MarkStore | None = None
    ) -> Plan:
        """What the next turn would do; nothing is touched."""
        from floodmark.jobs.job import Plan

        self._refuse(start=request.start is not None, full_refresh=request.full_refresh)
        self.mill.use(name=self.name, spark=spark, store=store, spool=self.spool)
        turn = self.mill.plan()
        return Plan(
            self.name,
            {name: before for name, (before, _) in turn.marks.items()},
            {name: after for name, (_, after) in turn.marks.items()},
            sum(turn.elements.values()),
            held_reason=turn.held_reason,
            open_batch=turn.open_turn,
            notes=turn.changes,
            has_work=turn.has_work,
        )

    def _refuse(self, **options: bool) -> None:
        given = [name for name, is_given in options.items() if is_given]
        if given:
            flag = {"start": "--from"}.get(given[0], f"--{given[0].replace('_', '-')}")
            raise ConfigError(
                f"mill '{self.name}' takes no {flag}: its streams have marks of their own.",
                hint="select the jobs that it is meant for; `run --full-refresh` reads all streams of a mill again",
            )


def split_selection(project: Project, select: Sequence[str]) -> tuple[list[str], list[MillModel]]:
    """What of a selection is about jobs, and the mills that it names; without one, every mill."""
    by_name = {mill.name: mill for mill in project.mills}
    if not select:
        return [], list(project.mills)
    return [word for word in select if word not in by_name], [by_name[word] for word in select if word in by_name]
