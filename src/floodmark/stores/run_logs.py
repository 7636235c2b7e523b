"""The log of each run: a file of JSON lines beside the marks, bounded in size and number, with the run's id on each.

A run that finds nothing new leaves none. A log that cannot be written never fails its run.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import quote, unquote

from floodmark.errors import LeaseHeld, RunNotFound
from floodmark.formats import FIRST, KEY, require_known
from floodmark.logs import LineKeeper, keeping_lines, redact
from floodmark.stores.contract import FolderStore, JoiningStore, LevelledStore
from floodmark.stores.opening import folder_beside

if TYPE_CHECKING:
    from floodmark.stores.contract import MarkStore


LOGS_OF_A_JOB = 200
LOG_BYTES = 1_000_000
LINE_CHARACTERS = 20_000
LINES_HELD = 200
"""Before it is known whether there is anything to do."""
SUFFIX = ".jsonl"

_begun_run: ContextVar[str] = ContextVar("begun_run", default="")
_open_log: ContextVar[RunLog | None] = ContextVar("open_log", default=None)


@dataclass(frozen=True)
class RunLogs:
    """The logs of a store's runs, one folder for a job."""

    folder: Path

    @classmethod
    def of(cls, store: MarkStore) -> RunLogs | None:
        """Where a store's logs are; None for one whose marks do not outlive the process either."""
        if not isinstance(store, (FolderStore, JoiningStore, LevelledStore)):
            return None
        return cls(folder_beside(store) / "logs" / quote(store.namespace, safe=""))

    def path(self, job: str, run: str) -> Path:
        """The file of a run, whether it is there or not; no name leads out of the folder."""
        return self._of_job(job) / f"{_file_name(run)}{SUFFIX}"

    def lines(self, job: str, run: str) -> list[dict[str, Any]] | None:
        """The lines of a run; None if there is no log of it. Raises FormatTooNew."""
        path = self.path(job, run)
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        lines = [_facts(line) for line in text.split("\n") if line]
        if lines:
            require_known(lines[0].get(KEY, FIRST), f"the log of run {run}", where=str(path))
        return lines

    def find(self, wanted: str, job: str | None = None) -> tuple[str, str]:
        """Job and run of the one log whose run id is this or begins so, or of the `last`. Raises RunNotFound.

        Found by the files: a run that was killed has no receipt, and a log.
        """
        paths = sorted(self.folder.glob(f"*/*{SUFFIX}"), key=_modified)
        known = [(unquote(path.parent.name), unquote(path.stem)) for path in paths]
        known = [each for each in known if job is None or each[0] == job]
        if wanted == "last" and known:
            return known[-1]
        alike = [each for each in known if wanted and each[1].startswith(wanted)]
        exact = [each for each in alike if each[1] == wanted] or alike
        if len(exact) != 1:
            raise RunNotFound(wanted, known=[run for _, run in known])
        return exact[0]

    def prune(self, job: str, *, before: datetime, keep_at_least: int) -> int:
        """Remove logs that were last written before, but never the newest `keep_at_least`; how many went."""
        old = self._newest_first(job)[keep_at_least:]
        gone = [path for path in old if _modified(path) < before.timestamp()]
        return sum(_remove(path) for path in gone)

    def make_room(self, job: str, most: int = LOGS_OF_A_JOB) -> None:
        """Leave at most so many logs of a job, the newest."""
        for path in self._newest_first(job)[most:]:
            _remove(path)

    def _of_job(self, job: str) -> Path:
        return self.folder / _file_name(job)

    def _newest_first(self, job: str) -> list[Path]:
        return sorted(self._of_job(job).glob(f"*{SUFFIX}"), key=_modified, reverse=True)


