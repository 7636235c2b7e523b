"""Reconcile: what no cursor can see is found by comparing, and put right exactly once."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

import floodmark as fm
from floodmark.errors import ConfigError
from floodmark.jobs.reconcile import Difference
from floodmark.sinks.contract import Sink
from floodmark.stores.contract import MarkStore
from tests.tables import rows_of, sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def store(tmp_path: Path) -> MarkStore:
    return fm.stores.open("sqlite:///marks.db", folder=tmp_path)


@pytest.fixture
def shop(tmp_path: Path) -> sqlite3.Connection:
    """A table o(id, seq, v) with the rows 1 to 8, each with its id as seq."""
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.execute("create table o (id integer primary key, seq integer, v text)")
    connection.executemany("insert into o values (?, ?, ?)", [(n, n, f"v{n}") for n in range(1, 9)])
    yield connection
    connection.close()


def job_of(tmp_path: Path, *sinks: Sink, **more: object) -> fm.Job:
    source = fm.sources.Sqlite(tmp_path / "shop.db", table="o", cursor="seq")
    return fm.Job(name="orders", source=source, sinks=sinks, **more)


def lake(tmp_path: Path, **more: object) -> Sink:
    return fm.sinks.Delta(str(tmp_path / "lake"), name="lake", **{"mode": "merge", "key": ["id"], **more})


def in_lake(tmp_path: Path) -> list[tuple]:
    return sorted_rows(tmp_path / "lake")


def in_shop(shop: sqlite3.Connection) -> list[tuple]:
    return shop.execute("select * from o order by id").fetchall()


def test_what_no_cursor_sees_is_found_and_repaired_once(
    spark: SparkSession, store: MarkStore, shop: sqlite3.Connection, tmp_path: Path
) -> None:
    """A silent update, a delete, a row that the table lost; what comes with the next run is left alone."""
    job = job_of(tmp_path, lake(tmp_path))
    job.run(spark, store)
    shop.execute("update o set v = 'silent' where id = 2")
    shop.execute("delete from o where id = 3")
    spark.sql(f"delete from delta.`{tmp_path / 'lake'}` where id = 4")
    shop.execute("update o set v = 'loud', seq = 9 where id = 5")
    shop.execute("insert into o values (10, 10, 'new')")

    found = job.reconcile(spark, store)
    assert (found.missing, found.extra, found.different, found.agrees) == (1, 1, 1, False)
    assert sorted(found.samples, key=lambda sample: sample.what) == [
        Difference("different", {"id": 2}, ("v",)),
        Difference("extra", {"id": 3}),
        Difference("missing", {"id": 4}),
    ]

    fixed = job.reconcile(spark, store, repair=True)
    assert fixed.agrees
    assert fixed.receipt is not None
    assert (fixed.receipt.rows_written, fixed.receipt.mark_before, fixed.receipt.mark_after) == ({"lake": 3}, 8, 8)
    untouched = [(5, 5, "v5"), (6, 6, "v6"), (7, 7, "v7"), (8, 8, "v8")]
    assert in_lake(tmp_path) == [(1, 1, "v1"), (2, 2, "silent"), (4, 4, "v4"), *untouched]
    job.run(spark, store)
    assert in_lake(tmp_path) == in_shop(shop)
    assert job.reconcile(spark, store).compared == 8


def test_what_a_repair_deletes_stays_deleted_when_an_older_row_comes(
    spark: SparkSession, store: MarkStore, shop: sqlite3.Connection, tmp_path: Path
) -> None:
    """By the sequence that the table had; the source's own row, put back as it was, is believed by the next repair."""
    job = job_of(tmp_path, lake(tmp_path, sequence=["seq"], delete_when="v = 'D'"))
    job.run(spark, store)
    shop.execute("delete from o where id = 3")
    assert job.reconcile(spark, store, repair=True).extra == 1
    assert [(row.id, row.seq) for row in rows_of(tmp_path / "lake__deleted")] == [(3, 3)]
    shop.execute("insert into o values (3, 3, 'v3')")
    job.backfill("3", "4", spark, store)
    assert 3 not in [row[0] for row in in_lake(tmp_path)]
    assert job.reconcile(spark, store, repair=True).missing == 1
    assert in_lake(tmp_path) == in_shop(shop)


def test_a_range_of_a_postgres_table_is_compared_alone(
    spark: SparkSession, store: MarkStore, shop: sqlite3.Connection, database: str, tmp_path: Path
) -> None:
    """From is in the range and to is not; what differs elsewhere is not looked at."""
    sink = fm.sinks.Postgres(database, "orders", mode="merge", key=["id"], sequence=["seq"], name="mart")
    job = job_of(tmp_path, sink, transform="select id, seq, upper(v) as v from source")
    job.run(spark, store)
    shop.execute("update o set v = 'silent' where id in (2, 4, 6)")
    shop.execute("delete from o where id in (1, 5, 7)")
    found = job.reconcile(spark, store, start="2", stop="6", repair=True)
    assert (found.missing, found.extra, found.different, found.compared) == (0, 1, 2, 4)
    with psycopg.connect(database) as connection:
        rows = connection.execute("select id, v from orders order by id").fetchall()
    assert rows == [(1, "V1"), (2, "SILENT"), (3, "V3"), (4, "SILENT"), (6, "V6"), (7, "V7"), (8, "V8")]


def test_an_append_table_is_compared_by_its_newest_rows_and_by_keys_alone(
    spark: SparkSession, store: MarkStore, shop: sqlite3.Connection, tmp_path: Path
) -> None:
    """Of two versions of a row only the newer has to agree, and what a rule refuses is not judged."""
    small = fm.rules.check("length(v) < 7", action="drop")
    job = job_of(tmp_path, lake(tmp_path, mode="append", key=[]), rules=[small])
    job.run(spark, store)
    shop.execute("update o set v = 'loud', seq = 9 where id = 5")
    job.run(spark, store)
    shop.execute("update o set v = 'silent' where id = 6")
    shop.execute("delete from o where id = 7")
    shop.execute("update o set v = 'too long' where id = 8")
    by_hash, by_keys = (job.reconcile(spark, store, by=by, key=["id"]) for by in ("hash", "keys"))
    assert (by_hash.missing, by_hash.extra, by_hash.different, by_hash.compared) == (0, 1, 1, 8)
    assert (by_keys.missing, by_keys.extra, by_keys.different) == (0, 1, 0)


@pytest.mark.parametrize(
    ("sink", "more", "asked", "said"),
    [
        ({"mode": "append", "key": []}, {}, {"repair": True}, "only a merge can"),
        ({}, {"transform": "select id, count(*) n from source group by id"}, {}, "makes rows from several rows"),
        ({}, {"transform": "select *, :batch_time as at from source"}, {}, "names :batch_time"),
        ({}, {}, {"sink": "mart"}, "'mart' is no such table"),
        ({}, {}, {}, "has no mark"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_spark_is_asked_for(
    store: MarkStore, shop: sqlite3.Connection, tmp_path: Path, sink: dict, more: dict, asked: dict, said: str
) -> None:
    """With the reason, and what to do instead."""
    with pytest.raises(ConfigError, match=said):
        job_of(tmp_path, lake(tmp_path, **sink), **more).reconcile(never, store, **asked)


def never() -> SparkSession:
    raise AssertionError("Spark was asked for")
