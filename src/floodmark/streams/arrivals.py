"""Healed rows that something follows in the driver: kept by the tasks, and given to it after the commit."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from floodmark.streams.elements import Arrival


class ArrivalFile:
    """The rows that one partition healed in a turn, in their order; the file is made when the first one comes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def add(self, arrivals: Sequence[Arrival]) -> None:
        """Keep them: they outlive this process on return."""
        if not arrivals:
            return
        if self._file is None:
            self._file = self._path.open("ab", buffering=0)
        self._file.write(b"".join(map(_pickled, arrivals)))

    def sync(self) -> None:
        """Make them outlive the machine."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()


def _pickled(arrival: Arrival) -> bytes:
    """In the quick way, or for what a script defines itself in the thorough one."""
    try:
        return pickle.dumps(tuple(arrival))
    except (pickle.PicklingError, AttributeError, TypeError):
        from pyspark import cloudpickle

        return bytes(cloudpickle.dumps(tuple(arrival)))  # type: ignore[no-untyped-call]


def read_arrivals(path: Path) -> Iterator[Arrival]:
    """The healed rows of a file; one that a crash cut off was not healed."""
    if not path.exists():
        return
    with path.open("rb") as file:
        while True:
            try:
                yield Arrival(*pickle.load(file))  # noqa: S301 (our own file, beside the marks)
            except (EOFError, pickle.UnpicklingError):
                return
