"""The end of a batch: what is asked, put aside and counted between the sinks and the mark, and in which order."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest

from floodmark.errors import SourceRewritten
from floodmark.rules import RuleSet, Tally
from floodmark.step.batch import PreparedBatch
from floodmark.step.checks import Judgement
from floodmark.step.commit import BatchCommit, JoinedCommit, receipt_notes
from floodmark.step.engine import Clock, OpenBatch
from floodmark.step.spool import RowCounts
from floodmark.stores.extras import RecordExtras, SinkLedger
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import Intent, JobRecord
from floodmark.testing import ListSink, RowsSource
from tests.sinks.batches import batch
from tests.step.aside import LEDGER, work_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from floodmark.sinks.contract import Way
    from floodmark.stores.record import IntentKind


class JoinedStore(MemoryMarkStore):
    """A store that every sink's transaction reaches; remembers what was committed in one."""

    def __init__(self) -> None:
        super().__init__()
        self.joined: list[int] = []

    def is_reached_by(self, connection: object, lease: object) -> bool:
        return True

    def commit_within(self, connection: object, record: JobRecord, **_: object) -> None:
        self.joined.append(record.number)


def commit_of(
    store: JoinedStore, counts: RowCounts, kind: str = "batch", before: Mapping[str, SinkLedger] | None = None
) -> BatchCommit:
    """The end of batch 4, which every sink has."""
    intent = Intent(4, "batch", {}, datetime.now(timezone.utc), "a1", None, {})
    record = JobRecord("numbers", 3, extras=RecordExtras().with_sinks(before or {}))
    return BatchCommit(
        work_of(),
        store,
        OpenBatch(record, intent, None),
        PreparedBatch(Judgement(RuleSet(), None, intent.batch_time), (), counts, {}),
        batch(4, kind=kind),
        SimpleNamespace(lease=None, check=lambda: None),
        Clock(),
        secluded=(),
    )


@pytest.mark.parametrize(
    ("counts", "kind", "joins"),
    [
        (RowCounts(read=9), "batch", True),
        (RowCounts(read=9, dead=2), "batch", False),
        (RowCounts(read=9, tally=Tally(judged=9, quarantined=1)), "batch", False),
        (RowCounts(read=9), "refresh", False),
    ],
    ids=["nothing", "letters", "quarantine", "refresh"],
)
def test_the_mark_joins_the_last_sinks_transaction_only_where_nothing_is_put_aside(
    counts: RowCounts, kind: str, joins: bool
) -> None:
    """What is put aside before a transaction that then fails would be open though the batch can still be dropped."""
    store = JoinedStore()
    JoinedCommit(commit_of(store, counts, kind), {}).commit_within(None, 9)
    assert store.joined == ([4] if joins else [])


@pytest.mark.parametrize(
    ("counts", "asked"), [(RowCounts(read=9), []), (RowCounts(read=9, dead=2), ["lease"])], ids=["nothing", "letters"]
)
def test_dead_letters_come_before_the_quarantine_and_both_before_the_mark(
    monkeypatch: pytest.MonkeyPatch, counts: RowCounts, asked: list[str]
) -> None:
    """A kill between two of them repeats what is there, and writes the rest; after the mark nobody would.

    Before rows are put aside the lease is asked for, and before the mark the sources, which may have changed meanwhile.
    """
    order: list[str] = []
    for act in ("write_dead_letters", "quarantine_broken", "require_unchanged_sources"):
        monkeypatch.setattr(f"floodmark.step.commit.{act}", lambda *_, act=act: order.append(act))
    lease = SimpleNamespace(lease=None, check=lambda: order.append("lease"))
    commit = replace(commit_of(JoinedStore(), counts), lease=cast("Any", lease))
    commit.save({}, lambda *_, **__: order.append("mark"))
    assert order == [*asked, "write_dead_letters", "quarantine_broken", "require_unchanged_sources", "mark"]


@pytest.mark.parametrize(
    ("secluded", "ways", "is_executed"),
    [
        ((), {}, True),
        (("lake",), {}, True),
        (("lake", "copy"), {}, False),
        (("lake", "copy"), {"copy": "arrow"}, True),
    ],
    ids=["none", "one", "both", "one through Arrow"],
)
def test_one_sink_that_is_not_secluded_is_enough_to_know_the_counts(
    secluded: tuple[str, ...], ways: dict[str, Way], is_executed: bool
) -> None:
    """Every row was counted on its way to it."""
    commit = commit_of(JoinedStore(), RowCounts(read=9))
    work = replace(commit.work, sinks=(ListSink("lake"), ListSink("copy")))
    commit = replace(commit, work=work, secluded=secluded)
    commit.batch.notes.ways.update(ways)
    assert commit.is_executed is is_executed


