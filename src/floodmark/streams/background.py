"""A stream that runs beside the program that built it: it keeps it alive, ends by Ctrl-C, and tells failures."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import TypeAlias

from floodmark.errors import FloodmarkError
from floodmark.step.stopping import Stopping

Work: TypeAlias = "Callable[[Stopping], None]"
GRACE_SECONDS = 0.2
"""How long a program may take from one step to the next while it builds its stream."""


@dataclass
class Background:
    """At most one run at a time; `ready` gives the work with the steps as they are at that moment."""

    name: str
    ready: Callable[[], Work]
    error: FloodmarkError | None = None
    _stopping: Stopping | None = None
    _thread: threading.Thread | None = None
    _soon: threading.Timer | None = None
    _is_watched: bool = False

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begin now, unless it runs. What is wrong with the stream itself is raised here."""
        self._watch()
        if not self.is_running:
            self._launch(self.ready())

    def start_soon(self) -> None:
        """Begin, or begin anew, once the program has added no step for a moment: a branch may follow."""
        self._watch()
        if self._soon is not None:
            self._soon.cancel()
        self._soon = threading.Timer(GRACE_SECONDS, self._begin_anew)
        self._soon.start()

    def stop(self) -> None:
        """Let the current turn end; returns when all is done. Raises what the run failed with."""
        self._request()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
            self._forget()
        error, self.error = self.error, None
        if error is not None:
            raise error

    def _forget(self) -> None:
        stopping, self._stopping, self._thread = self._stopping, None, None
        if stopping is not None:
            stopping.close()

    def _begin_anew(self) -> None:
        try:
            self.stop()
            self._launch(self.ready())
        except FloodmarkError as error:
            self._fail(error)

    def _launch(self, work: Work) -> None:
        stopping = self._stopping = Stopping()
        self._thread = threading.Thread(target=self._run, args=(work, stopping), name=f"stream {self.name}")
        self._thread.start()

    def _run(self, work: Work, stopping: Stopping) -> None:
        try:
            work(stopping)
        except FloodmarkError as error:
            self._fail(error)

    def _fail(self, error: FloodmarkError) -> None:
        self.error = error
        sys.stderr.write(f"Error: {error.message}\nTry: {error.hint}\n")

    def _request(self) -> None:
        if self._stopping is not None and not self._stopping.requested:
            self._stopping.request()

    def _watch(self) -> None:
        """Signals can only be taken by the main thread; the exit code is settled after all threads have ended."""
        if self._is_watched or threading.current_thread() is not threading.main_thread():
            return
        self._is_watched = True
        signal.signal(signal.SIGINT, self._interrupted)
        signal.signal(signal.SIGTERM, self._interrupted)
        atexit.register(self._leave)  # before Spark's own, which are then called before this one

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        if self._soon is not None:
            self._soon.cancel()
        if not self.is_running or self._stopping is None or self._stopping.requested:
            raise KeyboardInterrupt
        self._request()

    def _leave(self) -> None:
        """A program whose stream failed exits as `floodmark run` would."""
        if self.error is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.error.exit_code)
