"""The settings of a session: ours for a quiet local one with Delta, and the user's on top."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.spark.python_path import own_folders

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
SPARK_LOG = "FLOODMARK_SPARK_LOG"

UNBOUNDED = str(2**31 - 1)
"""With any lower bound Spark asks after every row how large its Arrow batch has become: half of the way to Python."""

_LISTS = {  # settings that hold several values: ours and the user's both count
    "spark.driver.extraClassPath": os.pathsep,
    "spark.driver.extraJavaOptions": " ",
    "spark.executorEnv.PYTHONPATH": os.pathsep,
    "spark.jars": ",",
    "spark.sql.extensions": ",",
}


def full_names(settings: Mapping[str, str]) -> dict[str, str]:
    """The user's settings; the `spark.` in front of a name may be left out."""
    return {name if name.startswith("spark.") else f"spark.{name}": str(value) for name, value in settings.items()}


def is_local(master: str) -> bool:
    """Whether driver and executors are one JVM on this machine."""
    return master == "local" or master.startswith("local[")


def session_settings(chosen: Mapping[str, str], jars: Sequence[Path]) -> dict[str, str]:
    """Everything a new session is started with; what the user chose wins."""
    master = chosen.get("spark.master", "local[*]")
    ours = {"spark.master": master} | (_local(master) | _modules() | _call_sites() if is_local(master) else {})
    if jars:  # spark.jars would copy every jar at each start, so a local driver has them on its class path
        ours |= _delta(jars, "spark.driver.extraClassPath" if is_local(master) else "spark.jars")
    both = {name: _LISTS[name].join([ours[name], chosen[name]]) for name in _LISTS if name in ours and name in chosen}
    return ours | dict(chosen) | both


def _delta(jars: Sequence[Path], place: str) -> dict[str, str]:
    return {
        place: _LISTS[place].join(map(str, jars)),
        "spark.sql.extensions": DELTA_EXTENSION,
        "spark.sql.catalog.spark_catalog": DELTA_CATALOG,
    }


def _local(master: str) -> dict[str, str]:
    warehouse = Path(tempfile.gettempdir()) / f"floodmark-warehouse-{os.getpid()}"  # made only when a table needs it
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(_cores(master)),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": warehouse.as_uri(),
        "spark.sql.execution.arrow.maxBytesPerBatch": UNBOUNDED,
        "spark.sql.inMemoryColumnarStorage.compressed": "false",  # what a turn keeps is read once, and soon
        "spark.databricks.delta.snapshotPartitions": "1",  # one task knows all files of what one machine holds
        # Figures that nobody reads, counted anew at every commit.
        "spark.databricks.delta.fileSizeHistogramMetrics.enabled": "false",
        "spark.databricks.delta.checksumDeletedRecordCountsHistogramMetrics.enabled": "false",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",  # else one task per listed file: seconds
    }


def _modules() -> dict[str, str]:
    """What Spark's Python workers import beside what is installed: they know nothing of a script's folder."""
    folders = own_folders()
    return {"spark.executorEnv.PYTHONPATH": os.pathsep.join(folders)} if folders else {}


def _call_sites() -> dict[str, str]:
    """Spark notes the line of Python behind every operator on columns, in nearly as many calls of the JVM as all the
    rest; it is met in the whole text of an error only, so who wants to read that gets it."""
    wanted = str(SPARK_LOG in os.environ).lower()
    return dict.fromkeys(
        ("spark.python.sql.dataFrameDebugging.enabled", "spark.sql.dataFrameQueryContext.enabled"), wanted
    )


def _cores(master: str) -> int:
    named = master.removeprefix("local").strip("[]").split(",")[0] or "1"
    return int(named) if named.isdigit() else os.cpu_count() or 2
