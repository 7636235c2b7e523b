"""Dead letters and quarantine are sinks: numbered, asked with the others, written after them and before the mark."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import floodmark as fm
from floodmark.errors import FloodmarkError, SinkAhead, SinkBehind, StoreUnreachable
from floodmark.hwm import ColumnIntHWM
from floodmark.jobs.dead_letters import replay_letters
from floodmark.probes.set_aside import rows_set_aside
from floodmark.rules import RuleSet
from floodmark.sinks.contract import Recorded
from floodmark.step import Step
from floodmark.step.looking import Ledgers, ledgers_of, read_ledgers, require_agreement, sinks_behind
from floodmark.step.run import accept_sinks
from floodmark.step.work import Work
from floodmark.stores.extras import RecordExtras, SinkLedger
from floodmark.stores.lease import hold
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import Intent, JobRecord
from floodmark.testing import FailingStore, ListSink, RowsSource
from tests.sinks.batches import no_session
from tests.step.aside import LEDGER, work_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


POSITIVE = fm.rules.check("id > 0", action="quarantine", name="positive")


@pytest.mark.parametrize("name", ["letters", "quarantine"])
def test_a_number_that_only_rows_put_aside_have_is_taken(name: str) -> None:
    """Under it, or a lower one, the rows of a new batch would be swallowed as a repeat."""
    ledgers = read_ledgers(work_of(**{name: Recorded(7, "digest")}), "default", no_session)
    assert ledgers.highest == 7


@pytest.mark.parametrize(("given", "name"), [("letters", "dead_letters"), ("quarantine", "quarantine")])
def test_a_batch_whose_rows_were_put_aside_is_one_that_somebody_has(given: str, name: str) -> None:
    """Dropped and planned again, its rows would be aside and in the sinks; a fence there holds no row."""
    ledgers = read_ledgers(work_of(**{given: Recorded(4, "digest")}), "default", no_session)
    fenced = read_ledgers(work_of(**{given: Recorded(4, is_fence=True)}), "default", no_session)
    assert (ledgers.sinks_touched_by(4), fenced.sinks_touched_by(4)) == ([name], [])


def test_of_a_quarantine_that_lost_a_batch_and_was_accepted_the_next_run_wants_no_more_than_it_has() -> None:
    """It is known under a key of its own, since a sink may have its name."""
    store, work = MemoryMarkStore(), work_of(quarantine=Recorded(2, "digest"))
    confirmed = RecordExtras().with_sinks(ledgers_of(work, "default", 3, work.aside_sinks[1:]))
    before = JobRecord("numbers", 3, {"rows": ColumnIntHWM("rows", 9)}, extras=confirmed)
    with hold(store, "numbers") as lease:
        store.commit(before, expected=0, lease=lease.lease)
    accepted = accept_sinks(Step(store, no_session, work))
    record = store.read("numbers")
    assert [(each.sink, each.recorded) for each in accepted if isinstance(each, SinkBehind)] == [("quarantine", 2)]
    assert {key: each.number for key, each in (record.extras.sinks if record else {}).items()} == {
        "lake": 3,
        "@quarantine": 2,
    }


def test_rules_that_were_taken_out_do_not_hide_what_they_put_aside() -> None:
    """The open batch was judged by them."""
    work = work_of(quarantine=Recorded(4, "digest"), rules=RuleSet())
    assert read_ledgers(work, "default", no_session).sinks_touched_by(4) == ["quarantine"]


def test_rows_put_aside_by_a_batch_that_the_store_does_not_know_stop_the_run() -> None:
    """As in every sink: the store is an older copy."""
    work, record = work_of(letters=Recorded(5, "digest")), JobRecord("numbers", 3, {"rows": ColumnIntHWM("rows", 9)})
    with pytest.raises(SinkAhead) as stop:
        require_agreement(work, "default", record, read_of(work))
    assert (stop.value.sink, stop.value.recorded, stop.value.stored) == ("dead_letters", 5, 3)


def test_letters_without_a_path_lie_beside_the_marks(tmp_path: Path) -> None:
    """As the quarantine does; a job that does not ask for them puts none aside."""
    store = fm.stores.open("sqlite:///marks.db", folder=tmp_path)
    plain = fm.Job("numbers", RowsSource([]), [ListSink()])
    sink = replace(plain, dead_letters=True).dead_letters_sink(store)
    assert (sink.path, plain.dead_letters_sink(store)) == (str(tmp_path / "dead_letters" / "numbers"), None)


def read_of(work: Work) -> Ledgers:
    return read_ledgers(work, "default", no_session)


def intent_of(work: Work) -> Intent:
    return Intent(4, "batch", {}, datetime.now(timezone.utc), "a1", None, work.fingerprints())


@pytest.mark.parametrize("name", ["dead_letters", "quarantine"])
def test_where_rows_are_put_aside_is_what_must_not_change_while_a_batch_is_open(name: str) -> None:
    """Rows of it may lie in the first table already, and nobody could ask for them in the second."""
    before = work_of(rules=RuleSet((POSITIVE,)))
    after = replace(before, **{name: TableOfItsOwn(name)})
    assert after.changes_since(intent_of(before), no_session) == [f"the place of {name}"]


def test_a_quarantine_that_is_moved_counts_also_where_its_rules_are_gone() -> None:
    """The open batch was judged by them; a table that the batch knew nothing of cannot have a row of it."""
    judged, moved = work_of(rules=RuleSet((POSITIVE,))), TableOfItsOwn("quarantine")
    later, plain = replace(judged, rules=RuleSet(), quarantine=moved), work_of()
    assert later.changes_since(intent_of(judged), no_session) == ["the rules", "the place of quarantine"]
    assert replace(plain, quarantine=moved).changes_since(intent_of(plain), no_session) == []


def called_as_the_quarantine(sink: Recorded | None, aside: Recorded | None) -> Work:
    """A job with a sink that has the name of its quarantine, and so the same id in another table."""
    work = work_of(quarantine=aside)
    return replace(work, sinks=(ListSink("quarantine", ledger={f"{LEDGER}.quarantine": sink} if sink else {}),))


def record_of(work: Work, number: int) -> JobRecord:
    """Sink and quarantine both confirmed the number."""
    extras = RecordExtras().with_sinks(ledgers_of(work, "default", number, work.aside_sinks[1:]))
    return JobRecord("numbers", number, {"rows": ColumnIntHWM("rows", 9)}, extras=extras)


def test_a_sink_may_be_called_as_the_quarantine_is() -> None:
    """The record knows each by a key of its own; the numbers of both count."""
    work = called_as_the_quarantine(Recorded(3, "digest"), Recorded(3, "digest"))
    record, ledgers = record_of(work, 3), read_of(work)
    require_agreement(work, "default", record, ledgers)
    assert (ledgers.highest, ledgers.sinks_below(work.by_key(), 3)) == (3, [work.dead_letters])
    assert list(record.extras.sinks) == ["quarantine", "@quarantine"]


@pytest.mark.parametrize(
    ("sink", "aside", "target"),
    [
        (Recorded(2, "digest"), Recorded(3, "digest"), "list 'quarantine' in memory"),
        (Recorded(3, "digest"), Recorded(2, "digest"), "quarantine table"),
    ],
)
def test_of_a_sink_and_a_quarantine_of_one_name_each_is_missed_for_itself(
    sink: Recorded, aside: Recorded, target: str
) -> None:
    """Under one key the one that has its rows would have answered for the other."""
    work = called_as_the_quarantine(sink, aside)
    table = TableOfItsOwn("quarantine", ledger=work.quarantine.ledger)  # type: ignore[union-attr]
    work = replace(work, quarantine=table)
    with pytest.raises(SinkBehind) as stop:
        require_agreement(work, "default", record_of(work, 3), read_of(work))
    assert (stop.value.target, stop.value.recorded, stop.value.confirmed) == (target, 2, 3)


class TableOfItsOwn(ListSink):
    """A sink with another target than others of its name."""

    def describe(self) -> str:
        return f"{self.name} table"

    def fingerprint(self) -> str:
        return self.describe()


def test_the_quarantine_of_an_earlier_record_is_not_taken_for_a_sink_of_its_name() -> None:
    """The record of then had both under one name, and meant the sink."""
    work = called_as_the_quarantine(Recorded(3, "digest"), None)
    work = replace(work, quarantine=TableOfItsOwn("quarantine"))
    ledger = SinkLedger(f"{LEDGER}.quarantine", "list 'quarantine' in memory", 3)
    extras = RecordExtras().with_sinks({"quarantine": ledger})
    marks = {"rows": ColumnIntHWM("rows", 9)}
    record = JobRecord("numbers", 3, marks, extras=extras)
    assert sinks_behind(work, "default", record, read_of(work)) == {}


@pytest.mark.parametrize("key", ["@dead_letters", "@quarantine", "dead_letters", "quarantine"])
def test_rows_put_aside_that_are_gone_are_noticed(key: str) -> None:
    """The table was dropped or is an older copy: rows that nobody dealt with may be missing."""
    name = key.removeprefix("@")
    work, ledger = work_of(), SinkLedger(f"{LEDGER}.{name}", f"list '{name}' in memory", 2)
    marks, extras = {"rows": ColumnIntHWM("rows", 9)}, RecordExtras().with_sinks({key: ledger})
    with pytest.raises(SinkBehind) as stop:
        require_agreement(work, "default", JobRecord("numbers", 3, marks, extras=extras), read_of(work))
    assert (stop.value.sink, stop.value.recorded, stop.value.confirmed) == (name, None, 2)


def strict(record: Any) -> dict[str, Any]:  # noqa: ANN401 (a record)
    """Fails on every third record."""
    if record["id"] % 3 == 0:
        raise ValueError("every third")
    return {"id": record["id"]}


def lenient(record: Any) -> dict[str, Any]:  # noqa: ANN401 (a record)
    return {"id": record["id"]}


def letters_job(home: Path, rows: list[dict[str, int]], sink: Any, function: Callable[[Any], Any] = strict) -> fm.Job:  # noqa: ANN401
    source, heal = RowsSource(rows, "id long"), fm.heal(function, schema="id long", on_error="dead_letter")
    return fm.Job("numbers", source, [sink], heal, dead_letters=str(home / "dead"))


def ids_put_aside(home: Path) -> list[str]:
    return sorted(str(row.record) for row in rows_set_aside(str(home / "dead"), "numbers") if row.status == "open")


def test_letters_are_kept_where_store_and_sink_begin_anew(spark: SparkSession, tmp_path: Path) -> None:
    """Their table knows the number of the first batch, from before."""
    sink = fm.sinks.Delta(str(tmp_path / "lake"))
    letters_job(tmp_path, [{"id": 3}], sink).run(spark, fm.stores.open("sqlite:///marks.db", folder=tmp_path))
    (tmp_path / "marks.db").unlink()
    shutil.rmtree(tmp_path / "lake")
    again = letters_job(tmp_path, [{"id": 6}], sink).run(spark, fm.stores.open("sqlite:///marks.db", folder=tmp_path))
    assert (ids_put_aside(tmp_path), again.rows_dead, again.number) == (['{"id":3}', '{"id":6}'], 1, 2)


def test_rows_are_put_aside_before_the_mark_passes_them(spark: SparkSession, tmp_path: Path) -> None:
    """A commit that fails finds them there; written after it, they would be lost by a kill in between."""
    work = replace(
        letters_job(tmp_path, [{"id": -1}, {"id": 2}, {"id": 3}], ListSink("lake")).work(MemoryMarkStore()),
        dead_letters=ListSink("dead_letters"),
        quarantine=ListSink("quarantine"),
        rules=RuleSet((POSITIVE,)),
        spool_folder=str(tmp_path / "spool"),
    )
    with pytest.raises(StoreUnreachable):
        Step(FailingStore(MemoryMarkStore(), {"commit": 1}), lambda: spark, work).run()
    kept = [[row.get("record") or row["id"] for row in sink.rows] for sink in work.all_sinks]  # type: ignore[attr-defined]
    assert kept == [[2], ['{"id":3}'], ['{"id":-1}']]


def test_dead_letters_and_quarantine_may_share_a_table(spark: SparkSession, tmp_path: Path) -> None:
    """A replay of the letters leaves the quarantined rows open: they are past the transform, and go nowhere with it."""
    sink, store = ListSink("lake"), fm.stores.open("sqlite:///marks.db", folder=tmp_path)
    rows, shared = [{"id": -1}, {"id": 2}, {"id": 3}], {"rules": [POSITIVE], "quarantine": str(tmp_path / "dead")}
    replace(letters_job(tmp_path, rows, sink), **shared).run(spark, store)
    replay_letters(replace(letters_job(tmp_path, rows, sink, lenient), **shared), (), lambda: spark, store)
    kept = rows_set_aside(str(tmp_path / "dead"), "numbers")
    assert [row["id"] for row in sink.rows] == [2, 3]
    assert sorted((row.kind, row.status) for row in kept) == [("dead_letter", "replayed"), ("quarantine", "open")]


def test_a_quarantine_that_a_fence_made_takes_rows(spark: SparkSession, tmp_path: Path) -> None:
    """A batch was given up before any row was put aside; its number stays closed there."""
    store = fm.stores.open("sqlite:///marks.db", folder=tmp_path)
    job = fm.Job("numbers", RowsSource([{"id": -1}], "id long"), [ListSink("lake")], rules=[POSITIVE])
    quarantine = job.quarantine_sink(store)
    quarantine.fence(f"{LEDGER}.quarantine", 1, lambda: spark)
    receipt = job.run(spark, store)
    kept = [(row.record, row.status) for row in rows_set_aside(str(quarantine.path), "numbers", "quarantine")]
    assert (receipt.number, receipt.rows_quarantined, kept) == (2, 1, [('{"id":-1}', "open")])


REFUSES_THE_COMMIT = """
    create table numbers (id bigint);
    create function refuse() returns trigger language plpgsql as $$ begin raise 'the server goes down'; end $$;
    create constraint trigger refused after insert on numbers deferrable initially deferred
        for each row execute function refuse()
"""


@pytest.mark.server
def test_rows_put_aside(spark: SparkSession, database: str, tmp_path: Path) -> None:
    """A sink's transaction fails at its very end, the code is corrected, the batch is planned again: each row once.

    Letters that were written inside the transaction would be open still, and their replay would double the rows.
    """
    sink, store = fm.sinks.Postgres(database, "numbers"), fm.stores.open(database)
    rows = [{"id": number} for number in range(1, 7)]
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(REFUSES_THE_COMMIT)
        with pytest.raises(FloodmarkError, match="goes down"):
            letters_job(tmp_path, rows, sink).run(spark, store)
        connection.execute("drop trigger refused on numbers")
        corrected = letters_job(tmp_path, rows, sink, lenient)
        corrected.run(spark, store)
        replay_letters(corrected, (), lambda: spark, store)
        found = connection.execute("select id from numbers order by id").fetchall()
    assert found == [(number,) for number in range(1, 7)]
