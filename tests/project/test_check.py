"""What check asks online, and how far jobs are behind their sources."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg
import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

import floodmark as fm
from floodmark.hwm import FileListHWM, VersionHWM
from floodmark.project import check
from floodmark.project.backlog import rows_behind, sinks_behind
from floodmark.project.check import CheckResult, JobCheck, exit_code
from floodmark.project.kinds import Site
from floodmark.project.models import JobModel
from floodmark.sources.contract import Source
from floodmark.step import RunRequest
from floodmark.stores.contract import MarkStore
from floodmark.stores.extras import RecordExtras, SinkLedger
from floodmark.stores.lease import hold
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import JobRecord
from floodmark.testing import ListSink, RowsSource
from floodmark.testing.servers import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


WELL = """
create table o (id bigint generated always as identity primary key, v text)
"""
UNWELL = """
create sequence taken cache 50;
create table o (id bigint default nextval('taken'), at timestamptz, code text, v text);
alter sequence taken owned by o.id;
create index on o (code);
"""


@pytest.fixture
def store(tmp_path: Path) -> MarkStore:
    return fm.stores.open("sqlite:///marks.db", folder=tmp_path)


def made(database: str, ddl: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute(ddl)


def never() -> SparkSession:
    raise AssertionError("Spark was asked for")


def checked(store: MarkStore, source: Source, *sinks: object) -> list[CheckResult]:
    job = fm.Job(name="orders", source=source, sinks=sinks or [ListSink()])
    return list(JobCheck(job.step(never, store, RunRequest())).results())


def rules(lines: list[CheckResult]) -> list[str]:
    return [line.rule for line in lines if line.rule]


def test_a_good_cursor_has_nothing_to_warn_of(store: MarkStore, database: str) -> None:
    """An identity column with a primary key, on a primary, as a role that sees the others."""
    made(database, WELL)
    lines = checked(store, fm.sources.Postgres(database, table="o", cursor="id"))
    assert (rules(lines), exit_code(lines)) == ([], 0)
    assert [line.message for line in lines if "index" in line.message or "unique" in line.message] == [
        "an index begins with id",
        "id is unique",
    ]


@pytest.mark.parametrize(
    ("cursor", "expected"),
    [
        ("id", ["FM502", "FM503", "FM411", "FM504"]),
        ("at", ["FM502", "FM503", "FM412", "FM504"]),
        ("code", ["FM502", "FM503", "FM412", "FM504"]),
    ],
)
def test_every_weakness_of_a_cursor_is_told_with_its_rule(
    store: MarkStore, database: str, cursor: str, expected: list[str]
) -> None:
    """No index, or one in another order; not unique; values taken in advance or made by clients; NULL."""
    made(database, UNWELL)
    lines = checked(store, fm.sources.Postgres(database, table="o", cursor=cursor, key=["v"]))
    assert (rules(lines), exit_code(lines)) == (expected, 0)


def test_ties_are_judged_as_the_reader_judges_them(store: MarkStore, database: str) -> None:
    """A parent gives its children's rows too, which its primary key does not know; the user's word counts."""
    made(database, f"{WELL}; create table more () inherits (o)")
    by_catalog = fm.sources.Postgres(database, table="o", cursor="id", key=["v"])
    by_word = fm.sources.Postgres(database, table="o", cursor=fm.sources.Cursor("id", unique=True))
    assert (rules(checked(store, by_catalog)), rules(checked(store, by_word))) == (["FM503", "FM504"], ["FM504"])


def test_an_index_on_text_has_to_be_in_the_order_of_bytes(store: MarkStore, database: str) -> None:
    """Else the database sorts the whole table at every look; the hint says how to make it."""
    made(database, UNWELL)
    source = fm.sources.Postgres(database, table="o", cursor="code", key=["v"])
    before = [line.hint for line in checked(store, source) if line.rule == "FM502"]
    made(database, before[0])
    assert before == ['CREATE INDEX ON o (code COLLATE "C")']
    assert "FM502" not in rules(checked(store, source))


def test_a_role_that_sees_nobody_else_and_may_not_write_is_told(store: MarkStore, database: str) -> None:
    """A fence would be blind, which is a decision; the target lacks rights and a unique index."""
    rights = "create role clerk_of_check login password 'p'; grant select on o to clerk_of_check"
    made(database, f"{WELL}; {rights}; create table t (id bigint)")
    place = urlsplit(database)
    as_clerk = f"postgresql://clerk_of_check:p@{place.hostname}:{place.port}{place.path}"
    target = fm.sinks.Postgres(as_clerk, "t", mode="merge", key=["id"])
    lines = checked(store, fm.sources.Postgres(as_clerk, table="o", cursor="id"), target)
    assert (rules(lines), exit_code(lines)) == (["FM501", "FM507", "FM507"], 5)


def test_a_part_that_cannot_be_reached_is_a_finding_and_the_others_are_asked(store: MarkStore, tmp_path: Path) -> None:
    """One broken connection does not hide what else is wrong."""
    source = fm.sources.Postgres("postgresql://localhost:1/none", table="o", cursor="id")
    lines = checked(store, source, fm.sinks.Delta(str(tmp_path / "lake")))
    assert [(line.part, line.rule) for line in lines] == [
        ("mark", ""),
        ("source postgres", "FM501"),
        ("sink delta", ""),
    ]
    assert exit_code(lines) == 1


def test_a_topic_tells_how_long_it_keeps_messages(store: MarkStore, kafka: Broker, topic: Callable[..., str]) -> None:
    """Compaction takes older versions of a key away, so it is named."""
    settings = {"retention.ms": "7200000", "cleanup.policy": "compact,delete"}
    lines = checked(store, fm.sources.Kafka(kafka.bootstrap, topic(1, **settings)))
    remarks = [(line.rule, line.message.split(maxsplit=1)[1]) for line in lines if line.part == "source kafka"]
    assert remarks[1:] == [
        ("", "keeps messages for 2 h"),
        ("FM506", "is compacted: of several messages of a key that wait, only the last may be left"),
        ("", "new"),
    ]


def test_a_sink_that_lost_what_it_had_confirmed_is_a_decision(store: MarkStore) -> None:
    """Exit 5, as a run would: with both numbers."""
    confirmed = RecordExtras().with_sinks(
        {"list": SinkLedger("floodmark.default.orders.list", "list 'list' in memory", 3)}
    )
    with hold(store, "orders") as held:
        store.commit(JobRecord("orders", 3, extras=confirmed), expected=0, lease=held.lease)
    lines = checked(store, RowsSource([]))
    found = [line for line in lines if line.rule]
    assert [(line.part, line.exit_code) for line in found] == [("sink list", 5)]
    assert ("batch 3" in found[0].message, exit_code(lines)) == (True, 5)


def test_sinks_that_lost_batches_are_found_without_spark(lake: Path) -> None:
    """By their own ledgers; one that has what it confirmed, or cannot be asked, is absent."""
    sinks = [{"type": "delta", "path": "lake", "name": "lake"}, {"type": "console"}]
    source, store = {"type": "delta", "path": "lake"}, MemoryMarkStore()
    job = JobModel.model_validate({"name": "orders", "source": source, "sinks": sinks})
    assert sinks_behind([job, CATALOG], Site(lake), store) == {}
    target = fm.sinks.Delta(str(lake / "lake")).describe()
    confirmed = RecordExtras().with_sinks({"lake": SinkLedger("floodmark.default.orders.lake", target, 2)})
    with hold(store, "orders") as held:
        store.commit(JobRecord("orders", 2, extras=confirmed), expected=0, lease=held.lease)
    [lost] = sinks_behind([job, CATALOG], Site(lake), store)["orders"]
    assert (lost.sink, lost.recorded, lost.confirmed) == ("lake", None, 2)


def test_rows_put_aside_that_are_gone_are_a_decision(store: MarkStore, tmp_path: Path) -> None:
    """Exit 5, as a run would; a quarantine that never had a batch is not asked."""
    job = fm.Job("orders", RowsSource([]), [ListSink()], dead_letters=str(tmp_path / "dead"))
    table = fm.sinks.Delta(str(tmp_path / "dead")).describe()
    confirmed = RecordExtras().with_sinks(
        {"@dead_letters": SinkLedger("floodmark.default.orders.dead_letters", table, 3)}
    )
    with hold(store, "orders") as held:
        store.commit(JobRecord("orders", 3, extras=confirmed), expected=0, lease=held.lease)
    lines = list(JobCheck(job.step(never, store, RunRequest())).results())
    asked = [(line.part, line.exit_code) for line in lines if line.part.startswith("sink")]
    assert asked == [("sink list", 0), ("sink dead_letters", 0), ("sink dead_letters", 5)]


@pytest.mark.parametrize("name", ["dead_letters", "quarantine"])
def test_rows_put_aside_that_are_gone_are_found_without_spark(lake: Path, name: str) -> None:
    """By the table that the project names, or the one by default."""
    sinks, source = [{"type": "delta", "path": "lake", "name": "lake"}], {"type": "delta", "path": "lake"}
    job = JobModel.model_validate({"name": "orders", "source": source, "sinks": sinks, "dead_letters": {}})
    target = fm.sinks.Delta(str(lake / "state" / name / "orders")).describe()
    ledger, store = SinkLedger(f"floodmark.default.orders.{name}", target, 2), MemoryMarkStore()
    confirmed = RecordExtras().with_sinks({f"@{name}": ledger})
    with hold(store, "orders") as held:
        store.commit(JobRecord("orders", 2, extras=confirmed), expected=0, lease=held.lease)
    [lost] = sinks_behind([job], Site(lake), store)["orders"]
    assert (lost.sink, lost.recorded, lost.confirmed) == (name, None, 2)


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


def test_a_server_that_says_nothing_is_not_waited_for_longer_than_asked(lake: Path) -> None:
    """It is absent, and those that answered are not."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://me:secret@127.0.0.1:{silent.getsockname()[1]}/shop"
        source = {"type": "postgres", "url": url, "table": "orders", "cursor": "id"}
        job = JobModel.model_validate({"name": "silent", "source": source, "sinks": [{"type": "console"}]})
        begun = time.monotonic()
        assert rows_behind([job, DELTA], Site(lake), MemoryMarkStore(), patience_seconds=2.0) == {"orders": 5}
        assert time.monotonic() - begun < 8


