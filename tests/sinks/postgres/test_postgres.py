"""The PostgreSQL sink against a real server and real Spark: append, replace, refresh, and its ledger."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from floodmark.errors import ConfigError, SchemaChanged, SinkFailed, SinkUnreachable
from floodmark.sinks import Postgres
from floodmark.sinks.contract import Atomic, Ordered, Recorded, Shaped
from tests.sinks.batches import batch, frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


pytestmark = pytest.mark.spark
LEDGER = "floodmark.prod.orders.postgres"
ID_V = "id long, v string"


@pytest.fixture
def ab(spark: SparkSession) -> DataFrame:
    return frame(spark, ID_V, (1, "a"), (2, "b"))


def no_session() -> SparkSession:
    raise AssertionError("this needs no Spark")


def ask(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        return cursor.fetchall() if cursor.description else []


def staging_tables(url: str) -> list[tuple[Any, ...]]:
    return ask(url, "select relname from pg_class where starts_with(relname, '_fm_') and relkind = 'r'")


def wait_until_held(url: str, sessions: int, application: str = "floodmark-sink/orders") -> None:
    """Until so many sessions of the sink wait for a lock; fails after a minute."""
    held = (
        "select count(*) from pg_stat_activity where datname = current_database()"
        f" and application_name = '{application}' and wait_event_type = 'Lock'"
    )
    deadline = time.monotonic() + 60
    while ask(url, held) != [(sessions,)]:
        assert time.monotonic() < deadline, "nobody waits for the ledger"
        time.sleep(0.05)


def test_an_append_makes_the_table_and_records_its_number_with_the_rows(ab: DataFrame, database: str) -> None:
    """Rows without their number, or a number without its rows, cannot exist; nothing else is left behind."""
    sink = Postgres(database, "mart.orders")
    assert sink.recorded(LEDGER, no_session) is None
    assert sink.write(ab, batch(1)) == 2
    assert ask(database, "select id, v from mart.orders order by id") == [(1, "a"), (2, "b")]
    assert sink.recorded(LEDGER, no_session) == Recorded(1, "d1")
    assert staging_tables(database) == []


def test_the_ledger_can_be_read_with_plain_sql(ab: DataFrame, database: str) -> None:
    """What a person finds in the database is enough to find the run."""
    Postgres(database, "orders").write(ab, batch(1))
    entries = ask(database, "select ledger, number, digest, rows, marks from floodmark_ledger")
    assert entries == [(f"{LEDGER} orders", 1, "d1", 2, {"src": 1})]


def test_later_batches_are_added(spark: SparkSession, ab: DataFrame, database: str) -> None:
    """Also to a table that the user made, whose other columns take their defaults."""
    ask(database, "create table orders (v varchar(9), id bigint primary key, at date default '2024-05-01')")
    sink = Postgres(database, "orders")
    assert [sink.write(ab, batch(1)), sink.write(frame(spark, ID_V, (3, "c")), batch(2))] == [2, 1]
    assert ask(database, "select id, v, at::text from orders order by id") == [
        (1, "a", "2024-05-01"),
        (2, "b", "2024-05-01"),
        (3, "c", "2024-05-01"),
    ]


@pytest.mark.parametrize(
    ("made", "seen"),
    [
        (
            "create table base (id bigint, v text); create view orders as select * from base",
            "select count(*) from base",
        ),
        (
            (
                "create table orders (id bigint, v text) partition by list (id);"
                " create table p1 partition of orders for values in (1, 2)"
            ),
            "select count(*) from p1",
        ),
        (
            (
                "create table base (id bigint, v text); create table orders (id bigint, v text);"
                " create rule r as on insert to orders do also insert into base values (new.id, new.v)"
            ),
            "select count(*) from base",
        ),
    ],
    ids=["view", "partitions", "rule"],
)
def test_whatever_takes_an_insert_takes_a_batch(ab: DataFrame, database: str, made: str, seen: str) -> None:
    """Also where COPY would be refused, or would pass a rule by."""
    ask(database, made)
    assert Postgres(database, "orders").write(ab, batch(1)) == 2
    assert ask(database, "select id, v from orders order by id") == [(1, "a"), (2, "b")]
    assert ask(database, seen) == [(2,)]


@pytest.mark.parametrize(
    "options",
    [{}, {"mode": "replace"}, {"mode": "replace", "by": ("id",)}, {"mode": "merge", "key": ("id",)}],
    ids=["append", "replace", "replace by", "merge"],
)
def test_a_repeated_number_changes_nothing(
    spark: SparkSession, ab: DataFrame, database: str, options: dict[str, Any]
) -> None:
    """A crash after the write costs a repeat, and the repeat costs nothing; the count of then is given again."""
    sink = Postgres(database, "orders", **options)
    first = sink.write(ab, batch(1))
    before = ask(database, "select xmin::text, * from orders order by id")
    again = replace(sink).write(frame(spark, ID_V, (8, "other")), batch(1, attempt="a2"))
    assert (first, again) == (2, 2)
    assert ask(database, "select xmin::text, * from orders order by id") == before


@pytest.mark.parametrize(
    "options",
    [{}, {"mode": "replace", "by": ("id",)}, {"mode": "merge", "key": ("id",)}],
    ids=["append", "replace by", "merge"],
)
def test_a_batch_without_rows_records_its_number(ab: DataFrame, database: str, options: dict[str, Any]) -> None:
    """A batch whose rows were all filtered out is a batch all the same."""
    sink = Postgres(database, "orders", **options)
    sink.write(ab, batch(1))
    assert sink.write(ab.where("id > 100"), batch(2)) == 0
    assert sink.recorded(LEDGER, no_session) == Recorded(2, "d2")
    assert ask(database, "select * from orders order by id") == [(1, "a"), (2, "b")]


def test_replacing_by_columns_leaves_other_rows_alone(spark: SparkSession, database: str) -> None:
    """A NULL is a value of its own here, as in the other sinks."""
    sink = Postgres(database, "sales", mode="replace", by=("day", "shop"))
    shape = "day int, shop string, n int"
    sink.write(frame(spark, shape, (1, "x", 1), (1, "x", 2), (1, None, 3), (2, None, 4), (2, "x", 5)), batch(1))
    assert sink.write(frame(spark, shape, (1, "x", 10), (2, None, 40)), batch(2)) == 2
    assert ask(database, "select * from sales order by n") == [(1, None, 3), (2, "x", 5), (1, "x", 10), (2, None, 40)]


def test_replacing_all_leaves_only_the_batch(spark: SparkSession, ab: DataFrame, database: str) -> None:
    """For sources that are read whole each time."""
    sink = Postgres(database, "orders", mode="replace")
    sink.write(ab, batch(1))
    assert sink.write(frame(spark, ID_V, (9, "z")), batch(2)) == 1
    assert ask(database, "select * from orders") == [(9, "z")]


def test_a_refresh_replaces_everything_and_readers_never_see_it_half_done(
    spark: SparkSession, ab: DataFrame, database: str
) -> None:
    """Whoever reads just before the commit sees the old rows, and does not wait."""
    sink, seen = Postgres(database, "orders"), []
    sink.write(ab, batch(1))
    refreshed = frame(spark, ID_V, (7, "new"))
    sink.write_joined(
        refreshed, batch(2, kind="refresh"), lambda *_: seen.extend(ask(database, "select id from orders order by id"))
    )
    assert (seen, ask(database, "select id from orders")) == ([(1,), (2,)], [(7,)])


def test_a_refresh_may_bring_other_columns(spark: SparkSession, ab: DataFrame, database: str) -> None:
    """New ones are added; old ones stay, empty, for whoever reads them."""
    sink = Postgres(database, "orders")
    sink.write(ab, batch(1))
    assert sink.write(frame(spark, "id long, note string", (7, "n")), batch(2, kind="refresh")) == 1
    assert ask(database, "select id, v, note from orders") == [(7, None, "n")]


def test_a_new_column_is_refused_unless_the_job_evolves(spark: SparkSession, ab: DataFrame, database: str) -> None:
    """Then it is added in the transaction of the rows, and older rows have NULL there."""
    sink, wider = Postgres(database, "orders"), frame(spark, ID_V + ", w int", (3, "c", 7))
    sink.write(ab, batch(1))
    with pytest.raises(SchemaChanged) as refused:
        sink.write(wider, batch(2))
    assert refused.value.differences == ("new column w integer",)
    replace(sink, evolve=True).write(wider, batch(2))
    assert ask(database, "select * from orders order by id") == [(1, "a", None), (2, "b", None), (3, "c", 7)]


def test_a_table_that_is_missing_is_not_made_where_that_is_off(ab: DataFrame, database: str) -> None:
    """The statement that makes it is in the hint."""
    with pytest.raises(ConfigError) as refused:
        Postgres(database, "orders", create=False).write(ab, batch(1))
    assert refused.value.hint == 'CREATE TABLE "public"."orders" ("id" bigint, "v" text)'


def test_rows_that_do_not_fit_leave_nothing_behind(spark: SparkSession, ab: DataFrame, database: str) -> None:
    """Neither rows nor a number nor a staging table; the message says which column."""
    ask(database, "create table orders (id bigint, v varchar(3))")
    with pytest.raises(SinkFailed) as failed:
        Postgres(database, "orders").write(ab.union(frame(spark, ID_V, (3, "much too long"))), batch(1))
    assert "value too long for type character varying(3)" in failed.value.reason
    assert "column v" in failed.value.reason
    assert (ask(database, "select * from orders"), staging_tables(database)) == ([], [])
    assert Postgres(database, "orders").recorded(LEDGER, no_session) is None


def test_rows_that_fail_while_they_stream_leave_nothing_behind(ab: DataFrame, database: str) -> None:
    """The error is the rows' own; the transaction that had begun to take them is given up."""
    rows = ab.selectExpr("id", "if(id = 2, raise_error('oops'), v) as v")
    with pytest.raises(Exception, match="oops"):
        Postgres(database, "orders").write(rows, batch(1))
    assert Postgres(database, "orders").schema(no_session) is None


