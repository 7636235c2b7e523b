"""What a sink decides from its ledger before it writes: the batch is there, is to be written, or must not be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from floodmark.errors import Overtaken, SinkBehind, SinkDisagrees
from floodmark.sinks.contract import Recorded, is_ledger, is_written, ledger_id
from tests.sinks.batches import batch


@pytest.mark.parametrize(
    ("recorded", "written"),
    [(None, False), (Recorded(3, "d3"), False), (Recorded(4, "d4"), True), (Recorded(4), True)],
    ids=["nothing", "the one before", "this one", "this number, by an earlier version"],
)
def test_a_batch_is_written_once(recorded: Recorded | None, written: bool) -> None:
    """What is there under its number and with its digest is this very batch."""
    assert is_written(recorded, batch(4), "lake", "a table") is written


@pytest.mark.parametrize(
    "recorded",
    [Recorded(4, is_fence=True, before=3), Recorded(5, is_fence=True, before=3), Recorded(5, "d5")],
    ids=["a fence at its number", "a fence above", "a later batch"],
)
def test_who_was_overtaken_writes_nothing(recorded: Recorded) -> None:
    """Somebody has decided about the batch: its run must not go on to the next sink either."""
    with pytest.raises(Overtaken):
        is_written(recorded, batch(4), "lake", "a table")


def test_a_number_that_stands_for_other_rows_stops_the_run() -> None:
    """Two stores have counted for one sink."""
    with pytest.raises(SinkDisagrees) as stop:
        is_written(Recorded(4, "another"), batch(4), "lake", "a table")
    assert (stop.value.number, stop.value.recorded, stop.value.intended) == (4, "another", "d4")


@pytest.mark.parametrize("recorded", [None, Recorded(2, "d2"), Recorded(0)], ids=["nothing", "an older one", "zero"])
def test_a_sink_that_forgot_what_it_confirmed_gets_no_batch_on_top(recorded: Recorded | None) -> None:
    """It was restored or dropped while the run stood still: nobody could see any more what is missing."""
    with pytest.raises(SinkBehind) as stop:
        is_written(recorded, replace(batch(4), confirmed={"lake": 3}), "lake", "a table")
    assert (stop.value.confirmed, stop.value.recorded) == (3, recorded.number if recorded else None)


def test_a_ledger_is_known_by_its_name_of_today_and_of_before_dots_were_escaped() -> None:
    """And by no other."""
    ledger = ledger_id("prod.eu", "50%.orders", "lake")
    assert ledger == "floodmark.prod%2Eeu.50%25%2Eorders.lake"
    assert [is_ledger(each, ledger) for each in (ledger, "floodmark.prod.eu.50%.orders.lake")] == [True, True]
    assert not is_ledger(ledger_id("prod", "eu.50%.orders", "lake"), ledger)


@pytest.mark.parametrize(
    ("recorded", "last"),
    [(Recorded(4, "d4"), 4), (Recorded(4, is_fence=True, before=3), 3), (Recorded(4, is_fence=True), None)],
    ids=["a batch", "a fence above a batch", "a fence of which nothing more is known"],
)
def test_a_fence_does_not_hide_which_batch_was_the_last(recorded: Recorded, last: int | None) -> None:
    """Else a batch that a sink has lost would be hidden by the fence above it."""
    assert recorded.last_batch == last
