"""Keys that a merge into PostgreSQL deleted: an older row that comes later does not bring one back."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.errors import ConfigError
from floodmark.sinks import Postgres
from tests.sinks.batches import batch, frame
from tests.sinks.postgres.test_postgres import ask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SCHEMA = "id long, at int, v string"


def merge(database: str, **options: Any) -> Postgres:  # noqa: ANN401 - the sink's own options
    settings = {"mode": "merge", "key": ("id",), "sequence": ("at",), "delete_when": "v = 'D'"}
    return Postgres(database, "orders", **{**settings, **options})


def write(spark: SparkSession, sink: Postgres, number: int, *rows: tuple[Any, ...]) -> int | None:
    return sink.write(frame(spark, SCHEMA, *rows), batch(number))


def test_an_older_row_does_not_bring_a_deleted_key_back(spark: SparkSession, database: str) -> None:
    """Nor one of the same sequence; a newer one does, and a table without deletes has no second one."""
    sink, orders = merge(database), "select * from orders order by id"
    write(spark, sink, 1, (1, 1, "a"), (2, 1, "a"))
    assert ask(database, "select to_regclass('orders__deleted')") == [(None,)]
    write(spark, sink, 2, (1, 5, "D"), (3, 5, "D"))
    write(spark, sink, 3, (1, 3, "late"), (3, 5, "same"), (2, 2, "b"))
    assert ask(database, orders) == [(2, 2, "b")]
    write(spark, sink, 4, (1, 6, "again"), (3, 9, "new"))
    assert ask(database, orders) == [(1, 6, "again"), (2, 2, "b"), (3, 9, "new")]
    assert ask(database, "select id, at from orders__deleted order by id") == [(1, 5), (3, 5)]


def test_the_highest_delete_of_a_key_is_kept_and_a_refresh_begins_anew(spark: SparkSession, database: str) -> None:
    """Deletes come late as well; what an earlier history deleted says nothing about the next."""
    sink, deleted = merge(database), "select id, at from orders__deleted"
    write(spark, sink, 1, (1, 9, "D"))
    write(spark, sink, 2, (1, 5, "D"))
    assert ask(database, deleted) == [(1, 9)]
    sink.write(frame(spark, SCHEMA, (1, 1, "a"), (2, 3, "D")), batch(3, kind="refresh"))
    assert (ask(database, "select id from orders"), ask(database, deleted)) == ([(1,)], [(2, 3)])


def test_deleted_keys_are_kept_for_a_time(spark: SparkSession, database: str) -> None:
    """Older entries are not asked for, and leave with the next delete."""
    sink = merge(database, keep_deleted=timedelta(days=7))
    write(spark, sink, 1, (1, 5, "D"))
    ask(database, "update orders__deleted set _deleted_at = now() - interval '8 days' returning 1")
    write(spark, sink, 2, (1, 4, "late"), (2, 1, "D"))
    assert ask(database, "select id, v from orders") == [(1, "late")]
    assert ask(database, "select id from orders__deleted") == [(2,)]


def test_without_create_deleted_keys_are_kept_if_their_table_is_there(spark: SparkSession, database: str) -> None:
    """Whoever may not make tables makes none; zero keeps no key at all."""
    ask(database, "create table orders (id bigint primary key, at int, v text); select 1")
    write(spark, merge(database, create=False), 1, (1, 5, "D"))
    write(spark, merge(database, keep_deleted=timedelta(0)), 2, (2, 5, "D"))
    assert ask(database, "select to_regclass('orders__deleted')") == [(None,)]
    ask(database, "create table orders__deleted (id bigint primary key, at int, _deleted_at timestamptz); select 1")
    write(spark, merge(database, create=False), 3, (1, 5, "D"))
    assert ask(database, "select id, at from orders__deleted") == [(1, 5)]


def test_a_name_without_room_for_the_suffix_is_refused(spark: SparkSession, database: str) -> None:
    """PostgreSQL would cut it off, and two tables might be one."""
    sink = Postgres(database, "o" * 60, mode="merge", key=("id",), sequence=("at",), delete_when="v = 'D'")
    with pytest.raises(ConfigError, match="leaves no room"):
        write(spark, sink, 1, (1, 5, "D"))
