"""Acts that a page can order: each a child process of the command line, one at a time for a job, its output kept."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from floodmark.logs import redact

ActKind = Literal["run", "marks set", "marks reset", "deadletters replay", "quarantine replay"]
ACTS_KEPT = 50
OUTPUT_SHOWN = 20_000


@dataclass
class Act:
    """One child process: what it was asked, and how it ended."""

    id: int
    kind: ActKind
    job: str
    command: tuple[str, ...]
    started: datetime
    output: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self.process.poll() if self.process else None

    @property
    def is_running(self) -> bool:
        return self.exit_code is None

    @property
    def state(self) -> str:
        code = self.exit_code
        return "running" if code is None else "done" if code == 0 else "failed"

    def text(self) -> str:
        """The end of what it printed, without secrets."""
        with self.output.open("rb") as output:
            output.seek(max(0, self.output.stat().st_size - OUTPUT_SHOWN))
            return redact(output.read().decode("utf-8", "replace"))


class JobBusy(Exception):
    """An act for this job is under way."""


@dataclass
class Acts:
    """Starts acts for one project and remembers the last ones."""

    options: tuple[str, ...]
    """The global options of the command line: which project, which target."""
    folder: Path
    program: tuple[str, ...] = (sys.executable, "-m", "floodmark")
    _acts: deque[Act] = field(default_factory=lambda: deque(maxlen=ACTS_KEPT))
    _outputs: tempfile.TemporaryDirectory[str] = field(default_factory=tempfile.TemporaryDirectory)
    _count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def all(self) -> list[Act]:
        """The newest first."""
        return list(reversed(self._acts))

    def count_ended(self) -> int:
        """How many have ended since the server began."""
        return self._count - sum(act.is_running for act in self._acts)

    def find(self, number: int) -> Act | None:
        return next((act for act in self._acts if act.id == number), None)

    def order(self, kind: ActKind, job: str, *values: str) -> Act:
        """Start it. Raises JobBusy while another act for the job runs."""
        with self._lock:
            if any(act.job == job and act.is_running for act in self._acts):
                raise JobBusy
            self._count += 1
            command = (*self.program, *self.options, *arguments_of(kind, job, values))
            output = Path(self._outputs.name) / str(self._count)
            act = Act(self._count, kind, job, command, datetime.now(timezone.utc), output)
            with output.open("wb") as out:  # the words are fixed, and job and value are no options: see arguments_of
                act.process = subprocess.Popen(
                    command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
                )
            self._acts.append(act)
        return act

    def stop(self) -> None:
        """Ask what runs to finish its batch and end, as the first SIGTERM does; wait for that, and clean up."""
        running = [act.process for act in self._acts if act.process is not None and act.is_running]
        for process in running:
            process.terminate()
        for process in running:
            process.wait()
        self._outputs.cleanup()


def arguments_of(kind: ActKind, job: str, values: Sequence[str]) -> tuple[str, ...]:
    """The words of the command line; behind `--` nothing is taken for an option, whatever it begins with."""
    if kind == "run":
        return ("run", f"--select={job}")
    return (*kind.split(), "--yes", "--", job, *values)
