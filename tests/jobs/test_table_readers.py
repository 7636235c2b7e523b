"""Tables that go back and those who read them, told by the logs alone: no session is ever asked for."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from floodmark import sinks, sources
from floodmark.errors import ConfigError
from floodmark.hwm import TableVersionsHWM, VersionHWM
from floodmark.jobs.job import Job
from floodmark.jobs.rollback import Past
from floodmark.jobs.table_readers import behind_restores, needs_of, newest_built_on, order, versions_read
from floodmark.medallion.facts import FactRows, TouchedDates
from floodmark.probes.delta import DeltaProbe, missing_files, note
from floodmark.sinks.delta.target import RestorePoint
from floodmark.step import RunRequest
from floodmark.stores.lease import hold
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import Intent, JobRecord, Receipt
from floodmark.testing import ListSink

if TYPE_CHECKING:
    from floodmark.step import Step

LEDGER = "floodmark.default.orders.delta"
NOW = datetime(2026, 11, 15, 12, tzinfo=timezone.utc)


def no_session() -> NoReturn:
    raise AssertionError("a session was asked for")


def add(table: Path, number: int | None, rows: pa.Table) -> None:
    """Rows of a batch, or of somebody else."""
    metadata = {"userMetadata": note(LEDGER, number, None)} if number is not None else {}
    write_deltalake(table, rows, mode="append", commit_properties=CommitProperties(custom_metadata=metadata))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Batches 1, 2 and 4 of a job as versions 0, 1 and 3; the table was compacted in between."""
    place = tmp_path / "orders"
    add(place, 1, pa.table({"id": [1]}))
    add(place, 2, pa.table({"id": [2]}))
    DeltaTable(place).optimize.compact()
    add(place, 4, pa.table({"id": [4]}))
    return place


def after(table: Path, number: int) -> RestorePoint:
    return RestorePoint.after(sinks.Delta(str(table)), LEDGER, number, no_session)


def test_a_reader_is_judged_by_the_rows_it_has_read(table: Path) -> None:
    """Upkeep makes versions and no rows: a reader behind it has read nothing more."""
    point = after(table, 2)
    assert (point.version, point.latest, point.first_change, point.name) == (1, 3, 3, str(table))
    assert [point.holds(version) for version in range(4)] == [True, True, True, False]
    assert [point.is_same(version) for version in range(4)] == [False, True, True, False]


def test_a_batch_that_wrote_to_other_tables_left_this_one_as_it_was(table: Path) -> None:
    """A repair writes to one sink of its job alone."""
    assert (after(table, 3).version, after(table, 4).version) == (1, 3)
    with pytest.raises(ConfigError, match=f"the log of delta table {table} does not have batch 0"):
        after(table, 0)


def test_rows_of_others_are_not_undone(table: Path) -> None:
    """Whoever they are."""
    add(table, None, pa.table({"id": [9]}))
    with pytest.raises(ConfigError, match=r"version 4 of .* \(WRITE\) is not of this job"):
        after(table, 2)


def test_files_that_are_needed_again_have_to_be_there(tmp_path: Path) -> None:
    """Folders of partitions may be called anything; what both versions have is not looked for."""
    write_deltalake(tmp_path / "t", pa.table({"c": ["a b", "ü%", "x/y"], "id": [1, 2, 3]}), partition_by=["c"])
    write_deltalake(tmp_path / "t", pa.table({"c": ["a b"], "id": [4]}), mode="overwrite")
    assert missing_files(str(tmp_path / "t"), 0, 1) == ()
    [lost] = (tmp_path / "t").glob("*x*/*.parquet")
    lost.unlink()
    assert missing_files(str(tmp_path / "t"), 0, 1) == (f"{lost.parent.name}/{lost.name}",)
    assert (missing_files(str(tmp_path / "t"), 1, 1), missing_files(str(tmp_path / "t"), 0, 7)) == ((), None)


