"""How far jobs are behind, asked of their sources without Spark."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from floodmark.hwm import VersionHWM
from floodmark.project.check import rows_behind
from floodmark.project.kinds import Site
from floodmark.project.models import JobModel
from floodmark.stores.lease import hold
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import JobRecord

FEED = {"delta.enableChangeDataFeed": "true"}
DELTA, CATALOG, PYTHON = (
    JobModel.model_validate(yaml.safe_load(text))
    for text in (
        "{name: orders, source: {type: delta, path: lake}, sinks: [{type: console}]}",
        "{name: named, source: {type: delta, table: shop.orders}, sinks: [{type: console}]}",
        "{name: own, source: {type: python, object: 'nowhere:source'}, sinks: [{type: console}]}",
    )
)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A table of three rows in one commit, and two in the next."""
    write_deltalake(tmp_path / "lake", pa.table({"id": [1, 2, 3]}), configuration=FEED)
    write_deltalake(tmp_path / "lake", pa.table({"id": [4, 5]}), mode="append")
    return tmp_path


def read_upto(version: int, folder: Path, table_id: str | None = None) -> MemoryMarkStore:
    """A store that says how far the job has read the table."""
    store, table = MemoryMarkStore(), folder / "lake"
    known = f"delta {table} (table id {table_id or DeltaTable(table).metadata().id})"
    with hold(store, "orders") as held:
        record = JobRecord("orders", 1, {"delta": VersionHWM("delta", version)}, {"delta": known})
        store.commit(record, expected=0, lease=held.lease)
    return store


def test_a_job_without_a_mark_is_behind_by_everything(lake: Path) -> None:
    """By the counts of the table's own log."""
    assert rows_behind([DELTA], Site(lake), MemoryMarkStore()) == {"orders": 5}


@pytest.mark.parametrize(("version", "rows"), [(0, 2), (1, 0)])
def test_a_job_is_behind_by_what_lies_above_its_mark(lake: Path, version: int, rows: int) -> None:
    """Nothing, once it is there."""
    assert rows_behind([DELTA], Site(lake), read_upto(version, lake)) == {"orders": rows}


def test_a_source_that_cannot_tell_is_absent_and_not_zero(lake: Path) -> None:
    """A name that only a catalog knows, a source whose code is not there, a mark that another table had."""
    assert rows_behind([CATALOG, PYTHON], Site(lake), MemoryMarkStore()) == {}
    assert rows_behind([DELTA], Site(lake), read_upto(0, lake, table_id="another")) == {}


def test_a_database_is_asked_as_a_run_asks_it(tmp_path: Path, database: str) -> None:
    """It counts what lies above the mark; the connection ends with the question."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY)")
        connection.execute("INSERT INTO orders VALUES (1), (2), (7)")
        source = {"type": "postgres", "url": database, "table": "orders", "cursor": "id"}
        job = JobModel.model_validate({"name": "orders", "source": source, "sinks": [{"type": "console"}]})
        assert rows_behind([job], Site(tmp_path), MemoryMarkStore()) == {"orders": 3}