def test_a_database_is_asked_as_a_run_asks_it(tmp_path: Path, database: str) -> None:
    """It counts what lies above the mark; the connection ends with the question."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY)")
        connection.execute("INSERT INTO orders VALUES (1), (2), (7)")
        source = {"type": "postgres", "url": database, "table": "orders", "cursor": "id"}
        job = JobModel.model_validate({"name": "orders", "source": source, "sinks": [{"type": "console"}]})
        assert rows_behind([job], Site(tmp_path), MemoryMarkStore()) == {"orders": 3}


def test_folders_that_executors_do_not_see_are_found(
    store: MarkStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors elsewhere: asked only where the project's master is not local, for files sinks and the spool."""
    job = fm.Job("orders", RowsSource([], "id long"), [fm.sinks.Files(str(tmp_path / "out")), ListSink()], lambda r: r)
    step = job.step(lambda: None, store, RunRequest())
    monkeypatch.setattr(check, "hosts_without", lambda folder, spark: ["node7"] if folder.name == "out" else [])
    here, there = (list(JobCheck(step, master).results()) for master in ("local[*]", "yarn"))
    assert (rules(here), rules(there), exit_code(there)) == ([], ["FM508"], 2)
    assert f"node7 does not see {tmp_path / 'out'}" in next(line.message for line in there if line.rule)
    assert [line.part for line in there].count("disks") == 2


