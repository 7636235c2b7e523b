"""Reading a PostgreSQL table by xmin, the transaction that wrote a row. Without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from floodmark import Job, sinks, stores
from floodmark.errors import ConfigError, SourceGap, SourceRegressed
from floodmark.hwm import ColumnIntHWM
from floodmark.probes.postgres.fence import Horizon
from floodmark.probes.tables.dialects import FULL_XMIN
from floodmark.sources import Postgres
from tests.sources.tables.test_safety import look, mark_value, open_transaction, run
from tests.tables import sorted_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def orders(database: str) -> str:
    """A table without any column that grows."""
    run(database, "create table o (name text, v int)", "insert into o values ('a', 1), ('b', 1), ('c', 1)")
    return database


def test_a_row_that_was_changed_is_read_again(orders: str) -> None:
    """No column says that it was."""
    source = Postgres(orders, "o", cursor="xmin")
    first = look(source)
    assert first.span is not None
    assert (first.expected_rows, look(source, first.span.upto).span) == (3, None)
    run(orders, "update o set v = 2 where name = 'b'")
    assert look(source, first.span.upto).expected_rows == 1


def test_what_lies_above_a_running_transaction_waits(orders: str) -> None:
    """It may still write, under an id that is lower."""
    source = Postgres(orders, "o", cursor="xmin")
    mark = look(source).span
    assert mark is not None
    with open_transaction(orders, "insert into o values ('d', 1)", application="night") as late:
        run(orders, "insert into o values ('e', 1)")
        first = look(source, mark.upto)
        late.commit()
    second = look(source, mark.upto)
    assert (mark_value(first), first.held_back, second.expected_rows) == (None, 1, 2)
    assert "(night)" in (first.held_reason or "")


def test_a_prepared_transaction_still_runs(orders: str) -> None:
    """The horizon does not pass it."""
    source = Postgres(orders, "o", cursor="xmin")
    mark = look(source).span
    assert mark is not None
    run(orders, "begin; insert into o values ('d', 1); prepare transaction 'x 1'")
    run(orders, "insert into o values ('e', 1)")
    first = look(source, mark.upto)
    run(orders, "rollback prepared 'x 1'")
    assert (mark_value(first), look(source, mark.upto).expected_rows) == (None, 1)


def test_rows_of_a_savepoint_come_with_their_transaction(orders: str) -> None:
    """They carry an id of their own, above that of the transaction."""
    source = Postgres(orders, "o", cursor="xmin")
    mark = look(source).span
    assert mark is not None
    with open_transaction(
        orders, "insert into o values ('d', 1)", "savepoint s", "insert into o values ('e', 1)"
    ) as one:
        run(orders, "insert into o values ('f', 1)")
        assert look(source, mark.upto).held_back == 1
        one.commit()
    assert look(source, mark.upto).expected_rows == 3


def test_a_query_has_no_xmin(orders: str) -> None:
    """Its rows were written by nobody."""
    with pytest.raises(ConfigError, match="no xmin"):
        look(Postgres(orders, query="select * from o", cursor="xmin"))


def test_a_mark_of_another_server_is_noticed(orders: str) -> None:
    """Its transaction has not happened here yet."""
    with pytest.raises(SourceRegressed):
        look(Postgres(orders, "o", cursor="xmin"), ColumnIntHWM("postgres", 2**40, entity="o", expression="xmin"))


def test_a_mark_older_than_two_to_the_31st_is_refused() -> None:
    """A row keeps 32 bits of its transaction: what is older cannot be told from what is new."""
    horizon = Horizon(over=2**33, following=2**33 + 1, holder="")
    horizon.require_reaches(2**33 + 1 - 2**31, "o")
    with pytest.raises(SourceGap):
        horizon.require_reaches(2**33 - 2**31, "o")


@pytest.mark.parametrize(
    ("following", "bits", "full"),
    [
        (1000, 999, 999),
        (2**32 + 10, 9, 2**32 + 9),
        (2**32 + 10, 4294967290, 4294967290),
        (3 * 2**32 + 10, 4294967290, 3 * 2**32 - 6),
        (3 * 2**32 + 10, 2, 2),
    ],
)
def test_the_full_id_is_found_across_epochs(database: str, following: int, bits: int, full: int) -> None:
    """Asked of the database itself, with the next id and the row's bits put in the place of its own."""
    asked = FULL_XMIN.replace(
        "(SELECT CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint) - 1)",
        f"CAST({following - 1} AS bigint)",
    ).replace("CAST(CAST(fm.xmin AS text) AS bigint)", f"CAST({bits} AS bigint)")
    with psycopg.connect(database) as connection:
        assert connection.execute(f"select {asked}".encode()).fetchone() == (full,)


def test_spark_reads_by_xmin_and_the_newest_version_of_a_row_wins(
    spark: SparkSession, orders: str, tmp_path: Path
) -> None:
    """The transaction orders the rows and is no column of theirs."""
    target = sinks.Delta(f"{tmp_path}/lake", mode="merge", key=("name",))
    job = Job(name="o", source=Postgres(orders, "o", cursor="xmin"), sinks=[target])
    store = stores.open(f"file://{tmp_path}/marks")
    first = job.run(spark, store)
    run(orders, "update o set v = 2 where name = 'b'", "insert into o values ('d', 4)")
    second, third = job.run(spark, store), job.run(spark, store)
    assert (first.rows_read, second.rows_read, third.status) == (3, 2, "nothing_new")
    assert sorted_rows(tmp_path / "lake") == [("a", 1), ("b", 2), ("c", 1), ("d", 4)]
