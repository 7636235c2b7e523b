"""What the PostgreSQL store makes of rights, outages, odd texts and the caller's transactions."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg
import pytest

from floodmark import stores
from floodmark.errors import (
    ConfigError,
    FormatTooNew,
    LeaseHeld,
    LeaseLost,
    MarkMoved,
    StoreNotPrepared,
    StoreUnreachable,
)
from floodmark.stores import LayeredMarkStore, MemoryMarkStore, PostgresMarkStore
from floodmark.stores.contract import ClockedStore, JoiningStore
from floodmark.stores.extras import RecordExtras
from floodmark.stores.lease import Patience, claimable
from floodmark.testing.laws.records import ME, NOON, OTHER, files, receipt, record, save
from floodmark.testing.servers import Server, postgres_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from psycopg import Connection


@pytest.fixture
def store(database: str) -> Iterator[PostgresMarkStore]:
    with closing(PostgresMarkStore(database)) as opened:
        yield opened


@pytest.fixture
def sql(database: str) -> Iterator[Connection]:
    """Another program's connection."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def tables(sql: Connection) -> list[str]:
    rows = sql.execute(
        "select relname from pg_class where relkind = 'r' and relnamespace::regnamespace::text !~ '^(pg_|inf)'"
    )
    return sorted(name for (name,) in rows)


def test_the_mark_is_seen_with_plain_sql(store: PostgresMarkStore, sql: Connection) -> None:
    """Without Floodmark."""
    save(store, record(3))
    shown = sql.execute("select val -> 'marks' -> 'table' -> 'value', number, modified_time, namespace "
                        "from floodmark_marks where key = 'orders'").fetchall()  # fmt: skip
    assert shown == [(30, 3, NOON, "default")]


def test_a_look_makes_no_table(store: PostgresMarkStore, sql: Connection) -> None:
    """A plan changes nothing anywhere."""
    assert (store.read("orders"), store.stamp("orders"), list(store.jobs()), tables(sql)) == (None, None, [], [])


def test_the_table_may_be_named_with_its_schema(database: str, sql: Connection) -> None:
    """Whatever letters the names have; the schema is made too."""
    with closing(PostgresMarkStore(f'{database}?table=Ops%20"1".state')) as named:
        save(named, record(1, landing=files("/in/a")))
    assert tables(sql) == ["state", "state_history", "state_items", "state_leases", "state_looked", "state_runs"]
    assert sql.execute('select key from "Ops ""1""".state').fetchall() == [("orders",)]


@pytest.mark.parametrize("table", ["", "a.b.c", "a.", "x" * 60])
def test_a_table_that_cannot_be_named_so_is_refused(table: str, database: str) -> None:
    """PostgreSQL would cut a long name short, and two stores might share it."""
    with pytest.raises(ConfigError, match="cannot name the table"):
        PostgresMarkStore(f"{database}?table={table}")


def test_without_the_right_to_create_the_statements_are_shown(database: str, sql: Connection) -> None:
    """Somebody else runs them once, and the store works."""
    sql.execute("create role runner login password 'pw'")
    try:
        parts = urlsplit(database)
        mine = parts._replace(netloc=f"runner:pw@{parts.hostname}:{parts.port}").geturl()
        with closing(PostgresMarkStore(mine)) as store:
            assert store.read("orders") is None
            with pytest.raises(StoreNotPrepared) as refused:
                save(store, record(1))
            sql.execute(refused.value.ddl)
            sql.execute("grant select, insert, update, delete on all tables in schema public to runner")
            save(store, record(1))
            assert store.read("orders") == record(1)
    finally:
        sql.execute("drop owned by runner; drop role runner")


def test_a_table_of_another_program_is_left_alone(store: PostgresMarkStore, sql: Connection) -> None:
    """Never taken for "no marks"."""
    sql.execute("create table floodmark_marks (x int)")
    with pytest.raises(StoreUnreachable, match="was not made by Floodmark"):
        store.read("orders")


def test_a_table_of_a_newer_version_is_left_alone(store: PostgresMarkStore, database: str, sql: Connection) -> None:
    """Its records may mean something that this version does not know."""
    store.prepare()
    sql.execute("comment on table floodmark_marks is 'Floodmark marks, format 99'")
    with pytest.raises(FormatTooNew, match="has format 99"):
        PostgresMarkStore(database).read("orders")


