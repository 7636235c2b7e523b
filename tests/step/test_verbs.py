"""What a step and the acts on its marks do at their edges, with rows that are plain lists."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest

from floodmark.errors import ConfigError, SinkFailed, SourceEmpty
from floodmark.hwm import ColumnIntHWM, Span
from floodmark.sinks.contract import Batch
from floodmark.sources.contract import Request, Session, Sight
from floodmark.step.commit import record_after
from floodmark.step.engine import OpenBatch, session_under
from floodmark.step.intents import work_of
from floodmark.step.looking import Outlook, marks_after
from floodmark.step.run import Step, set_mark
from floodmark.step.work import RunRequest, Work
from floodmark.stores.extras import IntentExtras, OutsideBatch, RecordExtras, SourceMemory
from floodmark.stores.lease import hold
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import Intent, JobRecord
from floodmark.testing import RowsSource
from tests.step.unsparked import Code, LedgerSink, PlainStep, no_session, step_of

if TYPE_CHECKING:
    from floodmark.hwm import Json
    from floodmark.step.batch import PreparedBatch
    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import IntentKind

NOON = datetime(2026, 11, 15, 12, tzinfo=timezone.utc)


@pytest.fixture
def store() -> MarkStore:
    return MemoryMarkStore()


def save(store: MarkStore, record: JobRecord) -> None:
    with hold(store, record.job) as lease:
        store.commit(record, expected=0, lease=lease.lease)


@dataclass(frozen=True)
class Settling(RowsSource):
    """A source whose rows can be read once it has been waited for."""

    looks: list[int] = field(default_factory=list)

    def look(self, mark: Any, request: Request, session: Session) -> Sight:  # noqa: ANN401 - as the contract says
        self.looks.append(1)
        return Sight(None, settles_in_seconds=7.0) if len(self.looks) == 1 else super().look(mark, request, session)


def test_a_mark_can_be_set_where_there_is_one(store: MarkStore) -> None:
    """Of two nobody could say which is meant; the hint says how else."""
    marks = {name: ColumnIntHWM(name, 4) for name in ("one", "two")}
    save(store, JobRecord("numbers", 1, marks))
    with pytest.raises(ConfigError, match="has 2 marks"):
        set_mark(step_of(store, [1], LedgerSink("lake")), "3")


@pytest.mark.parametrize("pending", [{}, {"fence": [1]}])
def test_what_was_waited_for_at_the_old_mark_is_forgotten_with_it(store: MarkStore, pending: dict[str, Any]) -> None:
    """What goes with the source stays; the mark is another one."""
    extras = RecordExtras().with_source("rows", SourceMemory({"kept": 1}, pending))
    save(store, JobRecord("numbers", 1, {"rows": ColumnIntHWM("rows", 4)}, extras=extras))
    set_mark(step_of(store, [1, 2], LedgerSink("lake")), "2")
    record = store.read("numbers")
    assert record is not None
    assert record.extras.source("rows") == SourceMemory({"kept": 1}, {})
    assert (record.marks["rows"].value, record.origin, record.number) == (2, "set", 2)


@pytest.mark.parametrize(("waits", "slept"), [(True, [7.0]), (False, [])])
def test_a_run_that_has_time_waits_for_files_that_settle(
    store: MarkStore, monkeypatch: pytest.MonkeyPatch, *, waits: bool, slept: list[float]
) -> None:
    """A loop looks again soon, and does not wait."""
    pauses: list[float] = []
    monkeypatch.setattr("floodmark.step.run.time.sleep", pauses.append)
    work = Work("numbers", (Settling([1, 2]),), (LedgerSink("lake"),), Code())
    receipt = PlainStep(store, no_session, work, RunRequest(waits_for_settling=waits)).run()
    assert (receipt.status, pauses) == ("done" if waits else "nothing_new", slept)


def test_a_full_refresh_of_an_empty_source_is_refused(store: MarkStore) -> None:
    """It would leave every target empty; a run without it finds nothing new."""
    with pytest.raises(SourceEmpty):
        step_of(store, [], LedgerSink("lake"), request=RunRequest(full_refresh=True)).run()
    assert step_of(store, [], LedgerSink("lake")).run().status == "nothing_new"


@dataclass(frozen=True)
class FailingStep(PlainStep):
    """A step whose rows cannot be read."""

    def prepare(self, intent: Intent) -> PreparedBatch:
        raise self.error_for(RuntimeError("no such column"), "spool", intent, None)  # type: ignore[arg-type]


def test_what_fails_before_a_sink_is_an_error_of_ours(store: MarkStore) -> None:
    """The batch stays open."""
    step = step_of(store, [1], LedgerSink("lake"))
    with pytest.raises(SinkFailed, match="no such column"):
        FailingStep(store, no_session, step.work).run()
    record = store.read("numbers")
    assert record is not None
    assert record.intent is not None


def test_a_disk_that_takes_no_spool_fails_the_run_before_the_batch_is_open(store: MarkStore, tmp_path: Any) -> None:  # noqa: ANN401
    """Nothing is left to be finished."""
    (tmp_path / "file").write_text("no folder")
    step = step_of(store, [1], LedgerSink("lake"))
    with pytest.raises(SinkFailed) as stop:
        step.begin_spool(str(tmp_path / "file" / "spool"))
    assert stop.value.sink == "spool"


def test_the_jvm_that_writes_is_written_into_the_lease(store: MarkStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may outlive this process, and is waited for then."""
    monkeypatch.setattr("floodmark.step.engine.jvm_pid", lambda _: 1)
    with hold(store, "numbers") as lease:
        session_under(lease, lambda: None)()  # type: ignore[arg-type,return-value]
        stored = store.lease("numbers")
    assert stored is not None
    assert stored.owner.jvm_pid == 1


