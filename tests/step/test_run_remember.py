"""What a look wants remembered although it found nothing to read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from floodmark import Job, stores
from floodmark.errors import MarkMissing
from floodmark.hwm import HWM, Json
from floodmark.sources.contract import Request, Session, Sight
from floodmark.stores.extras import RecordExtras
from floodmark.stores.lease import hold
from floodmark.stores.record import JobRecord
from floodmark.testing import ListSink, RowsSource

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from floodmark.stores.contract import MarkStore


@dataclass(frozen=True)
class Holding(RowsSource):
    """Rows that all wait, with something to remember."""

    pending: dict[str, Json] = field(default_factory=dict)
    asked: list[Request] = field(default_factory=list)

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        self.asked.append(request)
        return Sight(None, held_back=1, held_reason="somebody writes", pending=dict(self.pending))


KEPT = {"rows": {"pending": {"fence": [1]}}}


def no_session() -> SparkSession:
    raise AssertionError("nothing is read")


@pytest.fixture
def store(tmp_path: Path) -> MarkStore:
    return stores.open(f"file://{tmp_path}/marks")


def holding_job(pending: dict[str, Json], **sink: Any) -> Job:  # noqa: ANN401 (passed on)
    return Job(name="j", source=Holding([], pending=pending), sinks=[ListSink(**sink)])


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def test_what_is_pending_is_in_the_record_and_the_next_look_gets_it(store: MarkStore) -> None:
    """No mark, no number, no receipt: only something to remember."""
    job = holding_job({"fence": [1]})
    receipt = job.run(no_session, store)
    record = store.read("j")
    assert record is not None
    assert (receipt.rows_held_back, record.number, record.marks, record.extras.stored) == (1, 0, {}, KEPT)
    job.run(no_session, store)
    assert isinstance(job.source, Holding)
    assert [each.pending for each in job.source.asked] == [{}, {"fence": [1]}]


def test_a_look_that_learns_nothing_new_changes_no_byte(store: MarkStore, tmp_path: Path) -> None:
    """A loop may tick for hours before its fence is passed."""
    job = holding_job({"fence": [1]})
    job.run(no_session, store)
    before = files_of(tmp_path)
    job.run(no_session, store)
    assert files_of(tmp_path) == before


def test_what_is_pending_does_not_touch_what_was_remembered(store: MarkStore) -> None:
    """Keys of a tie stay when a fence comes, and another fence takes the place of the first."""
    with hold(store, "j") as lease:
        store.intend(JobRecord("j", extras=RecordExtras({"rows": {"ties": ["k"]}})), expected=0, lease=lease.lease)
    holding_job({"fence": [1]}).run(no_session, store)
    holding_job({"fence": [2]}).run(no_session, store)
    record = store.read("j")
    assert record is not None
    assert record.extras.stored == {"rows": {"ties": ["k"], "pending": {"fence": [2]}}}


def test_a_person_who_says_where_to_read_on_makes_it_forgotten(store: MarkStore) -> None:
    """The source may have been empty_frame and filled anew: what was final then says nothing now."""
    job = holding_job({"fence": [1]})
    job.run(no_session, store)
    job.run(no_session, store, start="7")
    job.run(no_session, store, full_refresh=True)
    assert isinstance(job.source, Holding)
    assert [each.pending for each in job.source.asked] == [{}, {}, {}]


def test_a_run_that_works_at_the_job_is_not_disturbed(store: MarkStore) -> None:
    """Whoever holds the lease looks for itself."""
    with hold(store, "j"):
        assert holding_job({"fence": [1]}).run(no_session, store).rows_held_back == 1
    assert store.read("j") is None


def test_a_pending_fence_is_no_mark(spark: SparkSession, store: MarkStore) -> None:
    """A target that holds rows, and a record with nothing but a fence: a person has to choose, as without a record."""
    holding_job({"fence": [1]}).run(no_session, store)
    job = Job(name="j", source=RowsSource([{"id": 1}]), sinks=[ListSink(rows=[{"id": 0}])])
    with pytest.raises(MarkMissing):
        job.run(spark, store)
