"""What steps such as `partition` still hold when a turn ends, kept for the next turn of the same run."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from floodmark.streams.failures import Raw
from floodmark.streams.journal import HELD, Journal
from floodmark.streams.program import Running


@dataclass(frozen=True)
class Carried:
    """A run of the steps with what it holds, and the held records as Kafka gave them, by offset.

    It holds the user's code as well, so only the run that made it takes it back: after a restart the records are read
    again and meet the code of that day.
    """

    run: str
    running: Running
    records: Mapping[int, Raw]

    def save(self, path: Path) -> None:
        """Put it in place, whole or not at all."""
        from pyspark import cloudpickle

        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        temporary.write_bytes(cloudpickle.dumps(self))  # type: ignore[no-untyped-call]
        temporary.replace(path)


def load(path: Path, run: str) -> Carried | None:
    """What was carried under this name by this run, if anything was."""
    if not path.exists():
        return None
    found = pickle.loads(path.read_bytes())  # noqa: S301 (our own file, beside the marks)
    return found if isinstance(found, Carried) and found.run == run else None


def still_held(carried: Carried | None, journal: Journal) -> Carried | None:
    """It can be taken back only while nothing of it has moved on: an attempt that died may have settled a part."""
    if carried is None:
        return None
    states, low = journal.states, journal.low
    return carried if all(states[offset - low] == HELD for offset in carried.records) else None
