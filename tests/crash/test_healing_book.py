"""The judge of killed streams is judged first: it sees a record that ran twice, and one that was passed over."""

from __future__ import annotations

from pathlib import Path

from tests.crash.healing_book import Book, Call, calls_in, durable

FIRST = Call(1, 70, (0, 0), 1, "done")
SECOND = Call(1, 70, (0, 1), 1, "done")


def test_a_settled_record_that_runs_again_is_seen() -> None:
    """The worker had gone on to the next, so its outcome was durable."""
    calls = [FIRST, SECOND, FIRST._replace(run=2, worker=80)]
    assert durable(calls, killed={1: 1}) == {(0, 0): ["done", "done"], (0, 1): ["done"]}


def test_what_a_worker_had_in_its_hands_when_it_was_killed_may_come_again() -> None:
    """Once for a record by itself, for each of a batch."""
    again = SECOND._replace(run=2, worker=80)
    assert durable([FIRST, SECOND, again], killed={1: 1}) == {(0, 0): ["done"], (0, 1): ["done"]}
    assert durable([FIRST, SECOND, again], killed={}) == {(0, 0): ["done"], (0, 1): ["done", "done"]}


def test_a_call_that_was_cut_off_and_never_came_again_is_seen() -> None:
    """Its record has no outcome."""
    assert durable([FIRST, SECOND._replace(word=None)], killed={1: 1}) == {(0, 0): ["done"], (0, 1): [None]}


def test_the_book_knows_where_the_marks_must_stand() -> None:
    """At the first record that is not settled; past what is no record; nowhere for a partition at its beginning."""
    book = Book()
    book.put(0, ["done", "failed done", "done"])
    book.put(1, ["failed done"])
    book.put(2, ["dropped"])
    book.skip(2, 2)
    calls = [FIRST, SECOND._replace(word="failed"), Call(1, 71, (0, 2), 1, "done"), Call(1, 71, (1, 0), 1, "failed")]
    assert book.marks([*calls, Call(1, 71, (2, 0), 1, "dropped")]) == {0: 1, 2: 3}


def test_notes_are_read_as_calls(tmp_path: Path) -> None:
    """Run, worker, partition, offset, attempt; a call without an end was cut off, and the next one is another."""
    notes = tmp_path / "notes"
    notes.write_text("1 70 0 0 1 begins\n1 71 0 1 1 begins\n1 70 0 0 1 done\n2 80 0 1 1 begins\n2 80 0 1 1 done\n")
    cut_off, again = Call(1, 71, (0, 1), 1, None), Call(2, 80, (0, 1), 1, "done")
    assert calls_in(notes) == [FIRST, cut_off, again]
