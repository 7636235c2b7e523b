"""Several processes commit to one Delta table on a local disk at the same time, each in a container of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

BATCHES = 12
NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
SPARK = """
import sys
from datetime import datetime, timezone
from floodmark.sinks import Delta
from floodmark.sinks.contract import Batch
from floodmark.spark.session import spark_session
path, name = sys.argv[1:]
spark = spark_session({"spark.master": "local[1]", "spark.driver.memory": "700m"})
sink = Delta(path, name=name)
for number in range(1, BATCHES + 1):
    rows = spark.createDataFrame([(name, number)], "writer string, number int")
    sink.write(rows, Batch("prod", "shared", number, "a", f"d{number}", "batch", datetime.now(timezone.utc)))
"""
DELTALAKE = """
import sys
from pathlib import Path
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from floodmark.sinks.delta.lock import table_lock
path, name = sys.argv[1:]
schema = pa.schema({"writer": pa.string(), "number": pa.int32()})
for number in range(1, BATCHES + 1):
    with table_lock(Path(path), None, patience_seconds=100):
        write_deltalake(path, pa.table({"writer": [name], "number": [number]}, schema=schema), mode="append")
"""


def containers() -> tuple[str, ...]:
    """How a process gets numbers of its own, where that is allowed; else they are plain processes."""
    is_allowed = shutil.which("unshare") and subprocess.run([*NAMESPACE, "true"], check=False).returncode == 0
    return NAMESPACE if is_allowed else ()


@pytest.mark.crash
def test_two_jvms_and_a_native_writer_lose_no_commit_of_each_other(tmp_path: Path) -> None:
    """Delta's log store has no guard on a local disk: without the lock one commit takes the place of another."""
    writers = {"one": SPARK, "two": SPARK, "native": DELTALAKE}
    running = [
        subprocess.Popen(
            [*containers(), sys.executable, "-c", program.replace("BATCHES", str(BATCHES)), str(tmp_path / "t"), name],
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, program in writers.items()
    ]
    said = [process.communicate(timeout=400)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], said
    found = QueryBuilder().register("t", DeltaTable(tmp_path / "t")).execute("SELECT writer, number FROM t").read_all()
    rows = Counter((row["writer"], row["number"]) for row in pa.table(found).to_pylist())
    assert rows == Counter({(name, number): 1 for name in writers for number in range(1, BATCHES + 1)})
