"""Tables of rows that were put aside, as earlier versions wrote them: read, replayed and written on.

Both were made by the code at eb84c05, with every state that a row could be in; one row of the quarantine was claimed by
a replay that failed between two sinks.
"""

from __future__ import annotations

import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import floodmark as fm
from floodmark.hwm import ColumnIntHWM
from floodmark.jobs.dead_letters import discard_letters, replay_letters
from floodmark.jobs.quarantine import Quarantine, Selection, replay
from floodmark.probes.set_aside import rows_set_aside
from floodmark.stores.lease import hold
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import JobRecord
from floodmark.testing import ListSink, RowsSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.stores.contract import MarkStore

TABLES = Path(__file__).parent / "version_1" / "set_aside"
RULES = (
    fm.rules.check("amount > 0", action="quarantine", name="positive"),
    fm.rules.range("id", max=4, action="drop", name="small id"),
)


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TABLES, tmp_path / "tables"))


def store_of(job: str) -> MarkStore:
    """A store in which the job has done the batches that the tables are of."""
    store = MemoryMarkStore()
    with hold(store, job) as held:
        store.commit(JobRecord(job, 3, {"rows": ColumnIntHWM("rows", 1)}), expected=0, lease=held.lease)
    return store


def test_dead_letters_are_read_with_their_states() -> None:
    """One was replayed, one failed again, one was given up."""
    rows = rows_set_aside(str(TABLES / "dead_letters"), "ids")
    assert sorted((json.loads(str(row.text))["v"], row.kind, row.status, row.attempts) for row in rows) == [
        ("eight", "dead_letter", "open", 2),
        ("nine", "dead_letter", "discarded", 1),
        ("seven", "dead_letter", "replayed", 2),
    ]


def test_a_quarantine_is_read_with_its_states() -> None:
    """A row of which a replay had begun says so."""
    rows = rows_set_aside(str(TABLES / "quarantine"), "shop")
    assert sorted((json.loads(str(row.record))["id"], row.kind, row.reasons, row.status) for row in rows) == [
        (2, "quarantine", ("positive",), "replayed"),
        (3, "quarantine", ("positive",), "replaying"),
        (4, "quarantine", ("positive",), "discarded"),
        (9, "quarantine", ("positive", "small id"), "open"),
    ]


@pytest.mark.spark
def test_a_quarantine_is_replayed_and_written_on(spark: SparkSession, tables: Path) -> None:
    """The claim is finished as it was repaired, the open row is a batch of the job, and new rows have the new shape."""
    sinks = (ListSink("first"), ListSink("second"))
    arrived = [{"id": number, "amount": Decimal(-5)} for number in (0, 1)]
    source = RowsSource(arrived, "id long, amount decimal(10,2)")
    job = fm.Job("shop", source, sinks, rules=RULES, quarantine=str(tables / "quarantine"))
    store = store_of("shop")
    done = replay(job, Selection(number=1), {"id": "4", "amount": "-amount"}, lambda: spark, store)
    job.run(spark, store)
    assert (len(done.finished), done.rows_selected, done.rows_written) == (1, 1, {"first": 1, "second": 1})
    assert [[(row["id"], str(row["amount"])) for row in sink.rows] for sink in sinks] == [
        [(3, "2.00"), (4, "7.00")],
        [(3, "2.00"), (4, "7.00")],
    ]
    groups = Quarantine.of(job, lambda: spark, store).groups()
    assert sorted((each.number, each.status, each.rows) for each in groups) == [
        (1, "discarded", 1),
        (1, "replayed", 1),  # rows that broke two rules stand apart
        (1, "replayed", 2),
        (5, "open", 1),
    ]


@pytest.mark.spark
def test_dead_letters_are_replayed_and_given_up(spark: SparkSession, tables: Path) -> None:
    """The states of the earlier version count, and those of this one are written beside them."""
    sink, path = ListSink(), str(tables / "dead_letters")
    heal = fm.heal(lambda record: {"id": len(record["v"])}, schema="id long", on_error="dead_letter")
    job = fm.Job("ids", RowsSource([], "v string"), [sink], heal, dead_letters=path, spool=str(tables / "spool"))
    store = store_of("ids")
    receipt = replay_letters(job, (), lambda: spark, store)
    assert (receipt.rows_read, sink.rows) == (1, [{"id": 5}])
    assert discard_letters(job, (), lambda: spark, store) == 0
    assert sorted(row.status for row in rows_set_aside(path, "ids")) == ["discarded", "replayed", "replayed"]
