"""What decides the rows is in the intent: an open batch is never finished from another source, or parsed otherwise."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import floodmark as fm
from floodmark.errors import CodeChanged, SourceChanged
from floodmark.step.spool import RowCounts, Spool
from floodmark.step.work import Work, options_fingerprint
from floodmark.stores.memory import MemoryMarkStore
from floodmark.testing import RowsSource
from tests.step.unsparked import Code, LedgerSink, PlainStep, RunPaused, no_session

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.sources.contract import Session, Source
    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import Intent


@dataclass(frozen=True)
class Table(RowsSource):
    """A list that is a table of some name."""

    table: str = "orders"

    def fingerprint(self, session: Session) -> str:
        return f"table {self.table}"


@pytest.fixture
def store() -> MarkStore:
    return MemoryMarkStore()


def step_over(store: MarkStore, source: Source, *sinks: LedgerSink) -> PlainStep:
    return PlainStep(store, no_session, Work("numbers", (source,), sinks, Code(), spool_folder="/nonexistent"))


def crash_in_second_sink(store: MarkStore, source: Source, *sinks: LedgerSink) -> None:
    sinks[-1].pauses = True
    with pytest.raises(RunPaused):
        step_over(store, source, *sinks).run()
    sinks[-1].pauses = False


def intent_in(store: MarkStore) -> Intent:
    record = store.read("numbers")
    assert record is not None
    assert record.intent is not None
    return record.intent


def test_source_changed(store: MarkStore) -> None:
    """The project names another table after a crash: the rows of the open batch are not there."""
    lake, copy = LedgerSink("lake"), LedgerSink("copy")
    crash_in_second_sink(store, Table([1, 2]), lake, copy)
    with pytest.raises(CodeChanged) as stop:
        step_over(store, Table([7, 8], table="other"), lake, copy).run()
    assert (stop.value.changed, stop.value.confirmed) == (("source 'rows'",), ("lake",))
    assert (lake.rows, copy.rows) == ([1, 2], [])


def test_another_way_to_parse_is_another_source(store: MarkStore) -> None:
    """Else two sinks would have two values for one row."""
    lake, copy = LedgerSink("lake"), LedgerSink("copy")
    crash_in_second_sink(store, Table([1, 2], schema="n int"), lake, copy)
    with pytest.raises(CodeChanged, match="source 'rows'"):
        step_over(store, Table([1, 2], schema="n string"), lake, copy).run()


def test_a_batch_that_no_sink_has_is_planned_again_from_the_source_of_today(
    store: MarkStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing was written of it; whether the mark belongs to the new source is asked then."""
    lake = LedgerSink("lake")
    crash_in_second_sink(store, Table([1, 2]), lake)
    with caplog.at_level(logging.INFO):
        receipt = step_over(store, Table([7, 8], table="other"), lake).run()
    assert "the code changed and no sink has it" in caplog.text
    assert (receipt.number, lake.rows) == (2, [7, 8])


def test_a_dropped_batch_does_not_pass_a_mark_of_another_source(store: MarkStore) -> None:
    """It is dropped, and then the run stops for the mark."""
    lake = LedgerSink("lake")
    step_over(store, Table([1]), lake).run()
    crash_in_second_sink(store, Table([1, 2]), lake)
    with pytest.raises(SourceChanged):
        step_over(store, Table([7, 8], table="other"), lake).run()
    assert lake.rows == [1]


def test_an_intent_of_an_earlier_version_tells_nothing_of_its_options(store: MarkStore) -> None:
    """It is finished as before; which source it was for it did tell."""
    lake, copy = LedgerSink("lake"), LedgerSink("copy")
    crash_in_second_sink(store, Table([1, 2]), lake, copy)
    intent = intent_in(store)
    old = {what: text for what, text in intent.fingerprints.items() if not what.startswith("source")}
    work = step_over(store, Table([1, 2], schema="n int"), lake, copy).work
    assert work.changes_since(replace(intent, fingerprints=old), no_session) == []
    other = step_over(store, Table([1, 2], table="other"), lake, copy).work
    assert other.changes_since(replace(intent, fingerprints=old), no_session) == ["source 'rows'"]


@pytest.mark.parametrize(("dead", "is_finished"), [(0, True), (1, False)])
def test_a_finished_spool_is_enough_unless_records_have_to_be_read_again(
    store: MarkStore, tmp_path: Path, dead: int, is_finished: bool
) -> None:
    """Its rows are the ones of then; what could not be parsed stands in the source alone."""
    from floodmark.step.intents import is_whole_in_spool

    lake, copy = LedgerSink("lake"), LedgerSink("copy")
    crash_in_second_sink(store, Table([1, 2]), lake, copy)
    (tmp_path / "spool").mkdir()
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "spool" / "part-0.parquet")
    Spool(str(tmp_path / "spool")).finish(RowCounts(2, dead))
    intent = intent_in(store)
    spooled = replace(intent, spool=str(tmp_path / "spool"))
    assert is_whole_in_spool(spooled, ["source 'rows'"]) is is_finished
    assert is_whole_in_spool(spooled, ["the transform", "source 'rows'"]) is is_finished
    assert is_whole_in_spool(spooled, ["the transform"])
    assert not is_whole_in_spool(spooled, ["the transform", "the place of dead letters"])


Options: TypeAlias = "fm.sources.Files | fm.sources.Postgres | fm.sources.Kafka | fm.sources.Delta"
FILES = fm.sources.Files("in", schema="id long")
TABLE = fm.sources.Postgres("postgresql://me:secret@db/shop", table="orders", cursor="id")
KAFKA = fm.sources.Kafka("127.0.0.1:9", "orders", options={"sasl.password": "one"})


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        (FILES, {"schema": "id string"}),
        (FILES, {"options": {"dateFormat": "yyyy"}}),
        (FILES, {"format": "csv"}),
        (TABLE, {"table": "customers"}),
        (TABLE, {"cursor": "changed"}),
        (TABLE, {"types": {"amount": "decimal(10,2)"}}),
        (KAFKA, {"topic": "other"}),
        (KAFKA, {"value": "text"}),
        (KAFKA, {"columns": ("offset",)}),
        (fm.sources.Delta("lake"), {"changes": "feed"}),
    ],
)
def test_an_option_that_decides_the_rows_is_part_of_the_fingerprint(source: Options, changes: dict[str, Any]) -> None:
    """Of every source."""
    assert options_fingerprint(replace(source, **changes)) != options_fingerprint(source)


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        (FILES, {"settle": "1m", "on_rewritten": "reread", "path": "./in"}),
        (TABLE, {"url": "postgresql://you:other@db/shop", "fetch_rows": 5, "partitions": 7}),
        (KAFKA, {"options": {"sasl.password": "two"}, "on_gap": "skip", "bootstrap": ["127.0.0.1:9", "127.0.0.1:10"]}),
    ],
)
def test_how_a_source_is_reached_looked_at_and_split_is_not(source: Options, changes: dict[str, Any]) -> None:
    """A new password, or another size of batches, must not force a decision."""
    assert options_fingerprint(replace(source, **changes)) == options_fingerprint(source)
