"""Dead letters of a stream: kept once, dealt with once, and run again by the stream's own steps."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest

from floodmark.errors import ConfigError, LeaseHeld, Overtaken, StoreUnreachable
from floodmark.stores.record import Intent, JobRecord
from floodmark.streams import Stream, healing
from floodmark.streams.elements import RecordId
from floodmark.streams.healer.dead_letters import DeadLetter, DeadLetters, replay, require_settled
from floodmark.streams.program import compile_program

if TYPE_CHECKING:
    from pathlib import Path

LETTER = DeadLetter(
    record=RecordId("orders", 0, 17),
    key=b"k",
    value=b"\xff\x00",
    headers=(("trace", b"1"), ("empty", None)),
    timestamp=1_700_000_000_123,
    step="map(plus) (step 1)",
    error="ValueError: three",
    attempts=3,
    first_at=100.0,
    last_at=107.0,
)
TOMBSTONE = replace(LETTER, record=RecordId("orders", 0, 9), key=None, value=None, headers=None)


@pytest.fixture
def letters(tmp_path: Path) -> DeadLetters:
    return DeadLetters(tmp_path / "orders-group" / "dead")


def test_a_letter_comes_back_as_it_was_kept(letters: DeadLetters) -> None:
    """Bytes, nulls and headers included, in the order of the offsets."""
    letters.add([LETTER, TOMBSTONE])
    assert letters.all() == (TOMBSTONE, LETTER)


def test_a_stream_without_letters_has_none_and_makes_no_folder(letters: DeadLetters) -> None:
    """Looking changes nothing."""
    assert letters.all() == ()
    assert not letters.folder.exists()


def test_adding_a_letter_again_after_a_crash_changes_nothing(letters: DeadLetters) -> None:
    """The stream adds its letters before it commits, so it may have to do it twice."""
    letters.add([LETTER])
    letters.add([replace(LETTER, attempts=9), TOMBSTONE])
    assert letters.all() == (TOMBSTONE, LETTER)


def test_a_letter_that_is_dealt_with_is_no_longer_open(letters: DeadLetters) -> None:
    """It stays as history."""
    letters.add([LETTER, TOMBSTONE])
    letters.resolve(LETTER.record, "discarded", at=200.0)
    assert letters.open_letters() == (TOMBSTONE,)
    assert letters.all()[1] == replace(LETTER, status="discarded", status_at=200.0)


def test_a_turn_that_is_done_again_does_not_open_what_somebody_closed(letters: DeadLetters) -> None:
    """A letter is kept before its turn is committed; one of a later turn is another failure, and open."""
    first = replace(LETTER, number=4)
    letters.add([first])
    letters.resolve(LETTER.record, "discarded", at=200.0)
    letters.add([first])
    assert letters.open_letters() == ()
    letters.add([replace(LETTER, number=5)])
    assert [(each.status, each.number) for each in letters.all()] == [("open", 4)]


def test_a_letter_of_a_turn_that_was_cut_off_is_not_replayed(letters: DeadLetters) -> None:
    """The turn is done again and the record with it: healed there and by a replay, it would be there twice."""
    letters.add([replace(LETTER, number=4), replace(TOMBSTONE, number=3)])
    intent = Intent(4, "batch", {}, datetime.now(timezone.utc), "a1", None, {})
    with pytest.raises(ConfigError, match="letter orders/0/17 is of turn 4 of stream 'billing', which is not finished"):
        require_settled(letters.open_letters(), JobRecord("billing", 3, intent=intent))
    require_settled(letters.open_letters(), JobRecord("billing", 4))
    require_settled(letters.open_letters(), None)


def test_a_run_that_was_paused_in_a_turn_gives_nothing_up_once_another_does_it_again(letters: DeadLetters) -> None:
    """The other one may have healed the record; later turns are nobody else's."""
    letters.fence(4, "second")
    with pytest.raises(Overtaken):
        letters.add([replace(LETTER, number=4)], "first")
    letters.add([replace(TOMBSTONE, number=4)], "second")
    letters.add([replace(LETTER, number=5)], "third")
    assert [(each.record, each.number) for each in letters.all()] == [(TOMBSTONE.record, 4), (LETTER.record, 5)]


