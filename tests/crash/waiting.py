"""The crash job with a transform that waits until it is let go: a run that can be met in the middle.

python waiting.py FOLDER [inside]     waits before its write, or inside it
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))


from typing import TYPE_CHECKING

import floodmark as fm
from tests.crash.shop import SETTINGS, open_store, shop

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

if __name__ == "__main__":
    home = Path(sys.argv[1])

    def wait() -> None:
        (home / "waiting").touch()
        while not (home / "go").exists():
            time.sleep(0.05)

    def wait_before(rows: DataFrame) -> DataFrame:
        wait()
        return rows

    def wait_inside(rows: DataFrame) -> DataFrame:
        def wait_with_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                wait()
                yield batch

        return rows.mapInArrow(wait_with_rows, rows.schema)

    session, transform = fm.spark_session(SETTINGS), wait_inside if "inside" in sys.argv else wait_before
    replace(shop(home, ["lake"]), transform=transform).run(session, open_store(home))
