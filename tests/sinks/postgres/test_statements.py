"""Merging into PostgreSQL: one row per key, the newest, and never over a newer one that is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from floodmark.errors import ConfigError, SinkFailed
from floodmark.sinks import Postgres
from floodmark.sinks.contract import POSITION
from tests.sinks.batches import batch, frame
from tests.sinks.postgres.test_postgres import ask, staging_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ID_V = "id long, v string"
ID_SEQ_V = "id long, seq int, v string"


def test_a_merge_updates_what_is_there_and_adds_the_rest(spark: SparkSession, database: str) -> None:
    """The key of a table that we made is its primary key."""
    sink = Postgres(database, "orders", mode="merge", key=("id",))
    assert sink.write(frame(spark, ID_V, (1, "a"), (2, "b")), batch(1)) == 2
    assert sink.write(frame(spark, ID_V, (2, "B"), (3, "c")), batch(2)) == 2
    assert ask(database, "select * from orders order by id") == [(1, "a"), (2, "B"), (3, "c")]
    assert ask(database, "select indisprimary from pg_index where indrelid = 'orders'::regclass") == [(True,)]


def test_the_highest_sequence_of_a_key_wins(spark: SparkSession, database: str) -> None:
    """Within a batch, and against what is stored; a stored NULL is below every value."""
    sink = Postgres(database, "orders", mode="merge", key=("id",), sequence=("seq",))
    sink.write(frame(spark, ID_SEQ_V, (1, 2, "b"), (1, 9, "z"), (1, 5, "e"), (2, 7, "y"), (3, None, "n")), batch(1))
    assert sink.write(frame(spark, ID_SEQ_V, (1, 8, "late"), (2, 7, "Y"), (3, 1, "m")), batch(2)) == 2
    assert ask(database, "select * from orders order by id") == [(1, 9, "z"), (2, 7, "Y"), (3, 1, "m")]


def test_texts_are_ordered_by_their_bytes(spark: SparkSession, database: str) -> None:
    """As in every other sink: 'a' is above 'B', whatever the database's language says."""
    sink = Postgres(database, "orders", mode="merge", key=("id",), sequence=("v",))
    sink.write(frame(spark, ID_V, (1, "B"), (1, "a")), batch(1))
    sink.write(frame(spark, ID_V, (1, "Z")), batch(2))
    assert ask(database, "select * from orders") == [(1, "a")]


def test_without_a_sequence_the_source_s_position_decides(spark: SparkSession, database: str) -> None:
    """Field by field, as a struct is compared; it does not reach the target."""
    sink = Postgres(database, "orders", mode="merge", key=("id",))
    shape = f"id long, v string, {POSITION} struct<file: string, line: long>"
    sink.write(frame(spark, shape, (1, "old", ("f1", 10)), (1, "new", ("f2", 9)), (1, "older", ("f1", 9))), batch(1))
    assert ask(database, "select * from orders") == [(1, "new")]


def test_rows_that_delete_take_their_key_out(spark: SparkSession, database: str) -> None:
    """Only if nothing newer is stored; the newest row of a key decides whether it deletes."""
    sink = Postgres(database, "orders", mode="merge", key=("id",), sequence=("seq",), delete_when="v = 'gone'")
    sink.write(frame(spark, ID_SEQ_V, (1, 1, "a"), (2, 5, "b"), (3, 1, "c")), batch(1))
    changes = frame(spark, ID_SEQ_V, (1, 2, "gone"), (2, 4, "gone"), (3, 2, "gone"), (3, 3, "C"), (4, 1, "gone"))
    assert sink.write(changes, batch(2)) == 2
    assert ask(database, "select * from orders order by id") == [(2, 5, "b"), (3, 3, "C")]


def test_the_same_row_twice_is_one_row(spark: SparkSession, database: str) -> None:
    """Re-reads bring such."""
    sink = Postgres(database, "orders", mode="merge", key=("id",))
    assert sink.write(frame(spark, ID_V, (1, "a"), (1, "a")), batch(1)) == 1


def test_two_different_rows_of_a_key_without_an_order_are_refused(spark: SparkSession, database: str) -> None:
    """To take one of them would be a guess, and the next run might guess otherwise."""
    sink = Postgres(database, "orders", mode="merge", key=("id",), sequence=("seq",))
    with pytest.raises(SinkFailed, match=r'two different rows have the key \{"id": 1\}') as failed:
        sink.write(frame(spark, ID_SEQ_V, (1, 3, "a"), (1, 3, "b")), batch(1))
    assert "`sequence`" in failed.value.reason
    assert staging_tables(database) == []


def test_a_tie_below_the_newest_row_does_not_matter(spark: SparkSession, database: str) -> None:
    """The newest one is beyond doubt."""
    sink = Postgres(database, "orders", mode="merge", key=("id",), sequence=("seq",))
    sink.write(frame(spark, ID_SEQ_V, (1, 3, "a"), (1, 3, "b"), (1, 4, "c")), batch(1))
    assert ask(database, "select * from orders") == [(1, 4, "c")]


def test_a_key_that_is_null_is_refused_by_name(spark: SparkSession, database: str) -> None:
    """It would match nothing, and come again with every repeat."""
    sink = Postgres(database, "orders", mode="merge", key=("id", "v"))
    with pytest.raises(SinkFailed, match="key column v is NULL"):
        sink.write(frame(spark, ID_V, (1, "a"), (2, None)), batch(1))


def test_a_user_s_table_needs_a_unique_index_on_the_key(spark: SparkSession, database: str) -> None:
    """Else two writers could put one key there twice; the hint is the statement that makes it."""
    ask(database, "create table orders (id bigint, v text)")
    sink = Postgres(database, "orders", mode="merge", key=("id",))
    with pytest.raises(ConfigError) as refused:
        sink.write(frame(spark, ID_V, (1, "a")), batch(1))
    ask(database, refused.value.hint)
    assert sink.write(frame(spark, ID_V, (1, "a")), batch(1)) == 1


def test_a_refresh_of_a_merge_leaves_the_newest_rows_of_the_batch(spark: SparkSession, database: str) -> None:
    """Also where a higher one was stored: the whole is read again."""
    sink = Postgres(database, "orders", mode="merge", key=("id",), sequence=("seq",), delete_when="v = 'gone'")
    sink.write(frame(spark, ID_SEQ_V, (1, 9, "z"), (5, 1, "old")), batch(1))
    refreshed = frame(spark, ID_SEQ_V, (1, 1, "a"), (1, 2, "b"), (2, 1, "gone"))
    assert sink.write(refreshed, batch(2, kind="refresh")) == 1
    assert ask(database, "select * from orders") == [(1, 2, "b")]


def test_names_are_quoted_and_found_without_regard_to_case(spark: SparkSession, database: str) -> None:
    """Nothing of a name is ever run."""
    ask(database, 'create table "od""d; --" ("Id" bigint primary key, "v%s" text)')
    sink = Postgres(database, '"od""d; --"', mode="merge", key=("ID",))
    assert sink.write(frame(spark, "id long, `V%s` string", (1, "a")), batch(1)) == 1
    assert ask(database, 'select "Id", "v%s" from "od""d; --"') == [(1, "a")]
