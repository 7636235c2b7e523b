"""How far a run is: a moving line on a terminal, plain lines for what takes long elsewhere.

On a terminal every job that runs is shown with its phase, rows, rate and time, from Spark's status store.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from floodmark.phases import Phase, heard_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from floodmark.cli.invocation import Invocation
    from floodmark.spark.status import WorkInSpark

LONG_SECONDS = 0.7
"""A phase that takes longer is worth a line where there is no terminal."""
REFRESHES_A_SECOND = 4
ASKING_SECONDS = 1.0
LOOPING = "looping; Ctrl-C ends it"


@dataclass
class Progress:
    """What is being done now, by job; `work` answers how far Spark is, or None where it cannot be asked."""

    work: Callable[[], WorkInSpark | None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    idle_words: str = ""
    _phases: dict[str, tuple[Phase, float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _work: WorkInSpark | None = None

    def hear(self, phase: Phase) -> None:
        """Take note of what a job does now."""
        with self._lock:
            if phase.words:
                self._phases[phase.job] = (phase, self.clock())
            else:
                self._phases.pop(phase.job, None)

    def lines(self) -> list[str]:
        """A line for each job that does something."""
        with self._lock:
            now, phases = self.clock(), list(self._phases.values())
        return [self._line(phase, now - since) for phase, since in phases] or [self.idle_words]

    def ask(self) -> None:
        """Ask Spark how far it is; whatever it says, a display is no reason to fail."""
        with suppress(Exception):
            self._work = self.work()

    def _line(self, phase: Phase, seconds: float) -> str:
        name = f"{phase.job}: " if phase.job else ""
        figures = [phase.amount()] if phase.amount else self._figures(seconds)
        parts = [f"{name}{phase.words}", *figures]
        return ", ".join([*parts, f"{seconds:.0f} s"])

    def _figures(self, seconds: float) -> Iterator[str]:
        """Rows, their rate and the time that is left, while one job works: Spark's tasks do not say whose they are."""
        work = self._work
        if work is None or len(self._phases) != 1 or not work.tasks:
            return
        if work.rows:
            yield f"{work.rows:,} rows, {work.rows / max(seconds, 0.1):,.0f} a second"
        if 0 < work.tasks_done < work.tasks:
            left = seconds * (work.tasks - work.tasks_done) / work.tasks_done
            yield f"about {left:.0f} s left"


def showing(
    invocation: Invocation, *, as_json: bool = False, progress: Progress | None = None
) -> AbstractContextManager[None]:
    """What the block does, as it does it; nothing beside a document, or where only errors are wanted.

    A moving line on a terminal; elsewhere a line for what takes long, unless it is a loop, which logs what it does.
    """
    progress = progress or Progress()
    if sys.stderr.isatty() and not as_json and invocation.logs.level != "error":
        progress.work = invocation.session().work
        return shown_on_terminal(progress)
    return nullcontext() if progress.idle_words else saying(invocation, as_json=as_json)


def saying(invocation: Invocation, *, as_json: bool = False) -> AbstractContextManager[None]:
    """As `showing`, in lines also on a terminal: programs that are started write there too."""
    return nullcontext() if as_json or invocation.logs.level == "error" else said_in_lines()


@contextmanager
def shown_on_terminal(progress: Progress) -> Iterator[None]:
    """The lines of the progress, kept below whatever is printed meanwhile, and gone in the end."""
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    spinner = Spinner("dots")

    def moving_line() -> Spinner:
        spinner.update(text=Text("\n  ".join(progress.lines())))
        return spinner

    live = Live(
        get_renderable=moving_line,
        console=Console(stderr=True),
        refresh_per_second=REFRESHES_A_SECOND,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # else what is printed into a file would end up on the terminal
    )
    with heard_by(progress.hear), live, _asking(progress):
        yield


@contextmanager
def _asking(progress: Progress) -> Iterator[None]:
    done = threading.Event()

    def ask() -> None:
        while not done.wait(ASKING_SECONDS):
            progress.ask()

    threading.Thread(target=ask, name="floodmark-progress", daemon=True).start()
    try:
        yield
    finally:
        done.set()


@contextmanager
def said_in_lines() -> Iterator[None]:
    """One line on stderr for each phase that takes long, as soon as it does."""
    waiting: dict[str, threading.Timer] = {}

    def hear(phase: Phase) -> None:
        earlier = waiting.pop(phase.job, None)
        if earlier:
            earlier.cancel()
        if phase.words:
            name = f"{phase.job}: " if phase.job else ""
            timer = waiting[phase.job] = threading.Timer(LONG_SECONDS, _write_line, [f"{name}{phase.words} …"])
            timer.daemon = True
            timer.start()

    try:
        with heard_by(hear):
            yield
    finally:
        for timer in list(waiting.values()):
            timer.cancel()


def _write_line(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