def test_a_table_that_was_dropped_under_an_open_store_stops_the_run(store: PostgresMarkStore, sql: Connection) -> None:
    """It is not a first run."""
    save(store, record(1))
    sql.execute("drop table floodmark_marks")
    with pytest.raises(StoreUnreachable, match="floodmark_marks"):
        store.read("orders")


def test_texts_that_jsonb_does_not_know_are_kept(store: PostgresMarkStore, database: str) -> None:
    """NUL, names that are not text, and numbers of any size."""
    odd = replace(
        record(1, landing=files("/in/caf\udce9")),
        extras=RecordExtras({"nul": "a\0b", "half": "\ud800", "big": 10**40, "😀": 1}),
    )
    save(store, odd)
    with closing(PostgresMarkStore(database)) as other:
        assert (other.read("orders"), list(other.history("orders"))) == (odd, [odd])


def sent(trace: Path) -> list[str]:
    """What the driver sent to the server, as its own trace tells."""
    return [fields[3] for line in trace.read_text().splitlines() if (fields := line.split("\t"))[1] == "F"]


def test_the_check_at_each_tick_is_one_statement_on_the_kept_connection(
    store: PostgresMarkStore, tmp_path: Path
) -> None:
    """No transaction around it, no other connection."""
    save(store, record(1))
    known, connection = store.read("orders"), store._postgres._connection
    assert connection is not None
    with (tmp_path / "trace").open("w") as file:
        connection.pgconn.trace(file.fileno())
        assert store.read("orders", known) is known
        connection.pgconn.untrace()
    assert sent(tmp_path / "trace") == ["Parse", "Bind", "Describe", "Execute", "Sync"]


def test_a_lost_connection_costs_one_call_and_the_next_one_connects_again(tmp_path: Path) -> None:
    """The server is restarted under an open store."""
    with postgres_server(tmp_path) as server, closing(PostgresMarkStore(server.url)) as store:
        lease = save(store, record(1))
        server.kill()
        with pytest.raises(StoreUnreachable):
            store.commit(record(2), expected=1, lease=lease)
        with pytest.raises(StoreUnreachable):
            store.read("orders")
        server.start()
        assert store.read("orders") == record(1)
        store.commit(record(2), expected=1, lease=lease)
        assert store.read("orders") == record(2)


def test_a_connection_that_was_cut_off_is_replaced(store: PostgresMarkStore, sql: Connection) -> None:
    """As an administrator, or a firewall, does it."""
    save(store, record(1))
    sql.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'floodmark'")
    with pytest.raises(StoreUnreachable):
        store.read("orders")
    assert store.read("orders") == record(1)


def test_a_job_that_another_process_keeps_locked_is_given_up(database: str, sql: Connection) -> None:
    """The run stops; it does not wait for ever."""
    with closing(PostgresMarkStore(database, patience_seconds=0.2)) as store:
        lease = save(store, record(1))
        with sql.transaction():
            store._postgres.within(sql, "orders")
            with pytest.raises(StoreUnreachable, match="lock timeout"):
                store.commit(record(2), expected=1, lease=lease)
            assert store.read("orders") == record(1)
        store.commit(record(2), expected=1, lease=lease)


def test_a_mark_moves_in_the_transaction_of_the_rows(store: PostgresMarkStore, sql: Connection) -> None:
    """Both are there, with history and receipt, or neither is."""
    sql.execute("create table rows (id int)")
    lease = save(store, record(1))
    with sql.transaction():
        sql.execute("insert into rows values (1)")
        store.commit_within(sql, record(2), expected=1, lease=lease, receipt=receipt(2))
    assert (store.read("orders"), store.history("orders", 1)[0].number, store.runs("orders", 1)[0].number) == (
        record(2),
        2,
        2,
    )


def test_a_mark_goes_back_with_the_rows(store: PostgresMarkStore, sql: Connection) -> None:
    """A rolled back list of files is not remembered either."""
    lease = save(store, record(1, landing=files("/in/a")))
    with sql.transaction(force_rollback=True):
        store.commit_within(sql, record(2, landing=files("/in/a", "/in/b")), expected=1, lease=lease)
    assert store.read("orders") == record(1, landing=files("/in/a"))
    store.commit(record(2, landing=files("/in/a", "/in/c")), expected=1, lease=lease)
    assert store.read("orders") == record(2, landing=files("/in/a", "/in/c"))


