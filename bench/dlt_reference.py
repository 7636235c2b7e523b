"""A table loaded by dlt through connectorx into Delta, by a Python that has it: `URL FOLDER ROWS ROUNDS` → seconds."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"

import dlt  # type: ignore[import-not-found]
from dlt.sources.sql_database import sql_table  # type: ignore[import-not-found]


def main(database: str, folder: str, rows: int, rounds: int) -> None:
    times = [load(database, Path(folder), turn) for turn in range(rounds + 1)]
    from deltalake import DeltaTable

    found = sum(DeltaTable(f"{folder}/{rounds}/shop/orders").get_add_actions()["num_records"].to_pylist())
    assert found == rows, found
    print(json.dumps(times[1:]))


def load(database: str, folder: Path, turn: int) -> float:
    """A whole load into a table of its own: extract, normalize and load, as a user would call it."""
    target = dlt.destinations.filesystem(bucket_url=f"file://{folder}/{turn}")
    pipeline = dlt.pipeline(
        f"bench_{turn}", destination=target, dataset_name="shop", pipelines_dir=str(folder / "state")
    )
    orders = sql_table(
        database,
        table="orders",
        backend="connectorx",
        backend_kwargs={"return_type": "arrow"},
        incremental=dlt.sources.incremental("id"),
    )
    begun = time.monotonic()
    pipeline.run(orders, table_format="delta", write_disposition="append")
    return time.monotonic() - begun


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
