"""kill -9 of the whole process group at random moments, many times, while rows keep arriving."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash import shop
from tests.crash.killing import held, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS, ROWS_PER_FILE = 32, 50


@pytest.mark.crash
@pytest.mark.timeout(1800)
def test_thirty_random_kills_lose_and_double_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever the moment, the next run takes over at once and the sinks agree in the end."""
    draw = random.Random(int(os.environ.get("FLOODMARK_SEED", "20261115")))
    for kill in range(KILLS):
        shop.deliver(tmp_path, f"day{kill:03d}", range(kill * ROWS_PER_FILE, (kill + 1) * ROWS_PER_FILE))
        process = start(tmp_path)
        time.sleep(draw.uniform(3.0, 14.0))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
    shop.shop(tmp_path).run(spark, shop.open_store(tmp_path))
    assert held(spark, tmp_path) == {name: list(range(KILLS * ROWS_PER_FILE)) for name in shop.SINKS}
