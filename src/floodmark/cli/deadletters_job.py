"""The dead letters of a job, read from its Delta table without a JVM: what each is now, by all that was noted of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from floodmark.cli.deadletters_shown import Letter
from floodmark.errors import SourceUnreadable

Row: TypeAlias = "Mapping[str, Any]"


@dataclass(frozen=True)
class JobLetters:
    """The letters of a job: what its source could not parse, and what its transform failed on."""

    name: str
    path: str
    kind = "job"

    def all(self) -> list[Letter]:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            rows = DeltaTable(self.path).to_pyarrow_table().to_pylist()
        except TableNotFoundError:
            return []
        except (DeltaError, OSError) as error:
            raise SourceUnreadable(f"delta table {self.path}", reason=str(error).splitlines()[0]) from error
        mine = [row for row in rows if row["job"] == self.name]
        return [_letter(self.name, first, last) for first, last in _followed(mine)]


def _followed(rows: Iterable[Row]) -> Iterator[tuple[Row, Row]]:
    """The first and the last that was noted of each letter, by the batch that met it and its place."""
    found: dict[str, tuple[Row, Row]] = {}
    for row in sorted(rows, key=lambda row: (row["number"], _status(row) != "open")):
        known = row.get("id") or _letter_name(row)
        first, _ = found.get(known, (row, row))
        found[known] = (first, row)
    yield from sorted(found.values(), key=lambda both: _place(both[0]))


def _letter(name: str, first: Row, last: Row) -> Letter:
    told = ("source", "file", "line", "text", "record")
    return Letter(
        of=name,
        kind=JobLetters.kind,
        letter=_letter_name(first),
        status=_status(last),
        at=str(last["batch_time"]),
        attempts=last.get("attempts") or 1,
        step=str(last["source"]),
        error=str(last["reason"]),
        whole={"number": first["number"], **{what: last.get(what) for what in told}},
        id=last.get("id"),
        can_run=last.get("record") is not None,
    )


def _letter_name(row: Row) -> str:
    """Batch and place; a record whose place has no line is told apart by the beginning of its id."""
    place = f"{row['file']}:{row['line']}"
    return f"{row['number']}:{place if row['line'] is not None or not row.get('id') else row['id'][:8]}"


def _status(row: Row) -> str:
    """Tables of earlier versions know no other."""
    return row.get("status") or "open"


def _place(row: Row) -> tuple[object, ...]:
    return (row["number"], str(row["file"]), row["line"] or 0)