@dataclass
class RunLog(LineKeeper):
    """The log of one run while it runs: lines are held until there is work to do, then written as they come."""

    logs: RunLogs
    job: str
    run: str
    most_bytes: int = LOG_BYTES
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)
    _held: list[str] = field(default_factory=list)
    _file: TextIO | None = None
    _written: int = 0
    _left_out: int = 0
    _is_broken: bool = False

    def add(self, level: str, logger: str, event: str, facts: Mapping[str, object]) -> None:
        """Take one line, with the run and the job on it."""
        own = {name: fact for name, fact in facts.items() if name not in ("exc_info", "job")}
        line: dict[str, object] = {"timestamp": self._time(), "level": level}
        line |= {"run": self.run, "job": self.job, "logger": logger, "event": event, **own}
        if trace := _trace(facts.get("exc_info")):
            line["exception"] = trace
        self._keep_line(json.dumps(line, default=str, ensure_ascii=False))

    def begin(self) -> None:
        """There is work to do: the file is made, with the lines that were held."""
        if self._file is not None or self._is_broken:
            return
        with self._unbroken():
            path = self.logs.path(self.job, self.run)
            path.parent.mkdir(parents=True, exist_ok=True)
            self.logs.make_room(self.job, LOGS_OF_A_JOB - 1)
            self._file = path.open("a", encoding="utf-8", buffering=1)  # by lines: a killed run leaves what it said
            first = {KEY: FIRST, "timestamp": self._time(), "level": "info", "run": self.run, "job": self.job}
            self._write(json.dumps({**first, "event": "the log begins"}))
            held, self._held = self._held, []
            for line in held:
                self._keep_line(line)

    def close(self) -> None:
        """Nothing more comes."""
        if self._file is None:
            return
        with self._unbroken():
            if self._left_out:
                self._write(json.dumps({"run": self.run, "job": self.job, "event": f"{self._left_out} lines left out"}))
            self._file.close()
        self._file = None

    def _keep_line(self, line: str) -> None:
        text = redact(line)
        text = text if len(text) <= LINE_CHARACTERS else _shortened(text, self.run, self.job)
        if self._file is None:
            self._held = [*self._held[-LINES_HELD:], text] if not self._is_broken else []
        elif self._written + len(text) > self.most_bytes:
            self._left_out += 1
        else:
            with self._unbroken():
                self._write(text)

    def _time(self) -> str:
        return self.now().isoformat(timespec="milliseconds")

    def _write(self, line: str) -> None:
        if self._file is not None:
            self._written += self._file.write(f"{line}\n")

    @contextmanager
    def _unbroken(self) -> Iterator[None]:
        """A disk that takes no log is no reason to stop a run."""
        try:
            yield
        except OSError:
            self._file, self._is_broken = None, True


def begin_log() -> None:
    """The run of this thread has work to do: what it logs is worth a file."""
    kept = _open_log.get()
    if kept is not None:
        kept.begin()


@contextmanager
def keeping_log(store: MarkStore, job: str, run: str) -> Iterator[None]:
    """Keep what is logged in this block as the log of a run; whatever ends it badly is its last line.

    Inside the block of the same run it is the log that is open already.
    """
    opened = _open_log.get()
    if opened is not None and opened.run == run:
        yield
        return
    _begun_run.set(run)
    logs = RunLogs.of(store)
    if logs is None:
        yield
    else:
        with _opened(RunLog(logs, job, run)):
            yield
    _begun_run.set("")


@contextmanager
def _opened(kept: RunLog) -> Iterator[None]:
    token = _open_log.set(kept)
    try:
        with keeping_lines(kept), _last_line(kept):
            yield
    finally:
        _open_log.reset(token)
        kept.close()


@contextmanager
def _last_line(kept: RunLog) -> Iterator[None]:
    try:
        yield
    except LeaseHeld:  # another run is at work, this one did nothing
        raise
    except BaseException as error:
        kept.begin()
        event = "the run failed" if isinstance(error, Exception) else "the run was stopped"
        kept.add("error", __name__, event, {"error": str(error), "exc_info": error})
        raise


def begun_run() -> str:
    """The run that was begun last in this thread and did not end well; empty if there is none."""
    return _begun_run.get()


@contextmanager
def noting_run() -> Iterator[None]:
    """In this block `begun_run` knows no run from before."""
    token = _begun_run.set("")
    try:
        yield
    finally:
        _begun_run.reset(token)


def _trace(exc_info: object) -> str | None:
    if isinstance(exc_info, BaseException):
        return "".join(traceback.format_exception(exc_info))
    return traceback.format_exc() if exc_info else None


def _shortened(line: str, run: str, job: str) -> str:
    """A line that is still JSON."""
    return json.dumps({"run": run, "job": job, "event": "a long line", "begins": line[: LINE_CHARACTERS // 2]})


def _file_name(name: str) -> str:
    """The name as one part of a path, and no other."""
    quoted = quote(name, safe="")
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted


def _facts(line: str) -> dict[str, Any]:
    """The facts of a line; a kill may have cut the last one off."""
    with suppress(ValueError):
        facts = json.loads(line)
        return facts if isinstance(facts, dict) else {"event": line}
    return {"event": line}


def _modified(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _remove(path: Path) -> bool:
    with suppress(OSError):
        path.unlink()
        return True
    return False
