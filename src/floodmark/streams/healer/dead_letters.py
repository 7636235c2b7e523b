"""The records that a stream gave up, kept in a file of its state folder, and what was done with them since.

They have the shape of everything that is put aside (`probes.set_aside`), each under the number of its turn: a turn that
is cut off and done again adds none twice, and what was done about a letter meanwhile stays done. Whoever does it again
puts a fence there first: a run that was only paused in the turn could still give up a record that is healed by then.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import unquote

from floodmark.errors import ConfigError, LeaseHeld, Overtaken, StoreUnreachable
from floodmark.logs import redact
from floodmark.machine import append_after, ensure_folder, file_lock, replace_file, sync_folder
from floodmark.probes.set_aside import SetAsideRow, latest_states
from floodmark.stores.record import JobRecord
from floodmark.streams.elements import Element, Failure, RecordId, RecordOutcome
from floodmark.streams.healing_step import Verdict
from floodmark.streams.program import DriverRun, Program
from floodmark.streams.task.folder import mark_version, require_known_folder
from floodmark.streams.task.journal import Headers, RawRecord

Status = Literal["open", "replayed", "discarded"]
PATIENCE_SECONDS = 30.0
KAFKA_RECORD = "kafka record"
"""The shape of a letter's record: its bytes as Kafka gave them, and what the stream knows of its attempts."""


