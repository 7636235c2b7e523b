"""A stream that left the join tree: its mark stays until a turn commits, and goes with it."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, cast

from floodmark import stores
from floodmark.hwm import KeyValueIntHWM
from floodmark.mill import JoinWith, get_field, join_streams
from floodmark.mill.progress import Watch
from floodmark.mill.turn import MillStep, MillWork
from floodmark.step.commit import record_after
from floodmark.step.engine import OpenBatch
from floodmark.stores.extras import RecordExtras
from floodmark.stores.lease import hold
from floodmark.stores.record import Intent, JobRecord
from tests.mill.cases import L, R, join_names
from tests.mill.offline import offline_mill

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.step.batch import Prepared

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


def test_a_commit_drops_the_marks_of_streams_that_left_the_tree(tmp_path: Path) -> None:
    """The intent may not change a mark; the commit may, and the others stay."""
    mill = offline_mill(join_names, {L: [[]], R: [[]]}, join_tree=join_streams(L, JoinWith(R, K, K)))
    store = stores.open("sqlite:///marks.db", folder=tmp_path)
    step = MillStep(store, no_spark, MillWork("mill", (), ()), planner=mill.planner, watch=Watch({}))
    with hold(store, "mill") as lease:
        store.commit(STORED, expected=0, lease=lease.lease)
        begun = step.cut_short(OpenBatch(STORED, INTENT, None), cast("Prepared", None), lease)
        store.commit(record_after(begun), expected=1, lease=lease.lease)
    kept = store.read("mill")
    assert kept is not None
    assert [sorted(part) for part in (kept.marks, kept.sources, kept.extras.stored)] == [["L", "R"]] * 3