@dataclass
class JoinedSink(LedgerSink):
    """Asks for the caller's act in its own transaction; notes that it was asked for its rows so."""

    def write_joined(self, rows: Any, batch: Any, in_transaction: Any) -> int:  # noqa: ANN401 - as the contract says
        self.calls.append("joined")
        return self.write(rows, batch)


def test_only_the_last_sink_takes_the_mark_into_its_transaction(store: MarkStore) -> None:
    """Before the others have the batch, the mark must not move."""
    first, last = JoinedSink("first"), JoinedSink("last")
    step_of(store, [1], first, last).run()
    assert (first.calls, last.calls) == (["write 1"], ["joined", "write 1"])


def outlook(**sights: Sight) -> Outlook:
    return Outlook(sights, {})


SPAN = Span(None, ColumnIntHWM("rows", 9))


def test_an_outlook_tells_why_rows_wait() -> None:
    """Of every source that holds some back; nothing, where none does."""
    held = outlook(a=Sight(None, 1, "somebody writes"), b=Sight(SPAN), c=Sight(None, 2, "files settle"))
    assert (held.held_back, held.held_reason) == (3, "somebody writes; files settle")
    assert held.idle_notes == ("somebody writes; files settle",)
    assert (outlook(a=Sight(SPAN)).held_reason, outlook(a=Sight(SPAN)).idle_notes) == (None, ())


@pytest.mark.parametrize(
    ("sights", "rows"),
    [
        ({"a": Sight(SPAN, expected_rows=4), "b": Sight(SPAN, expected_rows=5)}, 9),
        ({"a": Sight(SPAN, expected_rows=4), "b": Sight(SPAN)}, None),
        ({"a": Sight(SPAN, expected_rows=4), "b": Sight(None)}, 4),
    ],
)
def test_expected_rows_are_known_if_every_source_with_rows_tells(sights: dict[str, Sight], rows: int | None) -> None:
    """One that has nothing new is not asked."""
    assert outlook(**sights).expected_rows == rows


def intent(kind: Any, **extras: Any) -> Intent:  # noqa: ANN401 - a kind of intent, and parts of its extras
    return Intent(2, kind, {"rows": SPAN}, NOON, "a1", None, {}, IntentExtras(**extras))


def test_a_refresh_puts_new_marks_in_the_place_of_all_and_a_batch_keeps_the_others() -> None:
    """A source that was taken out leaves its mark only until everything is rebuilt."""
    record = JobRecord("numbers", 1, {"gone": ColumnIntHWM("gone", 3), "rows": ColumnIntHWM("rows", 4)})
    assert {name: mark.value for name, mark in marks_after(record, intent("batch")).items()} == {"gone": 3, "rows": 9}
    assert {name: mark.value for name, mark in marks_after(record, intent("refresh")).items()} == {"rows": 9}


def test_a_repair_of_a_sink_that_is_not_there_any_more_is_said() -> None:
    """It writes to that one alone."""
    work = Work("numbers", (RowsSource([]),), (LedgerSink("lake"), LedgerSink("copy")))
    assert [sink.name for sink in work_of(intent("repair", outside=OutsideBatch(sink="copy")), work).sinks] == ["copy"]
    with pytest.raises(ConfigError, match="no such sink any more"):
        work_of(intent("repair", outside=OutsideBatch(sink="gone")), work)


def test_quarantined_rows_are_past_the_transform_and_letters_are_not() -> None:
    """A replay of the one writes rows as they are, of the other it transforms them."""
    from floodmark.sinks import Delta

    aside = {"dead_letters": Delta("/nowhere/letters"), "quarantine": Delta("/nowhere/quarantine")}
    work = Work("numbers", (RowsSource([]),), (LedgerSink("lake"),), Code(), **aside)  # type: ignore[arg-type]
    spooled = replace(intent("replay", outside=OutsideBatch(kind="quarantine")), spool="/nowhere/spool")
    letters = replace(intent("replay", outside=OutsideBatch()), spool="/nowhere/spool")
    assert [work_of(each, work).transform == Code() for each in (spooled, letters)] == [False, True]


@pytest.mark.parametrize(("kind", "kept"), [("batch", {"ties": [1], "fence": 7}), ("refresh", {"fence": 7})])
def test_a_refresh_forgets_what_was_remembered_and_a_batch_adds_to_it(kind: IntentKind, kept: dict[str, Json]) -> None:
    """After a refresh nothing of the earlier rows is left that could be known again, or waited for."""
    record = JobRecord("numbers", 3, extras=RecordExtras({"ties": [1]}))
    learned = IntentExtras(remember=RecordExtras({"fence": 7}))
    intent = Intent(4, kind, {}, NOON, "a1", None, {}, learned)
    assert record_after(OpenBatch(record, intent, None)).extras.stored == kept


@dataclass
class ShapedSink(LedgerSink):
    """A sink that notes when it is asked which columns its target has."""

    def schema(self, session: Session) -> None:
        self.calls.append("schema")


def test_rows_that_take_the_place_of_all_need_not_fit_the_columns_of_today(store: MarkStore) -> None:
    """A refresh makes the target anew; any other batch is compared with what is there."""
    sink, rows = ShapedSink("lake"), Mock(columns=["n"])
    step = step_of(store, [], sink)
    for kind in ("batch", "refresh"):
        batch = Batch("default", "numbers", 1, "a1", "digest", cast("Any", kind), NOON)
        assert Step.fit(step, rows, sink, batch) is rows
        sink.calls.append(kind)
    assert sink.calls == ["schema", "batch", "refresh"]
