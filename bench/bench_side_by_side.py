"""Eight independent jobs of a few rows each: four at once against one after the other, in one session."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from timing import compare

import floodmark as fm
from floodmark.jobs.running import Runner
from floodmark.jobs.side_by_side import SideBySide

if TYPE_CHECKING:
    from run import Result

JOBS, AT_ONCE = 8, 4


def run(jobs: int = JOBS) -> list[Result]:
    spark = fm.spark_session({"spark.master": "local[2]"})
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        for number in range(jobs):
            (home / f"in-{number}").mkdir()
            (home / f"in-{number}" / "rows.jsonl").write_text(f'{{"id": {number}}}\n')

        def build(turn: int, at_once: int) -> None:
            target = home / f"{at_once}-{turn}"
            made = [
                fm.Job(
                    name=f"job-{number}",
                    source=fm.sources.Files(str(home / f"in-{number}"), schema="id long", settle=0),
                    sinks=[fm.sinks.Delta(str(target / str(number)))],
                )
                for number in range(jobs)
            ]
            runner = Runner(fm.stores.open(f"sqlite:///{at_once}-{turn}.db", folder=home), lambda: spark)
            outcomes = list(SideBySide(runner, lambda _: False, at_once).run(made))
            assert all(outcome.receipt.status == "done" for outcome in outcomes), outcomes

        return [
            compare(
                f"{jobs} jobs of one row, {AT_ONCE} at once",
                lambda turn: build(turn, 1),
                lambda turn: build(turn, AT_ONCE),
                at_most=0.75,
                rounds=3,
                of="one after the other",
            )
        ]
