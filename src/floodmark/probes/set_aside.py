"""Rows that were put aside, as one shape: dead letters of jobs and streams, and quarantined rows.

A table, or the file of a stream, holds a row for each record that was put aside, and one for everything that was done
about it since; here they are followed to what each is now, without a JVM. Tables of earlier versions are read as well,
whatever columns they have; who writes them is the step, and for a stream the healer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Literal

from floodmark.errors import SourceUnreadable
from floodmark.hwm import Json
from floodmark.locations import native_uri
from floodmark.object_stores import delta_options
from floodmark.probes.delta import as_arrow

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["dead_letter", "quarantine"]

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class SetAsideRow:
    """A record that a job put aside: why, by which batch, and what became of it.

    A dead letter is what a source could not parse, or a transform or a stream failed on; a quarantined row broke rules,
    which `reasons` name. `record` is the JSON that can be run again and `shape` its schema; a row without one can only
    be read by a person. `number` is the batch that put it aside, and `batch_time` that of the last thing done about it.
    """

    id: str | None
    kind: Kind
    job: str
    number: int
    batch_time: datetime
    reasons: tuple[str, ...]
    status: str
    attempts: int = 1
    source: str | None = None
    file: str | None = None
    line: int | None = None
    text: str | None = None
    record: str | None = None
    shape: str | None = None

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> SetAsideRow:
        """A row of a table, of this version or an earlier one: the first knew no state, and no id, of a letter."""
        reasons, time = stored.get("reasons") or filter(None, [stored.get("reason")]), stored["batch_time"]
        return cls(
            id=stored.get("id"),
            kind=stored.get("kind") or ("quarantine" if "row" in stored else "dead_letter"),
            job=stored["job"],
            number=stored["number"],
            batch_time=datetime.fromisoformat(time) if isinstance(time, str) else time,
            reasons=tuple(reasons),
            status=stored.get("status") or "open",
            attempts=stored.get("attempts") or 1,
            record=stored.get("record") or stored.get("row"),
            shape=stored.get("shape") or stored.get("schema"),
            **{name: stored.get(name) for name in ("source", "file", "line", "text")},
        )

    def stored(self) -> dict[str, Json]:
        """The row as `of` reads it, for a file of JSON lines."""
        return {**asdict(self), "batch_time": self.batch_time.isoformat(), "reasons": list(self.reasons)}

    @property
    def name(self) -> str:
        """Batch and place; a record whose place has no line is told apart by the beginning of its id."""
        has_place = self.line is not None or not self.id
        return f"{self.number}:{f'{self.file}:{self.line}' if has_place else str(self.id)[:8]}"


def rows_set_aside(path: str, job: str, kind: Kind | None = None) -> list[SetAsideRow]:
    """What a job put aside in this table, each row as it is now, in the order of batch and place.

    Of one kind, or of both: dead letters and quarantine may share a table. Nothing, if there is no table. Raises
    SourceUnreadable.
    """
    from deltalake import DeltaTable, QueryBuilder
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        table = DeltaTable(native_uri(path), storage_options=delta_options(path))
        # Not to_pyarrow_table: the threads of pyarrow call back into Python, and may abort the process as it ends.
        stored = as_arrow(QueryBuilder().register("put_aside", table).execute("SELECT * FROM put_aside").read_all())
    except TableNotFoundError:
        return []
    except (DeltaError, OSError) as error:
        raise SourceUnreadable(f"delta table {path}", reason=str(error).splitlines()[0]) from error
    rows = (SetAsideRow.of(row) for row in _dicts(stored) if row["job"] == job)
    return latest_states(row for row in rows if kind in (None, row.kind))


def _dicts(stored: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows; moments are made here, since pyarrow would load pandas for them, which takes longer than the rest."""
    import pyarrow as pa

    moments = [field.name for field in stored.schema if pa.types.is_timestamp(field.type)]
    for name in moments:
        place, whole = stored.schema.get_field_index(name), stored.column(name).cast(pa.timestamp("us", "UTC"))
        stored = stored.set_column(place, name, whole.cast(pa.int64()))
    for row in stored.to_pylist():
        yield row | {name: None if row[name] is None else EPOCH + timedelta(microseconds=row[name]) for name in moments}


def latest_states(rows: Iterable[SetAsideRow]) -> list[SetAsideRow]:
    """The last that is known of each; under one number, what was done about a row comes after the row itself."""
    found: dict[str, SetAsideRow] = {}
    for row in sorted(rows, key=lambda row: (row.number, row.status != "open")):
        known = row.id or row.name
        first = found.get(known, row)
        found[known] = replace(row, number=first.number)
    return sorted(found.values(), key=lambda row: (row.number, str(row.file), row.line or 0))
