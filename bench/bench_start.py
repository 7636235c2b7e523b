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
PLAIN_SHOP = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]").config("spark.driver.extraClassPath", sys.argv[1])
builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
spark = builder.config("spark.ui.enabled", "false").getOrCreate()
rows = spark.read.schema("id long, customer string, amount decimal(10,2), ordered_at timestamp").json("in/orders")
rows.selectExpr("*", "cast(amount * 100 as long) as cents").write.format("delta").save("lake/orders")
print(spark.read.format("delta").load("lake/orders").count())
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


def first_run(folder: Path) -> Result:
    """`floodmark init shop && floodmark run`, to its summary, in seconds on the clock."""
    jars = os.pathsep.join(map(str, connectors()))

    def plain(turn: int) -> None:
        floodmark("init", f"plain-shop-{turn}", folder=folder)
        command = [sys.executable, "-c", PLAIN_SHOP, jars]
        subprocess.run(command, cwd=folder / f"plain-shop-{turn}", check=True, capture_output=True)

    def ours(turn: int) -> None:
        floodmark("init", f"shop-{turn}", folder=folder)
        floodmark("run", folder=folder / f"shop-{turn}")

    of = "init and run of a new project, a PySpark script over the same files (and the same init) as reference"
    return compare("floodmark init shop && floodmark run", plain, ours, at_most=1.3, rounds=ROUNDS, of=of)


def floodmark(*words: str, folder: Path) -> None:
    command = [sys.executable, "-m", "floodmark", *words]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def run() -> list[Result]:
    sharing.make(find_java(), connectors())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        (folder / "in" / "rows.jsonl").write_text(ROWS)
        off = {sharing.SWITCH: "none"}
        of = "seconds of CPU"
        return [
            first_run(folder),
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
