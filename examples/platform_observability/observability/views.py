"""The views: each a SELECT in `views/`, made over the tables of the three layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from observability.bronze import KEYS
from observability.dimensions import DIMENSIONS
from observability.facts import FACTS
from observability.lake import ROOT, Lake
from observability.silver import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession, lake: Lake) -> list[str]:
    """Make every view anew in this session, over the tables as they are now; gives the names of those in `views/`."""
    tables = {f"brz_{name}": lake.bronze(name) for name in KEYS}
    tables |= {f"slv_{table.name}": lake.silver(table.name) for table in TABLES}
    gold = {*(each.name for each in (*DIMENSIONS, *FACTS)), "dim_date"}
    tables |= {name: lake.gold(name) for name in sorted(gold)}
    for name, path in tables.items():
        spark.read.format("delta").load(path).createOrReplaceTempView(name)
    for name, key in KEYS.items():
        spark.sql(latest(f"brz_{name}", key)).createOrReplaceTempView(f"brz_{name}_latest")
    names = view_names()
    for name in names:
        spark.sql(query(name)).createOrReplaceTempView(name)
    return names


def view_names() -> list[str]:
    return sorted(file.stem for file in (ROOT / "views").glob("*.sql"))


def query(view: str) -> str:
    """The SELECT of a view."""
    return (ROOT / "views" / f"{view}.sql").read_text(encoding="utf-8")


def latest(table: str, key: Sequence[str]) -> str:
    """The newest row of each key, by the order of ingestion."""
    rank = f"row_number() over (partition by {', '.join(key)} order by _ingest_version desc)"
    return f"select * except (rank) from (select *, {rank} as rank from {table}) where rank = 1"
