"""What passes by itself is waited for, and nothing else; and no longer once somebody asks to stop."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress

import pytest

from floodmark.patience import (
    Interrupted,
    StopRequest,
    doubling_pause,
    interrupted_by,
    patiently,
    saying_after,
    stop_on,
)


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


def signal_this_process() -> None:
    """It arrives before the wait has ended."""
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(5)


def exit_where_interrupted() -> None:
    """As typer does: it has an exit code of its own for that."""
    try:
        signal_this_process()
    except KeyboardInterrupt as error:
        raise SystemExit(130) from error


def test_a_signal_that_somebody_catches_is_raised_at_the_end_of_the_block() -> None:
    """A library that catches everything does not decide whether a process ends."""
    with pytest.raises(Interrupted, match="SIGUSR1"), interrupted_by(signal.SIGUSR1), suppress(BaseException):
        signal_this_process()


def test_a_signal_goes_before_another_failure_that_it_caused() -> None:
    """Only it knows the code of the signal."""
    with pytest.raises(Interrupted), interrupted_by(signal.SIGUSR1):
        exit_where_interrupted()


class SignalsWhenDropped:
    """An object in whose finalizer a signal arrives."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.01)


def wait_after_a_finalizer() -> None:
    """The object is gone at once, and the wait is long."""
    SignalsWhenDropped()
    time.sleep(20)


def test_a_signal_that_arrives_in_a_finalizer_ends_the_wait_after_it(capfd: pytest.CaptureFixture[str]) -> None:
    """Python prints what is raised there, and forgets it."""
    began = time.monotonic()
    with pytest.raises(Interrupted), interrupted_by(signal.SIGUSR1):
        wait_after_a_finalizer()
    assert (time.monotonic() - began < 10, capfd.readouterr().err) == (True, "")


def test_who_waits_too_long_says_so_and_who_does_not_says_nothing() -> None:
    """Also where a long wait has begun before, and ends later."""
    said, was_said = [], threading.Event()
    with saying_after(60.0, lambda: said.append("long")), saying_after(0.01, was_said.set):
        with saying_after(30.0, lambda: said.append("short")):
            pass
        assert was_said.wait(10.0)
    assert said == []


def test_all_waits_share_one_thread() -> None:
    """An idle look waits for the store twice, and a thread for each would be most of its cost."""
    with saying_after(60.0, lambda: None):
        before = threading.active_count()
        for _ in range(100):
            with saying_after(60.0, lambda: None):
                assert threading.active_count() == before


def test_a_child_of_a_process_watches_its_own_waits() -> None:
    """It has not the thread of its parent."""
    with saying_after(60.0, lambda: None):
        child = os.fork()
        if child == 0:
            was_said = threading.Event()
            with saying_after(0.01, was_said.set):
                os._exit(0 if was_said.wait(10.0) else 1)
        assert os.waitpid(child, 0)[1] == 0
