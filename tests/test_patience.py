"""What passes by itself is waited for, and nothing else; and no longer once somebody asks to stop."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from floodmark.patience import StopRequest, doubling_pause, patiently, saying_after, stop_on


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


def test_a_signal_ends_a_wait_at_once() -> None:
    """Nobody waits an hour for a loop to notice."""
    with stop_on(signal.SIGUSR1) as stopping:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert stopping.wait(3600)


def test_a_second_request_is_not_polite_any_more() -> None:
    """Ctrl-C twice means now."""
    stopping = StopRequest()
    stopping.request()
    with pytest.raises(KeyboardInterrupt):
        stopping.request()
    stopping.close()


def test_signals_are_given_back_afterwards() -> None:
    """What handled them before does so again."""
    before = signal.getsignal(signal.SIGUSR1)
    with stop_on(signal.SIGUSR1):
        assert signal.getsignal(signal.SIGUSR1) is not before
    assert signal.getsignal(signal.SIGUSR1) is before


def test_who_waits_long_says_so_and_who_does_not_is_silent() -> None:
    """From one thread for all, which ends nothing that is under way."""
    said, heard = [], threading.Event()
    with saying_after(0.0, heard.set), saying_after(60.0, lambda: said.append("too early")):
        assert heard.wait(10)
    threads = threading.active_count()
    for _ in range(1000):
        with saying_after(0.001, lambda: said.append("it was over")):
            pass
    time.sleep(0.6)
    assert said == []
    assert threading.active_count() == threads


def test_a_forked_process_says_so_too() -> None:
    """The thread of its parent is not there any more."""
    with saying_after(60.0, lambda: None):
        child = os.fork()
        if child == 0:
            heard = threading.Event()
            with saying_after(0.0, heard.set):
                os._exit(0 if heard.wait(10) else 1)
    assert os.waitpid(child, 0)[1] == 0