def test_a_letter_has_the_shape_of_everything_that_is_put_aside(letters: DeadLetters) -> None:
    """So it is read as the letters of jobs are; its record holds all that a replay needs."""
    letters.add([replace(LETTER, number=4)])
    [row] = letters.rows()
    assert (row.id, row.kind, row.job, row.number, row.status) == (
        "orders/0/17",
        "dead_letter",
        "orders-group",
        4,
        "open",
    )
    assert (row.source, row.file, row.line, row.reasons) == ("orders", "orders/0", 17, ("ValueError: three",))
    assert DeadLetter.of(row) == replace(LETTER, number=4)


def test_a_line_that_a_crash_cut_off_is_none_and_the_next_one_does_not_join_it(letters: DeadLetters) -> None:
    """Whoever wrote it cannot have relied on it."""
    letters.add([LETTER])
    with (letters.folder / "letters.jsonl").open("ab") as file:
        file.write(b'{"topic": "orders", "parti')
    assert letters.all() == (LETTER,)
    letters.add([TOMBSTONE])
    assert letters.all() == (TOMBSTONE, LETTER)


def test_a_line_that_cannot_be_read_is_named_and_not_passed_over(letters: DeadLetters) -> None:
    """A letter that is not seen is a record that is lost."""
    letters.add([LETTER])
    with (letters.folder / "letters.jsonl").open("ab") as file:
        file.write(b"not json\n")
    with pytest.raises(StoreUnreachable, match="line 2 cannot be read"):
        letters.all()


def test_a_letter_shows_neither_key_nor_value_when_it_is_printed() -> None:
    """Logs are read by people who may not see them."""
    assert "xff" not in repr(LETTER)


def test_replay_runs_each_letter_through_the_stream_and_closes_what_is_healed(letters: DeadLetters) -> None:
    """The uuid is the record's own, with the next attempt; what follows healing gets the result."""
    letters.add([LETTER])
    source = Stream()
    seen = source.map(lambda row: (row[0], row[0]["attempt"])).map(healing, stream=source).sink_to_list()
    report = replay(letters, letters.open_letters(), compile_program(source.node), now=lambda: 300.0)
    assert report.healed_records == [RecordId("orders", 0, 17)]
    assert letters.all() == (replace(LETTER, status="replayed", status_at=300.0),)
    assert seen == [
        {
            "data": 4,
            "success": True,
            "reason": "replayed from the dead letters: the mark had passed it",
            "partition": 0,
            "offset": 17,
            "topic": "orders",
        }
    ]


def test_a_letter_that_fails_again_stays_open_with_its_new_reason(letters: DeadLetters) -> None:
    """The others are replayed all the same."""
    letters.add([LETTER, TOMBSTONE])
    source = Stream()
    source.map(lambda row: (row[0], row[1].decode())).sink(healing, stream=source)
    report = replay(letters, letters.open_letters(), compile_program(source.node), now=lambda: 300.0)
    assert list(report.failures) == [RecordId("orders", 0, 9), RecordId("orders", 0, 17)]
    assert [(each.status, each.attempts, each.last_at) for each in letters.all()] == [("open", 4, 300.0)] * 2
    assert "'NoneType' object has no attribute 'decode'" in letters.all()[0].error


def test_a_letter_of_a_stream_of_lists_is_replayed_as_a_list_of_one(letters: DeadLetters) -> None:
    """As from_kafka_batched would give it."""
    letters.add([LETTER])
    source = Stream()
    source.flatten().sink(healing, stream=source)
    assert replay(letters, letters.open_letters(), compile_program(source.node), as_list=True).healed_records == [
        LETTER.record
    ]


def test_a_letter_that_a_filter_takes_out_is_dealt_with(letters: DeadLetters) -> None:
    """Repairing the stream by a filter is a way to get rid of a poison record."""
    letters.add([LETTER])
    source = Stream()
    source.filter(lambda row: False).sink(healing, stream=source)
    assert replay(letters, letters.open_letters(), compile_program(source.node)).dropped_records == [LETTER.record]
    assert letters.open_letters() == ()


def test_letters_of_a_stream_that_knows_of_other_records_are_not_replayed(letters: DeadLetters) -> None:
    """Alone, `unique` would take every letter for new, and a zip would hold it for ever."""
    source = Stream()
    source.unique().sink(healing, stream=source)
    with pytest.raises(ConfigError, match="unique knows of the other records"):
        replay(letters, letters.open_letters(), compile_program(source.node))


def test_two_replays_at_once_are_refused(letters: DeadLetters) -> None:
    """Both would run the same letters."""
    with letters.lock_replay(), pytest.raises(LeaseHeld, match="another `deadletters replay`"):
        letters.lock_replay().__enter__()
