"""What tasks keep on disk as they go: healed rows, elements that wait, and what steps hold when a turn ends."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from floodmark.streams.elements import HealedElement, PassedElement, RecordId
from floodmark.streams.flow import PlanRun
from floodmark.streams.task.journal import RawRecord


class WaitingElement(NamedTuple):
    """An element that waits for steps that span the stream, with its records as Kafka gave them.

    `call` tells the calls of one record's steps apart: if its worker died and it ran again, only the last counts.
    """

    passed: PassedElement
    raw_records: tuple[RawRecord, ...]
    call: str


class KeptFile:
    """Tuples in a file that is made when the first one comes; each outlives this process once it is added."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def add(self, entries: Iterable[tuple[Any, ...]]) -> None:
        """Keep them: they outlive this process on return."""
        content = b"".join(map(_pickle, entries))
        if not content:
            return
        if self._file is None:
            self._file = self._path.open("ab", buffering=0)
        self._file.write(content)

    def sync(self) -> None:
        """Make them outlive the machine."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()


def _pickle(entry: tuple[Any, ...]) -> bytes:
    """In the quick way, or for what a script defines itself in the thorough one."""
    try:
        return pickle.dumps(tuple(entry))
    except (pickle.PicklingError, AttributeError, TypeError):
        from pyspark import cloudpickle

        return bytes(cloudpickle.dumps(tuple(entry)))  # type: ignore[no-untyped-call]


def _entries(path: Path) -> Iterator[tuple[Any, ...]]:
    """What a file holds; an entry that a crash cut off is none."""
    if not path.exists():
        return
    with path.open("rb") as file:
        while True:
            try:
                yield pickle.load(file)  # noqa: S301 (our own file, beside the marks)
            except (EOFError, pickle.UnpicklingError):
                return


def read_healed_rows(path: Path) -> Iterator[HealedElement]:
    """The healed rows of a file; one that a crash cut off was not healed."""
    return (HealedElement(*entry) for entry in _entries(path))


def read_waiting(paths: Iterable[Path]) -> list[WaitingElement]:
    """The waiting elements of one partition in the order of its records, those of the last call of each."""
    waiting = [WaitingElement(PassedElement(*entry[0]), *entry[1:]) for path in paths for entry in _entries(path)]
    last_calls = {record: each.call for each in waiting for record in each.passed.lineage}
    current = [each for each in waiting if any(last_calls[record] == each.call for record in each.passed.lineage)]
    return sorted(current, key=lambda each: each.passed.lineage[0].offset)


def save_memory(folder: Path, number: int, memory: Mapping[str, object]) -> None:
    """Keep what steps know after a turn, whole or not at all."""
    _replace(folder / str(number), memory)


def last_memory(folder: Path, before: int) -> Mapping[str, object]:
    """What steps knew after the last turn before this one; that of a turn which was not finished is of no use."""
    numbers = [int(path.name) for path in folder.glob("*") if path.name.isdigit()]
    last = max((number for number in numbers if number < before), default=None)
    if last is None:
        return {}
    memory: Mapping[str, object] = pickle.loads((folder / str(last)).read_bytes())  # noqa: S301 (our own file)
    return memory


def _replace(path: Path, content: object) -> None:
    from pyspark import cloudpickle

    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(cloudpickle.dumps(content))  # type: ignore[no-untyped-call]
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


@dataclass(frozen=True)
class CarriedState:
    """What steps such as `partition` still hold when a turn ends, and the held records as Kafka gave them.

    It holds the user's code as well, so only the run that made it takes it back: after a restart the records are read
    again and meet the code of that day.
    """

    run: str
    plan_run: PlanRun
    records: Mapping[RecordId, RawRecord]

    def save(self, path: Path) -> None:
        """Put it in place, whole or not at all."""
        _replace(path, self)

    @classmethod
    def load(cls, path: Path, run: str) -> CarriedState | None:
        """What was carried under this name by this run, if anything was."""
        try:
            state = pickle.loads(path.read_bytes())  # noqa: S301 (our own file, beside the marks)
        except FileNotFoundError:
            return None
        except (AttributeError, ImportError):  # of a run before an upgrade, whose classes had other names
            return None
        return state if isinstance(state, CarriedState) and state.run == run else None