def test_a_stale_commit_within_a_transaction_changes_nothing(store: PostgresMarkStore, sql: Connection) -> None:
    """The rows are not written either."""
    lease = save(store, record(1), record(2))
    with pytest.raises(MarkMoved), sql.transaction():
        store.commit_within(sql, record(3), expected=1, lease=lease)
    with pytest.raises(LeaseLost), sql.transaction():
        store.commit_within(sql, record(3), expected=2, lease=replace(lease, token="another"))
    assert store.read("orders") == record(2)


def test_another_database_is_told_from_the_stores_own(
    store: PostgresMarkStore, sql: Connection, postgres: Server
) -> None:
    """The lease is seen in one of them only."""
    lease = save(store, record(1))
    elsewhere = postgres.create_database()
    PostgresMarkStore(elsewhere).prepare()
    with psycopg.connect(elsewhere) as other, psycopg.connect(postgres.url) as bare:
        reached = [store.is_reached_by(one, lease) for one in (sql, other, bare)]
    assert reached == [True, False, False]


def test_a_layered_store_can_what_its_truth_can(store: PostgresMarkStore, sql: Connection) -> None:
    """Its levels see what was committed beside them."""
    layered = LayeredMarkStore([MemoryMarkStore(), store])
    assert isinstance(layered, ClockedStore)
    assert isinstance(layered, JoiningStore)
    lease = save(layered, record(1))
    with sql.transaction():
        layered.commit_within(sql, record(2), expected=1, lease=lease)
    assert layered.read("orders") == record(2)


def test_a_silent_owner_elsewhere_is_taken_over_by_the_databases_clock(
    store: PostgresMarkStore, sql: Connection
) -> None:
    """Nobody watches for 30 s what the database knows already."""
    lease = store.take_lease("orders", OTHER, over=None)
    patience = Patience(30, sleep=lambda _: pytest.fail("nothing to wait for"), vitality=lambda _: "unsure")
    sql.execute("update floodmark_leases set beat_at = beat_at - interval '31 s'")
    assert claimable(store, "orders", patience) == lease


def test_an_owner_elsewhere_that_beats_keeps_its_lease(store: PostgresMarkStore, sql: Connection) -> None:
    """Only what is left of its 30 s is waited for."""
    lease = store.take_lease("orders", OTHER, over=None)
    sql.execute("update floodmark_leases set beat_at = beat_at - interval '29 s'")
    patience = Patience(30, sleep=lambda _: store.beat(lease), vitality=lambda _: "unsure")
    with pytest.raises(LeaseHeld):
        claimable(store, "orders", patience)


def test_a_living_owner_here_is_never_taken_over_by_a_clock(store: PostgresMarkStore, sql: Connection) -> None:
    """A laptop that slept: its runs go on."""
    store.take_lease("orders", ME, over=None)
    sql.execute("update floodmark_leases set beat_at = beat_at - interval '1 day'")
    with pytest.raises(LeaseHeld):
        claimable(store, "orders", Patience(30, vitality=lambda _: "alive"))


def test_the_password_is_never_shown(postgres: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Not in the description, not in an error, not in a log."""
    wrong = postgres.url.replace(postgres.password, "s3cr3t")
    store = PostgresMarkStore(f"{wrong}?sslmode=disable&table=ops.marks")
    with caplog.at_level(logging.DEBUG), pytest.raises(StoreUnreachable) as refused:
        store.read("orders")
    error = refused.value
    said = f"{error} {error.__cause__} {vars(error)} {caplog.text} {store.describe()} {store.address!r}"
    assert "s3cr3t" not in said
    assert store.describe() == f"postgresql://postgres@127.0.0.1:{postgres.port}/postgres?table=ops.marks"


@pytest.mark.parametrize(
    "url", ["postgresql://u:s3/cr3t@h/db", "postgresql://u:s3cr3t@h:x/db", "postgresql://u:s3cr3t@h/db?nonsense=1"]
)
def test_an_address_that_cannot_be_read_is_not_repeated(url: str) -> None:
    """The password may be where nobody expects it."""
    with pytest.raises(ConfigError) as refused:
        stores.open(url)
    assert "cr3t" not in f"{refused.value} {refused.value.__cause__} {refused.value.__context__}"


def test_runs_are_found_and_counted_by_the_server(store: PostgresMarkStore) -> None:
    """Their receipts stay there, but for the one that is asked for."""
    store.add_run(replace(receipt(1), run="abc"))
    store.add_run(replace(receipt(2), run="b", recovered=True))
    assert [(end.status, end.recovered) for end in store.run_ends("orders")] == [("done", True), ("done", False)]
    assert [run.number for run in store.runs_named("ab")] == [1]
