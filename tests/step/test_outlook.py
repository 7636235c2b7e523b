"""What all sources of a job showed together, and what is asked of each."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from floodmark.errors import MarkMissing
from floodmark.hwm import ColumnIntHWM, Span
from floodmark.sources.contract import Sight
from floodmark.step.intents import with_options
from floodmark.step.looking import Ledgers, Outlook, require_a_beginning, source_request
from floodmark.step.work import RunRequest, Work
from floodmark.stores.extras import RecordExtras, SourceMemory
from floodmark.stores.record import JobRecord
from floodmark.testing import ListSink, RowsSource
from tests.sinks.batches import no_session

SPAN = Span(None, ColumnIntHWM("id", 7))


@pytest.mark.parametrize(
    ("sights", "expected"),
    [
        ((Sight(SPAN, expected_bytes=10), Sight(SPAN, expected_bytes=5)), 15),
        ((Sight(SPAN, expected_bytes=10), Sight(None)), 10),
        ((Sight(SPAN, expected_bytes=10), Sight(SPAN)), None),
    ],
    ids=["two", "one has nothing new", "one cannot tell"],
)
def test_the_size_of_a_batch_is_known_where_every_source_that_has_rows_tells_its_own(
    sights: tuple[Sight, Sight], expected: int | None
) -> None:
    """A batch that is taken for smaller than it is would go through the driver."""
    assert outlook(*sights).expected_bytes == expected


def test_the_share_that_is_left_is_that_of_the_source_with_the_most() -> None:
    """A loop goes on at once as long as one source has more."""
    assert outlook(Sight(SPAN, ahead=0.2), Sight(SPAN, ahead=0.5), Sight(SPAN)).ahead == 0.5
    assert outlook(Sight(SPAN), Sight(None)).ahead is None


def test_a_run_that_waits_for_files_waits_for_the_last_of_them() -> None:
    """Those that settle earlier are there by then."""
    assert outlook(Sight(None, settles_in_seconds=2.0), Sight(None, settles_in_seconds=4.0)).settles_in_seconds == 4.0


def test_a_source_without_new_rows_keeps_what_it_remembers_and_learns_what_is_pending() -> None:
    """What it remembers belongs to its mark, which stays; of one with nothing to learn nothing is said."""
    before = RecordExtras().with_source("0", SourceMemory({"ties": [7]}))
    looked = outlook(Sight(None, extras={"ties": [8]}, pending={"fence": 9}), Sight(None, extras={"ties": [1]}))
    assert looked.extras_after(before) == RecordExtras().with_source("0", SourceMemory({"ties": [7]}, {"fence": 9}))


def test_a_source_with_new_rows_remembers_what_belongs_to_its_new_mark() -> None:
    """Together with the mark, in one commit."""
    looked = outlook(Sight(SPAN, extras={"ties": [8]}))
    assert looked.extras_after(RecordExtras()) == RecordExtras().with_source("0", SourceMemory({"ties": [8]}))


def test_a_refresh_looks_at_all_and_forgets_what_was_remembered() -> None:
    """Its rows replace those that are there."""
    record = JobRecord("orders", extras=RecordExtras().with_source("rows", SourceMemory({"ties": [7]})))
    asked = source_request(RowsSource([]), record, RunRequest(full_refresh=True))
    assert (asked.whole, asked.extras) == (True, {})
    plain = source_request(RowsSource([]), record, RunRequest())
    assert (plain.whole, plain.extras) == (False, {"ties": [7]})


def test_a_source_that_joins_a_job_with_marks_may_begin_beside_rows_that_are_there() -> None:
    """They are those of the others; without any mark, nobody knows whose they are."""
    sink = ListSink(rows=[{"id": 1}])
    work = Work("orders", (RowsSource([], name="old"), RowsSource([], name="new")), (sink,))
    known = JobRecord("orders", 1, {"old": ColumnIntHWM("id", 7)})
    require_a_beginning(work, known, RunRequest(), no_session, Ledgers({}))
    with pytest.raises(MarkMissing):
        require_a_beginning(work, JobRecord("orders"), RunRequest(), no_session, Ledgers({}))


@dataclass(frozen=True)
class OneOption:
    """A part of a job."""

    mode: str = "append"


def test_a_part_gets_the_options_that_it_has_and_stays_as_it_is_for_others() -> None:
    """Its only one included."""
    part = OneOption()
    assert with_options(part, mode="merge") == OneOption("merge")
    assert with_options(part, mode="merge", key="id") is part


def outlook(*sights: Sight) -> Outlook:
    return Outlook({str(place): sight for place, sight in enumerate(sights)}, {})
