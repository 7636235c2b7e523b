"""A database and the network to it that go away within a run: nothing lost, nothing twice, and the run says it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from floodmark.testing.servers import Server
from tests.faults.orders import DELTA, Orders, chosen, ids_in_table
from tests.faults.proxy import Proxy, proxy_to
from tests.proofs import Prove

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

ROWS = list(range(2000))
HELD_SECONDS = 60.0
FOUND = "every row once in the table"
TABLE_SOURCE = '{{type: postgres, url: "{url}", table: src, cursor: id}}'
TABLE = '{{type: postgres, name: mart, url: "{url}", table: orders}}'


@pytest.fixture
def network(postgres: Server) -> Iterator[Proxy]:
    """What lies between a run and the database."""
    with proxy_to(postgres.port) as proxy:
        yield proxy


def through(network: Proxy, postgres: Server, database: str) -> str:
    """The same database by the way that a test can break."""
    return database.replace(f":{postgres.port}/", f":{network.port}/")


def fill_source(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("create table src as select g::bigint as id from generate_series(0, 1999) g")
        connection.execute("alter table src add primary key (id)")


def cut_connections(postgres: Server) -> int:
    """End every session but this one, as an administrator or a proxy does; says how many there were."""
    with psycopg.connect(postgres.url) as connection:
        others = "pid <> pg_backend_pid() and datname like 'test%'"
        query = f"select pg_terminate_backend(pid) from pg_stat_activity where {others}"
        return len(connection.execute(query).fetchall())


@pytest.mark.parametrize("store", chosen("sqlite:///marks.db", "{database}"))
def test_a_database_that_restarts_within_a_run(
    store: str, tmp_path: Path, postgres: Server, database: str, prove: Prove
) -> None:
    """Its staged rows are gone or unpublished; the same run tries again and writes the batch once."""
    fill_source(database)
    source, sink = TABLE_SOURCE.format(url=database), TABLE.format(url=database)
    orders = Orders(tmp_path, [sink], source=source, store=store.format(database=database), attempts=5)
    orders.tell("hold")
    process = orders.start()
    orders.await_task(process)
    postgres.kill()
    orders.let("hold")
    time.sleep(3)
    postgres.start()
    ended = orders.end_of(process)
    assert ended.exit_code == 0, ended.output
    assert "run failed, trying again" in ended.output
    assert ids_in_table(database) == ROWS
    said = next(line for line in ended.output.splitlines() if "trying again" in line)
    prove("PostgreSQL (source and sink) is killed in a write, and started after 3 s", said, FOUND)


def test_connections_that_are_cut_within_a_run(tmp_path: Path, postgres: Server, database: str, prove: Prove) -> None:
    """Source, sink and marks lose their connections at once; what they had begun is rolled back, and begun again."""
    fill_source(database)
    source, sink = TABLE_SOURCE.format(url=database), TABLE.format(url=database)
    orders = Orders(tmp_path, [sink], source=source, store=f'"{database}"', attempts=5)
    orders.tell("hold")
    process = orders.start()
    orders.await_task(process)
    cut = cut_connections(postgres)
    orders.let("hold")
    ended = orders.end_of(process)
    assert cut > 0
    assert ended.exit_code == 0, ended.output
    assert ids_in_table(database) == ROWS
    said = [line for line in ended.output.splitlines() if "trying again" in line] or [ended.message]
    prove("all connections of PostgreSQL (source, sink, marks) are cut in a write", said[0], FOUND)


def test_a_store_that_is_gone_when_the_mark_is_to_be_saved(
    tmp_path: Path, postgres: Server, network: Proxy, database: str, prove: Prove
) -> None:
    """The sink has the batch and the mark has not moved: the next run sees both, and only raises the mark."""
    orders = Orders(tmp_path, [DELTA], store=f'"{through(network, postgres, database)}"')
    orders.deliver(range(2000))
    orders.tell("hold")
    process = orders.start()
    orders.await_task(process)
    network.refuse()
    orders.let("hold")
    failed = orders.end_of(process)
    network.let_go()
    finished = orders.run()
    assert failed.exit_code == 1, failed.output
    assert "store postgresql://" in failed.message
    assert finished.exit_code == 0, finished.output
    assert orders.ids_in_lake() == ROWS
    prove("the store of the marks goes away in a write", failed.message, "every row once in the table, by the next run")


def test_a_network_that_holds_everything_back_for_a_minute(
    tmp_path: Path, postgres: Server, network: Proxy, database: str, prove: Prove
) -> None:
    """Longer than the lease lasts; nobody else came, so the run goes on, or stops and is finished by the next one."""
    fill_source(database)
    url = through(network, postgres, database)
    orders = Orders(
        tmp_path, [TABLE.format(url=url)], source=TABLE_SOURCE.format(url=url), store=f'"{url}"', attempts=3
    )
    orders.tell("hold")
    process = orders.start()
    orders.await_task(process)
    network.hold()
    orders.let("hold")
    time.sleep(HELD_SECONDS)
    seen_meanwhile = ids_in_table(database)
    network.let_go()
    ended = orders.end_of(process)
    finished = ended if ended.exit_code == 0 else orders.run()
    assert seen_meanwhile == []
    assert finished.exit_code == 0, finished.output
    assert ids_in_table(database) == ROWS
    prove("the network to PostgreSQL (source, sink, marks) hangs for 60 s", ended.message, FOUND)
