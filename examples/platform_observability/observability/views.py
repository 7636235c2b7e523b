"""The views: each a SELECT in `views/`, made over the tables of the three layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from floodmark.medallion import ViewReport, name_tables, publish_views
from observability.dimensions import DIMENSIONS
from observability.facts import FACTS
from observability.lake import ROOT, Lake
from observability.silver import TABLES
from observability.system import SYSTEM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.stores.contract import MarkStore


def publish(spark: SparkSession, lake: Lake, store: MarkStore) -> list[ViewReport]:
    """Bring the views of gold up to their tables: in the catalog, or as Delta tables where it forgets."""
    views = {name: query(name) for name in view_names()}
    return publish_views(spark, views, named_tables(lake), schema=lake.schema, folder=lake.views(), store=store)


def attach(spark: SparkSession, lake: Lake) -> None:
    """Give every table of the lake its name in the catalog, and bronze its views of the latest rows.

    The views of gold are found by name as well, once they were published.
    """
    published = {name: f"{lake.views()}/{name}" for name in view_names()}
    every = {**named_tables(lake), **published}
    there = name_tables(spark, {f"{lake.schema}.{name}": path for name, path in every.items()})
    for table in (table for table in SYSTEM if f"{lake.schema}.brz_{table.bronze}" in there):
        name = f"{lake.schema}.brz_{table.bronze}"
        spark.sql(f"create or replace view {name}_latest as {latest(name, table.thing)}")


def named_tables(lake: Lake) -> dict[str, str]:
    """By the name that SQL has for it, where each table of the three layers lies."""
    tables = {f"brz_{table.bronze}": lake.bronze(table.bronze) for table in SYSTEM}
    tables |= {f"slv_{table.name}": lake.silver(table.name) for table in TABLES}
    gold = {*(each.name for each in (*DIMENSIONS, *FACTS)), "dim_date"}
    return tables | {name: lake.gold(name) for name in sorted(gold)}


def view_names() -> list[str]:
    return sorted(file.stem for file in (ROOT / "views").glob("*.sql"))


def query(view: str) -> str:
    """The SELECT of a view."""
    return (ROOT / "views" / f"{view}.sql").read_text(encoding="utf-8")


def latest(table: str, thing: Sequence[str]) -> str:
    """The newest row of each thing, by the order of ingestion."""
    rank = f"row_number() over (partition by {', '.join(thing)} order by _ingest_version desc)"
    return f"select * except (rank) from (select *, {rank} as rank from {table}) where rank = 1"
