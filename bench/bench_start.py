"""From nothing to the first Delta commit, in seconds of CPU of all processes, against PySpark with the same jars."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from timing import compare

from floodmark.spark import sharing
from floodmark.spark.connectors import connectors
from floodmark.spark.java import find_java

if TYPE_CHECKING:
    from collections.abc import Callable

    from run import Result

ROUNDS = 5
SCHEMA = "id long, v string"
ROWS = '{"id": 1, "v": "a"}\n{"id": 2, "v": "b"}\n'
OURS = f"""
import sys, floodmark as fm
source = fm.sources.Files("in", format="jsonl", schema="{SCHEMA}", settle=0)
job = fm.Job(name="first", source=source, sinks=[fm.sinks.Delta(sys.argv[1])])
job.run(fm.spark_session({{"master": "local[2]"}}), fm.stores.open("memory"))
"""
PLAIN = f"""
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]").config("spark.driver.extraClassPath", sys.argv[2])
builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
spark = builder.config("spark.ui.enabled", "false").getOrCreate()
spark.read.schema("{SCHEMA}").json("in").write.format("delta").save(sys.argv[1])
"""


def cpu_seconds(act: Callable[[], object]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    act()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run_script(script: str, folder: Path, target: str, variables: Mapping[str, str] | None = None) -> None:
    """The JVM is waited for: it is nobody's child once its Python has ended."""
    jars = os.pathsep.join(map(str, connectors()))
    waiting = (
        f"{script}\nfrom pyspark import SparkContext\njvm = SparkContext._gateway.proc\njvm.stdin.close()\njvm.wait()\n"
    )
    environment = {**os.environ, **(variables or {})}
    command = [sys.executable, "-c", waiting, target, jars]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)


def run() -> list[Result]:
    sharing.make(find_java(), connectors())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        (folder / "in" / "rows.jsonl").write_text(ROWS)
        off = {sharing.SWITCH: "none"}
        of = "seconds of CPU"
        return [
            compare(
                "start to first Delta commit, against PySpark with the same jars",
                lambda turn: run_script(PLAIN, folder, f"plain-{turn}"),
                lambda turn: run_script(OURS, folder, f"ours-{turn}"),
                at_most=1.0,
                rounds=ROUNDS,
                of=of,
                clock=cpu_seconds,
            ),
            compare(
                "start to first Delta commit, with and without shared classes",
                lambda turn: run_script(OURS, folder, f"off-{turn}", off),
                lambda turn: run_script(OURS, folder, f"on-{turn}"),
                at_most=0.8,
                rounds=ROUNDS,
                of=of,
                clock=cpu_seconds,
            ),
        ]
