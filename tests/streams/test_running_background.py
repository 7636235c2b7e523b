"""A stream that runs beside its program: it starts with all of its steps, stops when asked, and tells its failure."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from floodmark.errors import RecordsFailed
from floodmark.patience import StopRequest
from floodmark.streams.running import Background

pytestmark = pytest.mark.slow


@dataclass
class Stream:
    """Work that counts its steps when it begins, and goes on until it is asked to stop."""

    steps: int = 0
    began_with: list[int] = field(default_factory=list)
    began: threading.Event = field(default_factory=threading.Event)

    def ready(self) -> Callable[[StopRequest], None]:
        steps = self.steps

        def work(stopping: StopRequest) -> None:
            self.began_with.append(steps)
            self.began.set()
            stopping.wait(20)

        return work


def test_it_begins_once_however_often_it_is_started() -> None:
    """And stop returns when it has ended."""
    stream = Stream()
    background = Background("billing", stream.ready)
    background.start()
    background.start()
    background.stop()
    assert (stream.began_with, background.is_running) == ([0], False)


def test_it_begins_soon_with_all_the_steps_that_the_program_adds_in_one_go() -> None:
    """A second sink in the next line would else miss what the first turn gives."""
    stream = Stream()
    background = Background("billing", stream.ready)
    stream.steps = 1
    background.start_soon()
    stream.steps = 2
    background.start_soon()
    assert stream.began.wait(10)
    background.stop()
    assert stream.began_with == [2]


def test_a_step_that_is_added_later_makes_it_begin_anew() -> None:
    """The turn that is under way ends first."""
    stream = Stream(steps=1)
    background = Background("billing", stream.ready)
    background.start_soon()
    assert stream.began.wait(10)
    stream.began.clear()
    stream.steps = 2
    background.start_soon()
    assert stream.began.wait(10)
    background.stop()
    assert stream.began_with == [1, 2]


def test_stop_raises_what_the_run_failed_with_and_stderr_has_it_in_two_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A traceback of a thread would tell less."""

    def fail(stopping: StopRequest) -> None:
        raise RecordsFailed("billing", records=["orders/0/17: ValueError"])

    background = Background("billing", lambda: fail)
    background.start()
    with pytest.raises(RecordsFailed):
        background.stop()
    assert capsys.readouterr().err.splitlines() == [
        "Error: stream 'billing' is stuck at orders/0/17: ValueError.",
        "Try: fix the cause and run again: only the failed records run; or choose on_error='dead_letter'",
    ]
    background.stop()


PROGRAM = """
import os, signal, threading, time
from floodmark.errors import RecordsFailed
from floodmark.streams.running import Background

def work(stopping):
    {work}
    print("ended", flush=True)

Background("billing", lambda: work).start()
print("built", flush=True)
"""


@pytest.mark.parametrize(
    ("work", "printed", "code"),
    [
        ("time.sleep(0.2)", ["built", "ended"], 0),
        ("time.sleep(0.2); raise RecordsFailed('billing', records=['orders/0/17'])", ["built"], 1),
        ("time.sleep(0.3); os.kill(os.getpid(), signal.SIGINT); stopping.wait(20)", ["built", "ended"], 0),
    ],
    ids=["ends", "fails", "is interrupted"],
)
def test_a_plain_program_stays_alive_for_its_stream_and_exits_as_it_ended(
    work: str, printed: list[str], code: int
) -> None:
    """The program itself has nothing more to do."""
    program = textwrap.dedent(PROGRAM).replace("{work}", work)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.split(), done.returncode) == (printed, code)
