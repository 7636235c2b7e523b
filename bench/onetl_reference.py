"""A table read by onETL above its mark into Delta, run by a Python that has it: `URL FOLDER JARS ROUNDS SELECT`."""

from __future__ import annotations

import json
import sys
import time

from etl_entities.hwm_store import MemoryHWMStore  # type: ignore[import-not-found]
from onetl.connection import Postgres  # type: ignore[import-not-found]
from onetl.db import DBReader  # type: ignore[import-not-found]
from onetl.strategy import IncrementalStrategy  # type: ignore[import-not-found]
from pyspark.sql import SparkSession

FEW = 10


def main(database: str, folder: str, jars: str, rounds: int, select: str) -> None:
    spark = session(jars)
    connection = connected(database, spark)
    times: dict[str, list[float]] = {"many": [], "few": []}
    for turn in range(rounds + 1):
        with MemoryHWMStore():
            times["many"].append(load(connection, f"{folder}/{turn}", turn))
            highest = "(select max(id) from orders)"
            series = f"generate_series({highest} + 1, {highest} + {FEW})"
            connection.execute(f"insert into orders {select} from {series} as id")
            times["few"].append(load(connection, f"{folder}/{turn}", turn))
    print(json.dumps({kind: each[1:] for kind, each in times.items()}))


def session(jars: str) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.driver.memory", "3g")
    builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    return builder.config("spark.ui.enabled", "false").getOrCreate()


def connected(database: str, spark: SparkSession) -> Postgres:
    """The words of a libpq address, or its parts."""
    from urllib.parse import urlparse

    parts = urlparse(database)
    return Postgres(
        host=parts.hostname,
        port=parts.port,
        user=parts.username,
        password=parts.password or "none",
        database=parts.path.lstrip("/"),
        spark=spark,
    )


def load(connection: Postgres, folder: str, turn: int) -> float:
    begun = time.monotonic()
    reader = DBReader(
        connection=connection,
        source="public.orders",
        hwm=DBReader.AutoDetectHWM(name=f"orders-{turn}", expression="id"),
        options=Postgres.ReadOptions(partition_column="id", num_partitions=2, fetchsize=10000),
    )
    with IncrementalStrategy():
        reader.run().write.format("delta").mode("append").save(folder)
    return time.monotonic() - begun


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
