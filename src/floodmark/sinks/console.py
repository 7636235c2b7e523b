"""The console as a sink: rows for a person's eyes, at least once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Literal, TextIO

from floodmark.errors import ConfigError
from floodmark.sinks.contract import AtLeastOnce, Batch, Recorded, Session, without_own
from floodmark.sinks.values import json_record, refusals_of_values, table_cell

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


WIDTHS_FROM = 100
"""A table's columns are as wide as its first rows need; later rows that are wider stand out of line."""


@dataclass(frozen=True)
class Console(AtLeastOnce):
    """Rows on stdout or stderr, one JSON object per line or as a table; a batch that is repeated is shown again.

    >>> Console(format="table", limit=20).describe()
    'stdout'
    """

    format: Literal["jsonl", "table"] = "jsonl"
    limit: int | None = None
    name: str = "console"
    stream: Literal["stdout", "stderr"] = "stdout"

    def __post_init__(self) -> None:
        if self.format not in ("jsonl", "table"):
            raise ConfigError(f"format: {self.format!r} is not known.", hint="one of: jsonl, table")
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"limit: {self.limit} shows nothing.", hint="1 or more, or leave it out")

    def describe(self) -> str:
        return self.stream

    def fingerprint(self) -> str:
        return f"console {self.format}"

    def recorded(self, ledger: str, session: Session) -> Recorded | None:
        """Nothing: a console cannot tell what it has shown."""
        return None

    def holds_rows(self, session: Session) -> bool:
        return False

    def write(self, rows: DataFrame, batch: Batch) -> int:
        """Rows come from Spark a partition at a time, so that a large batch does not fill this process."""
        visible = without_own(rows)
        limited = visible.limit(self.limit) if self.limit is not None else visible
        lines = _json_lines(limited) if self.format == "jsonl" else _table_lines(limited)
        with refusals_of_values(batch.job, self.name):
            return _print(lines, self._out()) - (1 if self.format == "table" else 0)

    def fence(self, ledger: str, number: int, session: Session) -> None:
        """Nothing to fence."""

    def _out(self) -> TextIO:
        return sys.stdout if self.stream == "stdout" else sys.stderr


def _json_lines(rows: DataFrame) -> Iterator[str]:
    return (row[0] for row in rows.select(json_record(rows, rows.columns)).toLocalIterator())


def _table_lines(rows: DataFrame) -> Iterator[str]:
    texts = rows.select(*map(table_cell, rows.schema.fields))
    cells = (tuple(row) for row in texts.toLocalIterator())
    first = list(islice(cells, WIDTHS_FROM))
    widths = [max(map(len, column)) for column in zip(rows.columns, *first, strict=True)]
    for line in chain([tuple(rows.columns)], first, cells):
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _print(lines: Iterator[str], out: TextIO) -> int:
    count = 0
    for line in lines:
        out.write(f"{line}\n")
        count += 1
    out.flush()
    return count
