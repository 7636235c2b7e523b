"""The crash job with tasks that wait in the middle of a write until a file is there: a writer that can be paused.

python pausing.py FOLDER [refresh]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))


from typing import TYPE_CHECKING

import floodmark as fm
from tests.crash.shop import SETTINGS, open_store, shop

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

ONE_TASK_PER_FILE = {"spark.sql.files.openCostInBytes": "0", "spark.sql.files.maxPartitionBytes": "150"}


def pausing_job(home: Path) -> fm.Job:
    """While the file `pause` names a run, the task that has a row of a second day waits for that run to go on."""

    def wait_in_the_second(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if (home / "pause").exists() and any("second" in day for day in batch.column("day").to_pylist()):
                name = (home / "pause").read_text()
                (home / f"{name}-writes").touch()
                while not (home / f"{name}-goes-on").exists():
                    time.sleep(0.05)
            yield batch

    def pausing(rows: DataFrame) -> DataFrame:
        return rows.mapInArrow(wait_in_the_second, rows.schema)

    return replace(shop(home, ["out"]), transform=pausing)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    session = fm.spark_session(SETTINGS | ONE_TASK_PER_FILE)
    pausing_job(folder).run(session, open_store(folder), full_refresh="refresh" in sys.argv)
