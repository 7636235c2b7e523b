"""Where the marks stay when a process function ends the stream in the middle of a turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, cast

import pytest

from floodmark import stores
from floodmark.errors import StoreUnreachable
from floodmark.hwm import KeyValueIntHWM
from floodmark.mill import JoinWith, function_call, get_field, join_streams, window
from floodmark.mill.pending import StreamMemory
from floodmark.mill.progress import RunState
from floodmark.mill.turn import MillStep, MillWork, ReturnedEnd, cut_at
from floodmark.step.commit import record_after
from floodmark.step.engine import OpenBatch
from floodmark.stores.extras import RecordExtras
from floodmark.stores.lease import hold
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import Intent, JobRecord, Lease
from tests.mill.cases import L, R, join_names
from tests.mill.offline import OfflineMill, offline_mill

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.step.batch import PreparedBatch

K = get_field("k")


def tens(element: dict[str, int]) -> int:
    return element["k"] // 10


def windowed(lefts: list[L], rights: Mapping[L, list[R]]) -> None:
    """Only its signature is used."""


def intent_of(mill: OfflineMill) -> Intent:
    """The next turn of a mill that has seen everything, as the step makes it durable."""
    for source in mill.broker.streams.values():
        source.arrived = {number: len(own) for number, own in enumerate(source.partitions)}
    intent = mill.intend()
    assert intent is not None
    return intent


def marks_of(intent: Intent) -> dict[str, Any]:
    return {name: span.upto.value for name, span in intent.spans.items()}


def test_the_mark_stays_behind_the_window_that_the_stream_was_ended_in() -> None:
    """Over all partitions that the window has elements of; what is joined stays where it was, for the next run."""
    left = [[L(1, "a"), L(2, "b"), L(11, "c"), L(31, "d")], [L(3, "e"), L(12, "f"), L(22, "g"), L(32, "h")]]
    right = [[R(k, str(k)) for k in (1, 2, 3, 11, 12, 30)]]
    tree = join_streams(window(L, function_call(tens)), JoinWith(R, K, K))
    mill = offline_mill(windowed, {L: left, R: right}, join_tree=tree)
    intent = intent_of(mill)
    assert marks_of(intent) == {"L": {0: 3, 1: 2}, "R": {0: 5}}
    cut = cut_at(ReturnedEnd({"k0": 0, "partition": 0}, next=2), intent, mill.planner)
    stopped: Any = cut.extras.serialize()["remember"]
    assert marks_of(cut) == {"L": {0: 2, 1: 1}, "R": {0: 0}}
    assert StreamMemory.from_json(stopped["L"]).has_stopped


K = get_field("k")
NAMES = ("L", "R", "S")
STORED = JobRecord(
    "mill",
    number=1,
    marks={name: KeyValueIntHWM(name, {0: 1}) for name in NAMES},
    sources=dict.fromkeys(NAMES, "list"),
    extras=RecordExtras({name: {} for name in NAMES}),
)
INTENT = Intent(2, "batch", {}, datetime(2026, 1, 1, tzinfo=timezone.utc), "attempt", None, {})


def no_spark() -> Any:  # noqa: ANN401
    raise AssertionError("nothing here needs Spark")


class ClosedStore(MemoryMarkStore):
    """It can be read, and nothing can be begun in it."""

    def intend(self, record: JobRecord, *, expected: int, lease: Lease) -> None:
        raise StoreUnreachable("memory", reason="it is closed")


def test_a_turn_that_failed_is_tried_again_though_nothing_has_risen() -> None:
    """What its look found waits still, whatever the next look finds new."""
    mill = offline_mill(
        join_names, {L: [[L(1, "a"), L(2, "b")]], R: [[R(2, "c")]]}, join_tree=join_streams(L, JoinWith(R, K, K))
    )
    mill.broker.streams[L].arrived, mill.broker.streams[R].arrived = {0: 2}, {0: 1}
    step = replace(mill.step, store=ClosedStore())
    for _ in range(2):
        with pytest.raises(StoreUnreachable):
            step.run()


def test_a_commit_drops_the_marks_of_streams_that_left_the_tree(tmp_path: Path) -> None:
    """The intent may not change a mark; the commit may, and the others stay."""
    mill = offline_mill(join_names, {L: [[]], R: [[]]}, join_tree=join_streams(L, JoinWith(R, K, K)))
    store = stores.open("sqlite:///marks.db", folder=tmp_path)
    step = MillStep(store, no_spark, MillWork("mill", (), ()), planner=mill.planner, run_state=RunState({}))
    with hold(store, "mill") as lease:
        store.commit(STORED, expected=0, lease=lease.lease)
        begun = step.cut_short(OpenBatch(STORED, INTENT, None), cast("PreparedBatch", None), lease)
        store.commit(record_after(begun), expected=1, lease=lease.lease)
    kept = store.read("mill")
    assert kept is not None
    assert [sorted(part) for part in (kept.marks, kept.sources, kept.extras.stored)] == [["L", "R"]] * 3