def test_rows_that_are_staged_arrive_as_those_that_stream(ab: DataFrame, database: str) -> None:
    """Nothing of the way is left in the database."""
    assert Postgres(database, "orders", staged=True).write(ab, batch(1)) == 2
    assert Postgres(database, "orders").write(ab, batch(2)) == 2
    assert ask(database, "select id, v from orders order by id") == [(1, "a"), (1, "a"), (2, "b"), (2, "b")]
    assert staging_tables(database) == []


def test_what_older_attempts_left_behind_is_dropped(ab: DataFrame, database: str) -> None:
    """A newer one's is not: it may be at work."""
    sink = Postgres(database, "orders")
    sink.write(ab, batch(1))
    old, new = (f"_fm_stage_f7ca6cfa95_{moment}_a0_000000" for moment in ("0" * 12, "f" * 12))
    ask(database, f"create table {old} (); create table {new} (); create table _fm_stage_other ()")
    sink.write(ab, batch(2))
    assert sorted(staging_tables(database)) == [(new,), ("_fm_stage_other",)]


def test_the_caller_s_part_is_in_the_same_transaction(ab: DataFrame, database: str) -> None:
    """A mark that moves with the rows needs no recovery between the two."""

    def save_mark(connection: psycopg.Connection, rows: int) -> None:
        connection.execute("insert into marks select %s, count(*) from orders", [rows])

    ask(database, "create table marks (number int, rows int)")
    assert Postgres(database, "orders").write_joined(ab, batch(1), save_mark) == 2
    assert ask(database, "select * from marks") == [(2, 2)]


