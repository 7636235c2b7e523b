"""Starting the crash job in a process of its own, having it killed, and reading back what every sink holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.crash import shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = Path(shop.__file__)


def start(home: Path, sinks: Sequence[str] = shop.SINKS, **environment: str) -> subprocess.Popen[bytes]:
    """One run of the job in a process group of its own, so that a kill can take its JVM along, or not."""
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(home), ",".join(sinks)],
        env={**os.environ, **environment},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def run_until_killed(home: Path, point: str, sinks: Sequence[str] = shop.SINKS) -> int:
    """The return code of a run that was to die at the point; its JVM may live on for a moment."""
    return start(home, sinks, FLOODMARK_CRASH_AT=point).wait(120)


def ids_in_table(spark: SparkSession, table: Path) -> list[int]:
    return sorted(row.id for row in spark.read.format("delta").load(str(table)).select("id").collect())


def ids_in_files(folder: Path) -> list[int]:
    parts = folder.glob("batch=*/part-*")
    return sorted(json.loads(line)["id"] for part in parts for line in part.read_text().splitlines())


def held(spark: SparkSession, home: Path, sinks: Sequence[str] = shop.SINKS) -> dict[str, list[int]]:
    """The ids that each sink holds, read back from the sink itself."""
    return {name: ids_in_files(home / name) if name == "out" else ids_in_table(spark, home / name) for name in sinks}