@pytest.mark.parametrize(("read", "followed"), [(0, 0), (1, 4), (2, 4), (3, 3)])
def test_a_mark_follows_the_restore_of_the_rows_that_it_stands_for(table: Path, read: int, followed: int) -> None:
    """One that has read less has rows to read in between; one that has read more has rows that are gone."""
    DeltaTable(table).restore(1)
    source = sources.Delta(str(table))
    marks = {"delta": VersionHWM("delta", read, entity=str(table)), "other": VersionHWM("other", 1)}
    found = behind_restores([source], marks, no_session)
    assert {name: mark.value for name, mark in found.items()} == {"delta": followed, "other": 1}


def test_a_fact_follows_with_each_of_its_tables(table: Path) -> None:
    """Its one mark is the version of every input."""
    DeltaTable(table).restore(1)
    fact = TouchedDates(FactRows("orders", str(table), date="day"))
    marks = {"inputs": TableVersionsHWM("inputs", {"orders": 1, "prices": 6})}
    record = JobRecord("gold", 1, marks, {"inputs": fact.fingerprint(no_session)})
    assert versions_read(record) == {DeltaProbe(str(table)).table_id(): 1}
    assert behind_restores([fact], marks, no_session)["inputs"].value == {"orders": 4, "prices": 6}


def test_the_state_that_fits_a_reader_is_its_newest_with_nothing_that_goes(table: Path) -> None:
    """By its marks; one that had read nothing of the table says nothing."""
    read = {"delta": sources.Delta(str(table)).fingerprint(no_session)}
    records = [
        JobRecord("gold", number, {"delta": VersionHWM("delta", version)} if version is not None else {}, read)
        for number, version in [(5, None), (4, 3), (3, 2), (2, 0)]
    ]
    point = after(table, 2)
    found = newest_built_on(Past("gold", tuple(records)), {point.table_id: point})
    assert found == records[2]


def step(name: str, reads: str, fills: str) -> Step:
    job = Job(name, sources.Delta(reads), [sinks.Delta(fills)])
    return job.step(no_session, MemoryMarkStore(), RunRequest())


def test_tables_go_back_before_their_readers() -> None:
    """Killed in between, a reader is at worst ahead of a table, which stops it, and never reads on from bad rows."""
    steps = [step("gold", "/silver", "/gold"), step("other", "/x", "/y"), step("silver", "/bronze", "/silver")]
    assert order(needs_of(each.work for each in steps)) == ["other", "silver", "gold"]
    circle = [step("a", "/two", "/one"), step("b", "/one", "/two")]
    assert order(needs_of(each.work for each in circle)) == ["a", "b"]


def test_a_job_that_is_in_step_with_a_restored_table_follows_it_by_its_mark_alone(table: Path) -> None:
    """Whatever its sinks are, since nothing is written; also later, if the rollback was killed before its turn."""
    DeltaTable(table).restore(1)
    gold, store = Job("gold", sources.Delta(str(table)), [ListSink()]), MemoryMarkStore()
    with hold(store, "gold") as held:
        read = {"delta": gold.sources[0].fingerprint(no_session)}
        record = JobRecord("gold", 1, {"delta": VersionHWM("delta", 2)}, read, modified_time=NOW)
        store.commit(record, expected=0, lease=held.lease, receipt=Receipt("gold", "g1", "done", NOW, number=1))
        store.intend(replace(record, intent=open_batch(2)), expected=1, lease=held.lease)
    assert gold.rollback("g1", no_session, store).intent == open_batch(2)
    with hold(store, "gold") as held:
        store.intend(record, expected=1, lease=held.lease)
    back = gold.rollback("g1", no_session, store)
    assert (back.number, back.origin, back.marks["delta"].value) == (2, "rollback", 4)
    assert gold.rollback("last-good", no_session, store) == back


def open_batch(number: int) -> Intent:
    """Part of which may be out: a list takes no batch back."""
    return Intent(number, "batch", {}, NOW, "a1", None, {})
