"""Any table of Spark's catalog as a source: by a cursor with an overlap, or compared as a whole."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pytest

from floodmark import Job, sinks, stores
from floodmark.errors import ConfigError, SourceUnreadable
from floodmark.sources import Table
from floodmark.sources.tables.cursor import Cursor
from floodmark.testing import ListSink
from tests.sinks.delta.test_ways import jobs_started
from tests.tables import sorted_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from floodmark.sources.contract import Source

Made = TypeVar("Made")
OWN_KEYS = {("c",): ("c",), ("due",): ("id", "name")}
"""What a database knows as a primary key has to be said here."""


def law_table(spark: SparkSession, make: Callable[..., Made]) -> Made:
    """A table `o` of the catalog, filled by the SQL that other databases take."""

    def run(sql: str) -> None:
        plain = re.sub(r",?\s*primary key(\s*\([^)]*\))?|not null", "", sql)
        spark.sql(re.sub(r"\btext\b", "string", plain) + (" using delta" if plain.startswith("create") else ""))

    def source(cursor: Cursor) -> Source:
        return Table("spark_catalog.default.o", cursor=cursor, key=OWN_KEYS.get(cursor.columns, ()))

    return make(spark, run, source)


class Lake:
    """A table of a catalog, a job that reads it, and the Delta table that it fills."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.store = spark, folder, stores.open(f"sqlite:///{folder}/marks.db")

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.spark.sql(statement)

    def job(self, source: Source, **options: str) -> Job:
        sink = sinks.Delta(str(self.folder / "copy"), **options)  # type: ignore[arg-type]
        return Job("copy", source, [sink], on_schema_change="evolve")

    def run(self, job: Job) -> int:
        """How many rows one run writes."""
        return job.run(self.spark, self.store).rows_written.get("delta", 0)

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        return sorted_rows(self.folder / "copy", *columns)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[Lake]:
    spark.sql("create schema billing")
    yield Lake(spark, tmp_path)
    spark.sql("drop schema billing cascade")


def usage(lag: str = "1d") -> Table:
    cursor = Cursor("day", safety={"lag": lag})
    return Table("spark_catalog.billing.usage", cursor=cursor, key=["id", "kind"])


def prices(absent: Literal["keep", "delete"] = "keep", *, allow_empty: bool = False) -> Table:
    return Table("billing.prices", snapshot=True, key=["sku"], absent=absent, allow_empty=allow_empty)


@pytest.fixture
def usage_lake(lake: Lake) -> Lake:
    lake.sql(
        "create table billing.usage (id string, kind string, day date, quantity decimal(38,18), at struct<job:string>)",
        "insert into billing.usage values ('a', 'ORIGINAL', date'2026-11-02', 1.5, named_struct('job', 'j1'))",
        "insert into billing.usage values ('b', 'ORIGINAL', date'2026-11-03', 2, null)",
    )
    return lake


@pytest.fixture
def price_lake(lake: Lake) -> Lake:
    lake.sql(
        "create table billing.prices (sku string, until timestamp, labels map<string,string>) using delta",
        "insert into billing.prices values ('jobs', null, map('a', '1', 'b', '2')), ('sql', null, null)",
    )
    return lake


def test_rows_that_come_late_within_the_overlap_are_read_once(usage_lake: Lake) -> None:
    """The last day is read again, and the sink leaves out what it has; below the overlap nothing is looked for."""
    job = usage_lake.job(usage())
    first = usage_lake.run(job)
    usage_lake.sql(
        "insert into billing.usage values ('late', 'ORIGINAL', date'2026-11-02', 9, null)",
        "insert into billing.usage values ('too late', 'ORIGINAL', date'2026-11-01', 9, null)",
        "insert into billing.usage values ('a', 'RETRACTION', date'2026-11-03', -1.5, named_struct('job', 'j1'))",
    )
    assert (first, usage_lake.run(job), usage_lake.run(job)) == (2, 2, 0)
    assert usage_lake.rows("id", "kind") == [
        ("a", "ORIGINAL"),
        ("a", "RETRACTION"),
        ("b", "ORIGINAL"),
        ("late", "ORIGINAL"),
    ]


def test_of_rows_with_the_same_key_and_cursor_one_is_taken(usage_lake: Lake) -> None:
    """A shared table may deliver twice; a row without a key is known again, too."""
    nameless = "insert into billing.usage values (null, 'ORIGINAL', date'2026-11-03', 7, null)"
    usage_lake.sql("insert into billing.usage select * from billing.usage", nameless)
    job = usage_lake.job(usage())
    first = usage_lake.run(job)
    usage_lake.sql("insert into billing.usage values ('c', 'ORIGINAL', date'2026-11-03', 3, null)")
    assert (first, usage_lake.run(job)) == (3, 1)