@pytest.mark.parametrize(
    ("kind", "notes"),
    [
        ("batch", ("finished a batch that an earlier run had begun",)),
        ("repair", ("a repair: the mark stays where it is", "finished a batch that an earlier run had begun")),
    ],
)
def test_a_receipt_says_of_a_batch_beside_the_marks_that_the_mark_stays(
    kind: IntentKind, notes: tuple[str, ...]
) -> None:
    """Else its reader would wonder where the mark went."""
    intent = Intent(4, kind, {}, datetime.now(timezone.utc), "a1", None, {})
    assert receipt_notes(None, intent) == notes


def test_a_source_that_changed_while_the_sinks_read_it_keeps_the_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who decides is told that the sinks have the batch; one that was frozen first was compared then."""

    def refuse(*_: object) -> None:
        raise SourceRewritten("rows", what="a.jsonl was changed", hint="look")

    monkeypatch.setattr("floodmark.step.commit.require_unchanged_sources", refuse)
    saved: list[str] = []
    commit = commit_of(JoinedStore(), RowCounts(read=9))
    with pytest.raises(SourceRewritten, match=r"a\.jsonl was changed, and batch 4 was written to lake with what was"):
        commit.save({}, lambda *_, **__: saved.append("mark"))
    assert saved == []
    replace(commit, prepared=replace(commit.prepared, spool=Mock())).save({}, lambda *_, **__: saved.append("mark"))
    assert saved == ["mark"]


@pytest.mark.parametrize(("frozen", "may"), [(None, False), (RowCounts(read=9), True)], ids=["read", "frozen"])
def test_one_source_that_may_give_other_rows_is_enough_not_to_count_again(
    monkeypatch: pytest.MonkeyPatch, frozen: RowCounts | None, may: bool
) -> None:
    """What was frozen was counted then."""
    monkeypatch.setattr("floodmark.step.commit.gives_same_rows", lambda source: source.name == "rows")
    commit = commit_of(JoinedStore(), RowCounts(read=9))
    work = replace(commit.work, sources=(RowsSource([]), RowsSource([], name="moving")))
    prepared = replace(commit.prepared, frozen_counts=frozen)
    assert replace(commit, work=work, prepared=prepared, secluded=("lake",)).can_recount() is may


@pytest.mark.parametrize(
    ("rows", "confirmed", "written"),
    [(9, (), 9), (0, (), 0), (0, ("lake",), None), (9, ("lake",), 9)],
    ids=["rows", "no rows", "a repeat", "a repeat that knows"],
)
def test_a_sink_that_has_the_batch_already_need_not_know_how_many_rows_it_took(
    monkeypatch: pytest.MonkeyPatch, rows: int, confirmed: tuple[str, ...], written: int | None
) -> None:
    """It says none then, which is not the number of rows."""
    saved: list[object] = []
    monkeypatch.setattr(BatchCommit, "save", lambda _commit, known, _save: saved.append(known))
    commit = commit_of(JoinedStore(), RowCounts(read=9))
    commit = replace(commit, open_batch=replace(commit.open_batch, confirmed_sinks=confirmed))
    JoinedCommit(commit, {"first": 3}).commit_within(None, rows)
    assert saved == [{"first": 3, "lake": written}]


def test_a_mark_in_another_database_does_not_join_the_sinks_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """It follows after the sink's own commit."""
    store = JoinedStore()
    monkeypatch.setattr(store, "is_reached_by", lambda *_: False)
    joined = JoinedCommit(commit_of(store, RowCounts(read=9)), {})
    joined.commit_within(None, 9)
    assert (store.joined, joined.receipt) == ([], None)


@pytest.mark.parametrize("key", ["@dead_letters", "dead_letters"])
def test_the_record_keeps_what_dead_letters_and_quarantine_confirmed_until_they_confirm_more(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """Few batches put a row aside: those that do not leave the number as it is. Once it stood under the plain name."""
    monkeypatch.setattr("floodmark.step.commit.write_dead_letters", lambda *_: None)
    monkeypatch.setattr("floodmark.step.commit.quarantine_broken", lambda *_: 1)
    before, saved = {key: SinkLedger(f"{LEDGER}.dead_letters", "list 'dead_letters' in memory", 2)}, []
    commit = commit_of(JoinedStore(), RowCounts(read=9), before=before)
    commit.save({}, lambda record, **_: saved.append(record.extras.sinks))
    assert {name: ledger.number for name, ledger in saved[0].items()} == {
        "@dead_letters": 2,
        "lake": 4,
        "@quarantine": 4,
    }
