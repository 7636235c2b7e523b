"""What a record and an intent keep beside marks and spans: names here, the same JSON as ever in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from floodmark.hwm import ColumnIntHWM
from floodmark.stores.extras import (
    OF_A_STREAM,
    BackfillProgress,
    IntentExtras,
    OutsideBatch,
    RecordExtras,
    RecordIdentity,
    SourceMemory,
)

if TYPE_CHECKING:
    from floodmark.hwm import Json

OUTSIDE = {"conditions": {}, "sequences": {"out": ["at"]}, "sink": None, "letters": []}
STORED: list[dict[str, Json]] = [
    {"sources": {"rows": "list"}, "remember": {"rows": {"ties": [1]}}, "frozen": {}},
    {"sources": {}, "remember": {}, "frozen": {"out": {"columns": 3}}, "outside": OUTSIDE},  # type: ignore[dict-item]
    {"outside": {"conditions": {}, "sequences": {}, "sink": "out", "letters": []}},
    {"sources": {"t": "topic t"}, "healing": {"t": {"0": {"mark": 0}}}, "flushes": False},
    {"writers": 2},
    {},
]


@pytest.mark.parametrize("stored", STORED)
def test_an_intent_is_stored_as_it_was_read(stored: dict[str, Json]) -> None:
    """A step's, a replay's, a repair's, a healer's, and one with a part of a newer program: the same JSON, in order."""
    serialized = IntentExtras.deserialize(stored).serialize()
    assert (serialized, list(serialized)) == (stored, list(stored))


def test_what_a_source_waits_for_is_kept_beside_what_goes_with_its_mark() -> None:
    """They are told apart when they are read, and stored in one mapping."""
    memory = SourceMemory({"ties": [1]}, {"held": {"rows": 2}})
    extras = RecordExtras().with_source("rows", memory)
    assert extras.stored == {"rows": {"ties": [1], "pending": {"held": {"rows": 2}}}}
    assert (extras.source("rows"), extras.held_rows()) == (memory, {"rows": 2})


def test_a_source_that_is_called_like_a_part_keeps_its_memory() -> None:
    """Sources and parts share their names in the store."""
    extras = RecordExtras().with_source("healing", SourceMemory({"ties": [1]}))
    assert extras.source("healing").extras == {"ties": [1]}


def test_a_part_of_a_newer_program_is_kept() -> None:
    """This program cannot read it, and must not lose it."""
    extras = RecordExtras({"of tomorrow": [1]}).with_went_back_to(4)
    assert (extras.stored, extras.went_back_to) == ({"of tomorrow": [1], "went back to": 4}, 4)


def test_the_progress_of_a_backfill_comes_back_whole() -> None:
    """It is committed with each chunk, under a name that no source can have."""
    progress = BackfillProgress("1", "9", ColumnIntHWM("id", 4), chunks=2, remembered={"ties": ["k"]})
    extras = RecordExtras().with_backfill(progress)
    assert (list(extras.stored), extras.backfill) == (["@backfill"], progress)


def test_an_intent_names_how_it_differs_from_the_jobs_own() -> None:
    """Columns by sink, as a tuple again."""
    assert IntentExtras.deserialize(STORED[1]).outside == OutsideBatch(sequences={"out": ("at",)})


def test_accepting_notes_only_the_others_each_once() -> None:
    """Batches of its own, of somebody who is accepted already, and those that tell no owner need no note."""
    identity = RecordIdentity("ours", ("known",))
    assert identity.accepting(["ours", None, "other", "known", "other"]) == RecordIdentity("ours", ("known", "other"))


def test_the_record_of_a_mill_is_known_by_the_memory_of_one_of_its_streams() -> None:
    """Whatever else is kept beside it; parts of other kinds are none, whatever they hold."""
    stream: dict[str, Json] = dict.fromkeys(OF_A_STREAM)
    assert RecordExtras({"layout": 3, "writers": {"count": 2}, "orders": {**stream, "more": 1}}).is_of_a_mill
    assert RecordExtras({"orders": stream}).is_of_a_mill
    assert not RecordExtras({"layout": 3, "writers": {"count": 2}, "names": sorted(OF_A_STREAM)}).is_of_a_mill
    assert not RecordExtras({"orders": dict.fromkeys(sorted(OF_A_STREAM)[1:])}).is_of_a_mill
