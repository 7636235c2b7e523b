"""A large first load that is killed goes on after its last chunk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash import chunked
from tests.crash.killing import ids_in_table
from tests.sources.tables.reader import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.crash
@pytest.mark.parametrize("point", ["after_intent", "after_sink:1", "before_commit"])
def test_a_load_killed_after_its_third_chunk_delivers_every_row_once(
    spark: SparkSession, database: str, tmp_path: Path, point: str
) -> None:
    """10,000 rows in chunks of 1,000: the mark is 3000 after the kill, then 10000."""
    run(database, "create table o (id int primary key)", "insert into o select generate_series(1, 10000)")
    chunked.job(tmp_path, database).run(spark, chunked.store(tmp_path), max_rows=3000)
    program = [sys.executable, "-m", "tests.crash.chunked", str(tmp_path), database]
    root = Path(chunked.__file__).parents[2]
    killed = subprocess.run(
        program, env={**os.environ, "FLOODMARK_CRASH_AT": point}, cwd=root, capture_output=True, check=False
    )
    record = chunked.store(tmp_path).read("load")
    receipt = chunked.job(tmp_path, database).run(spark, chunked.store(tmp_path))
    assert record is not None
    assert (killed.returncode, record.marks["postgres"].value) == (-signal.SIGKILL, 3000)
    assert (receipt.rows_read, receipt.mark_after) == (7000, 10_000)
    assert ids_in_table(spark, tmp_path / "lake") == list(range(1, 10_001))
