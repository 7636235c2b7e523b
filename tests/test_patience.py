"""What passes by itself is waited for, and nothing else."""

from __future__ import annotations

import pytest

from floodmark.patience import doubling_pause, patiently


def failing(*errors: Exception) -> list[Exception]:
    """What the act meets, one at each attempt; then it succeeds."""
    return list(errors)


def act_of(errors: list[Exception]) -> str:
    if errors:
        raise errors.pop(0)
    return "done"


def is_passing(error: Exception) -> bool:
    return isinstance(error, TimeoutError)


def test_an_error_that_passes_is_waited_for() -> None:
    """The answer is that of the attempt that succeeded."""
    errors = failing(TimeoutError(), TimeoutError())
    assert patiently(lambda: act_of(errors), seconds=5.0, passing=is_passing, pause_seconds=0.001) == "done"


def test_an_error_that_does_not_pass_is_raised_at_once() -> None:
    """Waiting would only hide it."""
    errors = failing(ValueError("no"), TimeoutError())
    with pytest.raises(ValueError, match="no"):
        patiently(lambda: act_of(errors), seconds=5.0, passing=is_passing, pause_seconds=0.001)
    assert len(errors) == 1


def test_patience_ends_with_the_last_error() -> None:
    """It says more than "too long" would."""
    errors = failing(*(TimeoutError(f"attempt {number}") for number in range(1000)))
    with pytest.raises(TimeoutError, match="attempt"):
        patiently(lambda: act_of(errors), seconds=0.02, passing=is_passing, pause_seconds=0.005)


@pytest.mark.parametrize(("failures", "seconds"), [(1, 0.5), (2, 1.0), (3, 2.0), (8, 60.0), (10_000, 60.0)])
def test_pauses_double_up_to_the_longest(failures: int, seconds: float) -> None:
    """However often it failed, the number stays a number."""
    assert doubling_pause(0.5, failures, 60.0) == seconds
