"""The crash job with a transform that waits until it is let go: a run that can be met in the middle.

python waiting.py FOLDER
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
    from pyspark.sql import DataFrame

if __name__ == "__main__":
    home = Path(sys.argv[1])

    def wait_to_be_let_go(rows: DataFrame) -> DataFrame:
        (home / "waiting").touch()
        while not (home / "go").exists():
            time.sleep(0.05)
        return rows

    session = fm.spark_session(SETTINGS)
    replace(shop(home, ["lake"]), transform=wait_to_be_let_go).run(session, open_store(home))