def test_a_caller_that_fails_takes_the_rows_back(ab: DataFrame, database: str) -> None:
    """Its own error is what the caller gets."""

    def fails(_connection: psycopg.Connection, _rows: int) -> None:
        raise LookupError("moved")

    sink = Postgres(database, "orders")
    with pytest.raises(LookupError, match="moved"):
        sink.write_joined(ab, batch(1), fails)
    assert sink.recorded(LEDGER, no_session) is None
    assert sink.schema(no_session) is None


def test_the_caller_is_called_for_a_repeat_too(ab: DataFrame, database: str) -> None:
    """So that a mark that was not saved with the rows is saved now."""
    sink, calls = Postgres(database, "orders"), []
    sink.write(ab, batch(1))
    assert sink.write_joined(ab, batch(1), lambda _connection, rows: calls.append(rows)) == 2
    assert calls == [2]


def test_rows_count_only_where_they_would_come_twice(ab: DataFrame, database: str) -> None:
    """A merge that is written again changes nothing."""
    sink = Postgres(database, "orders")
    assert not sink.holds_rows(no_session)
    sink.write(ab, batch(1))
    assert sink.holds_rows(no_session)
    assert not Postgres(database, "orders", mode="merge", key=("id",)).holds_rows(no_session)


def test_the_password_is_in_no_text(database: str) -> None:
    """Neither where the sink is shown nor where the server turns it away."""
    sink = Postgres(database.replace("@127.0.0.1", "-hunter2@127.0.0.1"), "orders")
    with pytest.raises(SinkUnreachable) as failed:
        sink.recorded(LEDGER, no_session)
    texts = f"{sink!r} {sink.describe()} {sink.fingerprint()} {failed.value} {failed.value.__cause__}"
    assert "hunter2" not in texts


def test_a_url_that_cannot_be_read_is_not_repeated() -> None:
    """It may hold a password."""
    with pytest.raises(ConfigError) as refused:
        Postgres("hunter2 hunter3", "orders")
    assert "hunter" not in str(refused.value)


def test_a_server_that_is_away_is_not_taken_for_an_empty_one() -> None:
    """Nothing listens there."""
    with pytest.raises(SinkUnreachable):
        Postgres("postgresql://me@127.0.0.1:1/shop", "orders").recorded(LEDGER, no_session)


@pytest.mark.parametrize(
    "options",
    [{"mode": "upsert"}, {"mode": "merge"}, {"by": "id"}, {"sequence": "id"}, {"table": "a.b.c"}],
    ids=["mode", "no key", "by", "sequence", "table"],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any]) -> None:
    """Before anything is connected to."""
    with pytest.raises(ConfigError):
        Postgres(**{"url": "postgresql://me@there/shop", "table": "orders", **options})


def test_it_keeps_the_contracts() -> None:
    """All or nothing, with a schema; and a merge may want the source's position."""
    sink = Postgres("postgresql://me@there/shop", "orders", mode="merge", key=("id",))
    assert isinstance(sink, Atomic)
    assert isinstance(sink, Shaped)
    assert isinstance(sink, Ordered)
    assert (sink.needs_position(), replace(sink, sequence=("at",)).needs_position()) == (True, False)