def test_a_window_in_which_nothing_changed_makes_no_batch(usage_lake: Lake) -> None:
    """An idle loop counts the window, and leaves record and sink alone."""
    job = usage_lake.job(usage())
    usage_lake.run(job)
    before = usage_lake.store.read("copy")
    assert job.run(usage_lake.spark, usage_lake.store).status == "nothing_new"
    assert usage_lake.store.read("copy") == before


def test_moments_are_the_same_in_every_zone(lake: Lake) -> None:
    """A mark holds an instant, whatever the zone of the session that reads on."""
    lake.sql(
        "create table billing.runs (id int, ended timestamp)",
        "insert into billing.runs values (1, timestamp'2026-11-02T10:00:00.123456Z')",
    )
    job = lake.job(Table("billing.runs", cursor="ended", key="id"))
    first = lake.run(job)
    lake.sql(
        "set time zone 'Asia/Tokyo'", "insert into billing.runs values (2, timestamp'2026-11-02T10:00:00.123456Z')"
    )
    second = lake.run(job)
    lake.sql("set time zone 'UTC'")
    assert (first, second, lake.rows("id")) == (1, 1, [(1,), (2,)])


def test_a_view_is_read_as_a_table_is(usage_lake: Lake) -> None:
    """Unity shares views as well as tables."""
    usage_lake.sql("create view billing.big as select id, day from billing.usage where quantity > 1.9")
    assert usage_lake.run(usage_lake.job(Table("billing.big", cursor=Cursor("day", unique=True)))) == 1


def test_a_table_that_is_not_there_is_not_an_empty_one(lake: Lake) -> None:
    """No rows and could not look are never the same."""
    with pytest.raises(SourceUnreadable, match="absent"):
        lake.run(lake.job(Table("billing.absent", cursor="id", key="id")))


def test_a_snapshot_gives_rows_that_are_new_or_another(price_lake: Lake) -> None:
    """A map with its entries in another order is the same map, and a value that returns is a change."""
    job, changes = price_lake.job(prices()), []
    changes.append(price_lake.run(job))
    price_lake.sql(
        "insert overwrite billing.prices values ('jobs', null, map('b', '2', 'a', '1')), ('sql', null, null)"
    )
    changes.append(price_lake.run(job))
    price_lake.sql("update billing.prices set until = timestamp'2026-11-03' where sku = 'jobs'")
    changes.append(price_lake.run(job))
    price_lake.sql("update billing.prices set until = null", "insert into billing.prices values ('dlt', null, null)")
    changes.append(price_lake.run(job))
    assert changes == [2, 0, 1, 2]


def test_a_key_that_is_gone_is_left_alone_unless_that_is_said(price_lake: Lake) -> None:
    """Retention takes rows away whose things are still there."""
    job = price_lake.job(prices())
    price_lake.run(job)
    price_lake.sql("delete from billing.prices where sku = 'sql'")
    assert (price_lake.run(job), price_lake.rows("sku")) == (0, [("jobs",), ("sql",)])


def test_a_key_that_is_gone_comes_once_more_where_absence_is_a_delete(price_lake: Lake) -> None:
    """The log gets its last row as deleted, one time; a key that returns is a row like others."""
    job = price_lake.job(prices(absent="delete"))
    price_lake.run(job)
    price_lake.sql("delete from billing.prices where sku = 'sql'")
    changes = [price_lake.run(job), price_lake.run(job)]
    price_lake.sql("insert into billing.prices values ('sql', null, null)")
    assert ([*changes, price_lake.run(job)], price_lake.rows("sku", "_deleted")) == (
        [1, 0, 1],
        [("jobs", False), ("sql", False), ("sql", False), ("sql", True)],
    )


def test_a_merged_copy_follows_its_snapshots(price_lake: Lake) -> None:
    """One row per key, and none where the key is gone."""
    job = price_lake.job(prices(absent="delete"), mode="merge", key="sku", delete_when="_deleted")
    price_lake.run(job)
    price_lake.sql(
        "delete from billing.prices where sku = 'sql'", "insert into billing.prices values ('new', null, null)"
    )
    price_lake.run(job)
    assert price_lake.rows("sku") == [("jobs",), ("new",)]


