"""The records that a stream gave up, kept in a file of its state folder, and what was done with them since."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from floodmark.errors import LeaseHeld, StoreUnreachable
from floodmark.hwm import Json
from floodmark.logs import redact
from floodmark.machine import append_after, ensure_folder, file_lock, sync_folder
from floodmark.streams.elements import Element, Failure, RecordId
from floodmark.streams.healing_step import Verdict
from floodmark.streams.program import DriverRun, Program
from floodmark.streams.task.journal import Headers, RawRecord, require_known_folder

Status = Literal["open", "replayed", "discarded"]
PATIENCE_SECONDS = 30.0


@dataclass(frozen=True)
class DeadLetter:
    """A record that failed for good: what it was, why it failed, how often, and whether anybody has dealt with it.

    `timestamp` is Kafka's, in milliseconds; the other times are seconds of the epoch.
    """

    record: RecordId
    key: bytes | None = field(repr=False)
    value: bytes | None = field(repr=False)
    headers: Headers | None = field(repr=False)
    timestamp: int
    step: str
    error: str
    attempts: int
    first_at: float
    last_at: float
    status: Status = "open"
    status_at: float | None = None

    def serialize(self) -> dict[str, Json]:
        """As it stands in the file, with bytes in base64."""
        return {
            **self.record._asdict(),
            **RawRecord(self.key, self.value, self.headers, self.timestamp).serialize(),
            "step": self.step,
            "error": self.error,
            "attempts": self.attempts,
            "first_at": self.first_at,
            "last_at": self.last_at,
        }

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> DeadLetter:
        """From the file."""
        return cls(
            record=RecordId(stored["topic"], stored["partition"], stored["offset"]),
            **RawRecord.deserialize(stored)._asdict(),
            **{name: stored[name] for name in ("step", "error", "attempts", "first_at", "last_at")},
        )


class DeadLetters:
    """The letters of one stream. Lines are only ever appended, so that a crash costs the last one at most."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "letters.jsonl"

    def add(self, letters: Iterable[DeadLetter]) -> None:
        """Keep these letters; durable on return. One that is open already is not kept twice: a crash repeats calls."""
        with self._lock():
            known = self._read()
            fresh = [each for each in letters if not (each.record in known and known[each.record].status == "open")]
            self._append([each.serialize() for each in fresh])

    def resolve(self, record: RecordId, status: Literal["replayed", "discarded"], *, at: float) -> None:
        """A letter is dealt with; durable on return."""
        with self._lock():
            self._append([{**record._asdict(), "status": status, "at": at}])

    def fail_again(self, record: RecordId, *, step: str, error: str, at: float) -> None:
        """A letter was replayed and failed once more: it stays open, with the new reason; durable on return."""
        with self._lock():
            self._append([{**record._asdict(), "step": step, "error": redact(error), "last_at": at}])

    @contextmanager
    def lock_replay(self) -> Iterator[None]:
        """Hold the letters against a second replay, which would run the same ones; letters may still be added."""
        ensure_folder(self.folder)
        try:
            with file_lock(self.folder / "replay.lock", exclusive=True, patience_seconds=0.0):
                yield
        except TimeoutError as error:
            holder = "another `deadletters replay`"
            raise LeaseHeld(self.folder.parent.name, holder=holder, since="shortly") from error

    def all(self) -> tuple[DeadLetter, ...]:
        """Every letter, by topic, partition and offset."""
        letters = self._read()
        return tuple(letters[record] for record in sorted(letters))

    def open_letters(self) -> tuple[DeadLetter, ...]:
        """Those that nobody has dealt with."""
        return tuple(letter for letter in self.all() if letter.status == "open")

    def _read(self) -> dict[RecordId, DeadLetter]:
        letters: dict[RecordId, DeadLetter] = {}
        for entry in self._entries():
            record = RecordId(entry["topic"], entry["partition"], entry["offset"])
            letters[record] = _letter_after(letters.get(record), entry)
        return letters

    def _entries(self) -> Iterator[dict[str, Any]]:
        require_known_folder(self.folder.parent)
        if not self._file.exists():
            return
        with self._file.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return  # a crash cut it off, before whoever wrote it could rely on it
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise StoreUnreachable(str(self._file), reason=f"line {number} cannot be read: {error}") from error

    def _append(self, entries: list[dict[str, Json]]) -> None:
        if not entries:
            return
        whole = self._file.read_bytes().rfind(b"\n") + 1 if self._file.exists() else 0
        append_after(self._file, whole, "".join(json.dumps(entry) + "\n" for entry in entries))
        sync_folder(self.folder)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        try:
            ensure_folder(self.folder)
            with file_lock(self.folder / "lock", exclusive=True, patience_seconds=PATIENCE_SECONDS):
                yield
        except OSError as error:
            raise StoreUnreachable(str(self.folder), reason=str(error)) from error


def _letter_after(letter: DeadLetter | None, entry: Mapping[str, Any]) -> DeadLetter:
    """What a line of the file makes of the letter: a new one, one that failed again, or one that is dealt with."""
    if letter is None or "value" in entry:
        return DeadLetter.deserialize(entry)
    if "status" in entry:
        return replace(letter, status=entry["status"], status_at=entry["at"])
    again = {name: entry[name] for name in ("step", "error", "last_at")}
    return replace(letter, attempts=letter.attempts + 1, **again)


REPLAYED = Verdict(success=True, reason="replayed from the dead letters: the mark had passed it")


@dataclass
class ReplayReport:
    """What became of the letters, and why some failed again."""

    healed_records: list[RecordId] = field(default_factory=list)
    dropped_records: list[RecordId] = field(default_factory=list)
    failures: dict[RecordId, Failure] = field(default_factory=dict)


def replay(
    letters: DeadLetters,
    chosen: Iterable[DeadLetter],
    program: Program,
    *,
    as_list: bool = False,
    now: Callable[[], float] = time.time,
) -> ReplayReport:
    """Run each letter alone, in this process and without Spark, and resolve it at once unless it fails again.

    `as_list`: the stream takes lists of rows (`from_kafka_batched`). What follows healing gets the results as always;
    the first error that it raises is raised at the end.
    """
    report, driver = ReplayReport(), program.driver.start()
    for letter in chosen:
        failure = _run(letter, program, report, driver, as_list=as_list)
        if failure is None:
            letters.resolve(letter.record, "replayed", at=now())
        else:
            letters.fail_again(letter.record, step=failure.step, error=failure.error, at=now())
    driver.flush()
    for error in driver.take_errors():
        raise error
    return report


def _run(
    letter: DeadLetter, program: Program, report: ReplayReport, driver: DriverRun, *, as_list: bool
) -> Failure | None:
    run = program.tasks.start()
    row = (uuid_of(letter), letter.value)
    outcomes = run.push(Element([row] if as_list else row, (letter.record,)))
    [(record, kind, failure)] = [*outcomes, *run.await_io(), *run.flush()]
    if failure is not None:
        report.failures[record] = failure
        return failure
    (report.healed_records if kind == "done" else report.dropped_records).append(record)
    for healed in run.take_healed():
        driver.push(healed, lambda _: REPLAYED)
    return None


def uuid_of(letter: DeadLetter) -> Mapping[str, object]:
    """The uuid that the record had in the stream; `attempt` counts on."""
    place = letter.record._asdict()
    message = {"key": letter.key, "headers": letter.headers, "timestamp": letter.timestamp}
    return {**place, "attempt": letter.attempts + 1, **message}