def checked_delta(folder: Path, version: int, **properties: str) -> list[tuple[str, str]]:
    """What check says of a Delta source whose mark is at a version: rule and words."""
    for number in range(3):
        write_deltalake(folder / "lake", pa.table({"id": [number]}), mode="append", configuration=properties)
    source, mark = fm.sources.Delta(str(folder / "lake")), VersionHWM("delta", version)
    return [(rule, words) for rule, words, _ in check.delta_remarks(source, mark, never)]


def test_how_long_a_table_keeps_what_its_reader_needs_is_told(tmp_path: Path) -> None:
    """By its own properties, or by Delta's defaults."""
    own = {"delta.deletedFileRetentionDuration": "interval 14 days", "delta.logRetentionDuration": "interval 60 days"}
    (tmp_path / "other").mkdir()
    assert checked_delta(tmp_path, 2) == [("", "the table keeps removed files for 7 days and its log for 30")]
    assert checked_delta(tmp_path / "other", 2, **own) == [
        ("", "the table keeps removed files for 14 days and its log for 60")
    ]


def test_a_reader_that_has_waited_for_half_of_that_is_warned(tmp_path: Path) -> None:
    """Vacuum takes the files that it still has to read."""
    short = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
    remarks = checked_delta(tmp_path, 0, **short)
    assert [rule for rule, _ in remarks] == ["", "FM505"]
    assert "what lies above version 0 has waited for 0 days" in remarks[1][1]


def test_a_mark_of_files_is_their_number_and_not_their_paths(store: MarkStore, tmp_path: Path) -> None:
    """A folder may have ten thousand of them."""
    paths = [f"/in/{number}.jsonl" for number in range(1000)]
    step = fm.Job("orders", fm.sources.Files(str(tmp_path)), [fm.sinks.Delta(str(tmp_path / "lake"))]).step(
        never, store, RunRequest()
    )
    with hold(store, "orders") as lease:
        record = JobRecord("orders", number=1, marks={"files": FileListHWM("in", paths)})
        store.commit(record, expected=0, lease=lease.lease)
    assert next(iter(JobCheck(step).results())).message == "at 1,000 files, the newest 999.jsonl"
