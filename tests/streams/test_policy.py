"""What becomes of failed records: the words of on_error, and when a record runs again."""

from __future__ import annotations

import pytest

from floodmark.errors import ConfigError, UnknownKind
from floodmark.streams.policy import OnError, RetryBudget, dead_letter, on_error_of, retry, stop
from floodmark.streams.task.journal import FailedRecord, RawRecord

PLACE = ("t", 0)


def failed(offset: int, attempts: int, last_at: float = 100.0) -> FailedRecord:
    return FailedRecord(offset, attempts, 50.0, last_at, "map(f)", "ValueError: no", RawRecord(None, b"x", None, 0))


def test_the_words_of_on_error_are_known() -> None:
    """A user writes a word, or calls retry."""
    assert (on_error_of("stop"), on_error_of("dead_letter")) == (stop, dead_letter)
    assert on_error_of(retry(3, "2s", then="dead_letter")) == OnError(4, 2.0, "dead_letter")


def test_an_unknown_word_is_refused() -> None:
    """The error lists what there is."""
    with pytest.raises(UnknownKind, match="dead_letter"):
        on_error_of("ignore")
    with pytest.raises(UnknownKind, match="stop"):
        retry(1, then="explode")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="tries nothing"):
        retry(0)


def test_each_pause_is_twice_the_last_up_to_a_bound() -> None:
    """A database that is down is not asked every second for a day."""
    policy = retry(50, 1)
    assert [policy.pause_seconds(times) for times in (1, 2, 3, 50)] == [1.0, 2.0, 4.0, 300.0]


def test_a_record_runs_again_when_its_pause_is_over() -> None:
    """Not before, so that the cause has time to pass."""
    budget = RetryBudget(retry(2, 10))
    waiting = {PLACE: {7: failed(7, attempts=1)}}
    assert budget.due_records(waiting, now=109.0) == {}
    assert budget.next_due_at(waiting) == 110.0
    assert budget.due_records(waiting, now=110.0) == waiting


def test_a_record_is_given_up_when_its_attempts_are_used() -> None:
    """Two retries are three attempts."""
    budget = RetryBudget(retry(2, 10))
    assert budget.spent_records({PLACE: {7: failed(7, attempts=2)}}) == {}
    assert budget.spent_records({PLACE: {7: failed(7, attempts=3)}}) == {PLACE: [failed(7, attempts=3)]}


def test_a_new_run_tries_at_once_what_an_earlier_one_gave_up() -> None:
    """The usual reason to run again is that the cause was fixed."""
    budget, stuck = RetryBudget(stop), {PLACE: {7: failed(7, attempts=1)}}
    budget.begin(stuck)
    assert budget.due_records(stuck, now=100.0) == stuck
    assert budget.spent_records({PLACE: {7: failed(7, attempts=2)}}) == {PLACE: [failed(7, attempts=2)]}