def test_a_new_field_of_a_struct_is_null_in_what_is_known(lake: Lake) -> None:
    """Databricks adds fields without notice: a row changes where it has a value for the new one."""
    lake.sql(
        "create table billing.prices (sku string, pricing struct<default:int>) using delta",
        "insert into billing.prices values ('a', named_struct('default', 1)), ('b', named_struct('default', 2))",
    )
    job = lake.job(prices())
    first = lake.run(job)
    lake.sql(
        "drop table billing.prices",
        "create table billing.prices (sku string, pricing struct<promotional:int, default:int>) using delta",
        "insert into billing.prices values"
        " ('a', named_struct('promotional', null, 'default', 1)), ('b', named_struct('promotional', 1, 'default', 2))",
    )
    assert (first, lake.run(job)) == (2, 1)


def test_a_value_that_moves_to_another_column_is_a_change(lake: Lake) -> None:
    """NULL has its place in what a look adds up, also inside of a struct."""
    lake.sql(
        "create table billing.prices (sku string, a string, b string, s struct<x:int,y:int>) using delta",
        "insert into billing.prices values ('k', 'v', null, named_struct('x', 1, 'y', null))",
    )
    job = lake.job(prices())
    first = lake.run(job)
    lake.sql("update billing.prices set a = null, b = 'v'")
    second = lake.run(job)
    lake.sql("update billing.prices set s = named_struct('x', cast(null as int), 'y', 1)")
    assert (first, second, lake.run(job)) == (1, 1, 1)


def test_keys_that_differ_in_a_microsecond_are_two(lake: Lake) -> None:
    """A price is known by the moment from which it holds."""
    lake.sql(
        "create table billing.prices (sku string, since timestamp) using delta",
        "insert into billing.prices values ('k', timestamp'2026-11-02 10:00:00.000001Z')",
        "insert into billing.prices values ('k', timestamp'2026-11-02 10:00:00.000002Z')",
    )
    assert lake.run(lake.job(Table("billing.prices", snapshot=True, key=["sku", "since"]))) == 2


def test_an_empty_snapshot_deletes_nothing_unless_it_may(price_lake: Lake) -> None:
    """A table that lost its rows by mistake must not take everything else with it."""
    job = price_lake.job(prices(absent="delete"))
    price_lake.run(job)
    price_lake.sql("delete from billing.prices")
    with pytest.raises(SourceUnreadable, match="no row at all"):
        price_lake.run(job)
    assert price_lake.run(price_lake.job(prices(absent="delete", allow_empty=True))) == 2


def test_two_rows_with_one_key_are_no_snapshot(price_lake: Lake) -> None:
    """Nothing says which of them counts."""
    price_lake.sql("insert into billing.prices values ('sql', current_timestamp(), null)")
    with pytest.raises(SourceUnreadable, match="1 of 3 rows have a key that another row has"):
        price_lake.run(price_lake.job(prices()))


def test_a_snapshot_needs_a_sink_that_knows_its_rows(price_lake: Lake) -> None:
    """A list of messages cannot be compared with."""
    job = Job("copy", prices(), [ListSink()])
    with pytest.raises(ConfigError, match="has no table to compare them with"):
        job.run(price_lake.spark, price_lake.store)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"snapshot": True}, "compared by key"),
        ({"snapshot": True, "key": "id", "cursor": "id"}, "takes no cursor"),
        ({"cursor": "id", "absent": "delete"}, "whole snapshots"),
        ({"cursor": "id", "absent": "drop"}, "unknown absent"),
        ({}, "read by a cursor"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], reason: str) -> None:
    """When the source is made, not when it runs."""
    with pytest.raises(ConfigError, match=reason):
        Table("a.b", **options)


def test_a_small_delta_table_is_read_by_its_files_and_a_view_by_spark(price_lake: Lake) -> None:
    """Its rows are one job away, without Delta's state of the table; what a view shows is for Spark to say."""
    price_lake.sql("create view billing.dear as select * from billing.prices where sku = 'sql'")
    shown = {
        name: Table(f"billing.{name}", snapshot=True, key=["sku"]).without_rows(price_lake.spark).rows
        for name in ("prices", "dear")
    }
    assert jobs_started(price_lake.spark, shown["prices"].collect) == 1
    assert [row.sku for row in shown["dear"].collect()] == ["sql"]
    assert "PreparedDeltaFileIndex" not in shown["prices"]._jdf.queryExecution().executedPlan().toString()
    assert "PreparedDeltaFileIndex" in shown["dear"]._jdf.queryExecution().executedPlan().toString()