@dataclass(frozen=True)
class DeadLetter:
    """A record that failed for good: what it was, why it failed, how often, and whether anybody has dealt with it.

    `timestamp` is Kafka's, in milliseconds; the other times are seconds of the epoch. `number` is that of the turn; 0
    before turns were kept.
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
    number: int = 0

    def row(self, stream: str) -> SetAsideRow:
        """In the one shape of rows that were put aside."""
        raw = RawRecord(self.key, self.value, self.headers, self.timestamp).serialize()
        times = {"step": self.step, "first_at": self.first_at, "last_at": self.last_at}
        at = self.last_at if self.status_at is None else self.status_at
        return SetAsideRow(
            id=str(self.record),
            kind="dead_letter",
            job=stream,
            number=self.number,
            batch_time=datetime.fromtimestamp(at, timezone.utc),
            reasons=(self.error,),
            status=self.status,
            attempts=self.attempts,
            source=self.record.topic,
            file=f"{self.record.topic}/{self.record.partition}",
            line=self.record.offset,
            record=json.dumps({**raw, **times}),
            shape=KAFKA_RECORD,
        )

    @classmethod
    def of(cls, row: SetAsideRow) -> DeadLetter:
        """The letter of a row that `row` made."""
        kept = json.loads(str(row.record))
        topic, _, partition = str(row.file).rpartition("/")
        return cls(
            record=RecordId(topic, int(partition), int(row.line or 0)),
            **RawRecord.deserialize(kept)._asdict(),
            **{name: kept[name] for name in ("step", "first_at", "last_at")},
            error=row.reasons[0],
            attempts=row.attempts,
            status=cast("Status", row.status),
            status_at=None if row.status == "open" else row.batch_time.timestamp(),
            number=row.number,
        )

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> DeadLetter:
        """From a line of version 1."""
        return cls(
            record=RecordId(stored["topic"], stored["partition"], stored["offset"]),
            **RawRecord.deserialize(stored)._asdict(),
            **{name: stored[name] for name in ("step", "error", "attempts", "first_at", "last_at")},
        )


class DeadLetters:
    """The letters of one stream. Lines are only ever appended, so that a crash costs the last one at most."""

    def __init__(self, folder: Path, stream: str | None = None) -> None:
        self.folder = folder
        self.stream = stream or unquote(folder.parent.name)
        self._file = folder / "letters.jsonl"
        self._fence = folder / "fence.json"

    def fence(self, number: int, attempt: str) -> None:
        """Nobody but this attempt adds letters of the turn, or of an earlier one, from now on; durable on return."""
        with self._lock():
            mark_version(self.folder.parent)
            replace_file(self._fence, json.dumps({"number": number, "attempt": attempt}))

    def add(self, letters: Sequence[DeadLetter], attempt: str | None = None) -> None:
        """Keep these letters; durable on return. One that is open, or of a turn that is done again, is kept once.

        Raises Overtaken if another attempt has put its fence there: nothing was kept.
        """
        with self._lock():
            self._require_unfenced(letters, attempt)
            rows = self._rows()
            known = {(row.id, row.number) for row in rows}
            open_ids = {row.id for row in latest_states(rows) if row.status == "open"}
            fresh = [each.row(self.stream) for each in letters]
            self._append([each for each in fresh if each.id not in open_ids and (each.id, each.number) not in known])

    def _require_unfenced(self, letters: Sequence[DeadLetter], attempt: str | None) -> None:
        if not self._fence.exists():
            return
        fence: dict[str, Any] = json.loads(self._fence.read_bytes())
        late = [each for each in letters if each.number <= fence["number"] and attempt != fence["attempt"]]
        if late:
            raise Overtaken(self.stream, sink="dead letters", number=late[0].number)

    def resolve(self, record: RecordId, status: Literal["replayed", "discarded"], *, at: float) -> None:
        """A letter is dealt with; durable on return."""
        self._change(record, lambda letter: replace(letter, status=status, status_at=at))

    def fail_again(self, record: RecordId, *, step: str, error: str, at: float) -> None:
        """A letter was replayed and failed once more: it stays open, with the new reason; durable on return."""
        text = redact(error)
        self._change(record, lambda each: replace(each, step=step, error=text, last_at=at, attempts=each.attempts + 1))

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

    def rows(self) -> list[SetAsideRow]:
        """Every letter as it is now, in the one shape of what is put aside."""
        return latest_states(self._rows())

    def all(self) -> tuple[DeadLetter, ...]:
        """Every letter, by topic, partition and offset."""
        return tuple(sorted((DeadLetter.of(row) for row in self.rows()), key=lambda letter: letter.record))

    def open_letters(self) -> tuple[DeadLetter, ...]:
        """Those that nobody has dealt with."""
        return tuple(letter for letter in self.all() if letter.status == "open")

    def _rows(self) -> list[SetAsideRow]:
        """What the file tells, line by line; of version 1 only what its letters became."""
        earlier: dict[RecordId, DeadLetter] = {}
        rows: list[SetAsideRow] = []
        for entry in self._entries():
            if "id" in entry:
                rows.append(SetAsideRow.of(entry))
            else:
                record = RecordId(entry["topic"], entry["partition"], entry["offset"])
                earlier[record] = _letter_after(earlier.get(record), entry)
        return [*(letter.row(self.stream) for letter in earlier.values()), *rows]

    def _change(self, record: RecordId, change: Callable[[DeadLetter], DeadLetter]) -> None:
        """Add what the letter is now, under the number it has in the file: what is done about it comes second there."""
        with self._lock():
            rows = [row for row in self._rows() if row.id == str(record)]
            last = max(rows, key=lambda row: (row.number, row.status != "open", rows.index(row)))
            self._append([change(DeadLetter.of(last)).row(self.stream)])

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

    def _append(self, rows: list[SetAsideRow]) -> None:
        if not rows:
            return
        mark_version(self.folder.parent)
        whole = self._file.read_bytes().rfind(b"\n") + 1 if self._file.exists() else 0
        append_after(self._file, whole, "".join(json.dumps(row.stored()) + "\n" for row in rows))
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
    """What a line of version 1 makes of the letter: a new one, one that failed again, or one that is dealt with."""
    if letter is None or "value" in entry:
        return DeadLetter.deserialize(entry)
    if "status" in entry:
        return replace(letter, status=entry["status"], status_at=entry["at"])
    again = {name: entry[name] for name in ("step", "error", "last_at")}
    return replace(letter, attempts=letter.attempts + 1, **again)


def require_settled(letters: Iterable[DeadLetter], record: JobRecord | None) -> None:
    """Raises ConfigError for a letter of a turn that was cut off: whoever finishes it runs the record once more."""
    open_number = record.intent.number if record and record.intent else None
    for letter in letters:
        if record is not None and open_number is not None and letter.number == open_number:
            raise ConfigError(
                f"letter {letter.record} is of turn {open_number} of stream '{record.job}', which is not finished.",
                hint="run the stream: it finishes the turn, and the letter may not be one then",
            )


UNHEALED = Failure("", "nothing healed it, and nothing failed")
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
    _require_alone(program)
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


def _require_alone(program: Program) -> None:
    """Raise ConfigError where no record can run by itself: what a step knows of the others is with the stream."""
    steps = [step.operator for step in program.tasks.steps if step.operator.keeps and not step.operator.runs_in_driver]
    if steps:
        raise ConfigError(
            f"letters of this stream cannot run by themselves: {steps[0]} knows of the other records.",
            hint="publish them to the topic again, then discard them",
        )


def _run(
    letter: DeadLetter, program: Program, report: ReplayReport, driver: DriverRun, *, as_list: bool
) -> Failure | None:
    run = program.tasks.start()
    row = (uuid_of(letter), letter.value)
    outcomes = run.push(Element([row] if as_list else row, (letter.record,)))
    [(record, kind, failure)] = [*outcomes, *run.finish()] or [RecordOutcome(letter.record, "failed", UNHEALED)]
    run.close()
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


def letters_below(folder: Path) -> list[DeadLetters]:
    """The letters of every stream whose state is this folder, or one inside it."""
    roots = (folder, *sorted(folder.iterdir())) if folder.is_dir() else ()
    return [DeadLetters(root / "dead") for root in roots if (root / "dead").is_dir()]


def text_of(value: bytes | None) -> str | None:
    """Text where it is text; else what Python writes for the bytes."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return repr(value)
