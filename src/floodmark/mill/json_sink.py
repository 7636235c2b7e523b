"""A JSON file as output: the parts of the turns lie beside it, and it appears whole when the stream has ended."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.mill.json_array import PIECE_BYTES
from floodmark.sinks.contract import POSITION, Batch, Recorded, Session
from floodmark.sinks.file_ledger import batch_folder, numbers, page_of
from floodmark.sinks.files import Files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class JsonParts:
    """Lines of JSON text in a hidden folder beside the file, a part per turn, in the order of their positions.

    It is no Atomic sink, so that the step keeps the rows before they are sorted: Spark samples what it sorts, and
    the process function would run once more for that.
    """

    path: Path
    name: str

    @property
    def parts(self) -> Files:
        return Files(str(self._folder), format="text", name=self.name)

    def describe(self) -> str:
        return f"json file {self.path}"

    def fingerprint(self) -> str:
        return f"json file {self.path.absolute()}"

    def recorded(self, ledger: str, session: Session) -> Recorded | None:
        return self.parts.recorded(ledger, session)

    def holds_rows(self, session: Session) -> bool:
        return self.parts.holds_rows(session)

    def write(self, rows: DataFrame, batch: Batch) -> int | None:
        return self.parts.write(rows.orderBy(POSITION), batch)

    def fence(self, ledger: str, number: int, session: Session) -> None:
        self.parts.fence(ledger, number, session)

    def needs_position(self) -> bool:
        return True

    def publish(self) -> None:
        """Put all parts together in a file of another name, and that one in its place; twice gives the same file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex}.tmp")
        try:
            with temporary.open("w", encoding="utf-8", newline="") as file:
                file.write("[")
                for number, text in enumerate(self._texts()):
                    file.write(f", {text}" if number else text)
                file.write("]")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise

    @property
    def _folder(self) -> Path:
        return self.path.absolute().with_name(f".{self.path.name}.parts")

    def _texts(self) -> Iterator[str]:
        """The elements of all parts, many at a time, with what stands between two of them in the array."""
        for number in sorted(numbers(self._folder)):
            for part in sorted(page_of(self._folder, number).files):
                with (batch_folder(self._folder, number) / part).open(encoding="utf-8", newline="\n") as file:
                    while lines := file.readlines(PIECE_BYTES):
                        yield "".join(lines).rstrip("\n").replace("\n", ", ")
