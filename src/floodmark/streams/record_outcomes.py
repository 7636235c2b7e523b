"""Calling a function for every record of an Arrow batch: what it returned, and on which records it failed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from floodmark.logs import redact
from floodmark.sinks.contract import POSITION
from floodmark.streams.elements import Failure
from floodmark.streams.policy import OnError
from floodmark.streams.together import CAUGHT

if TYPE_CHECKING:
    import pyarrow as pa

FAILURE = "_fm_failure"
LONGEST_REASON = 4_000

Record: TypeAlias = "Mapping[str, Any]"
RecordFunction: TypeAlias = "Callable[[Record], Record | Iterable[Record] | None]"


@dataclass(frozen=True)
class Outcome:
    """What became of one record: the rows that it gave (none: it was dropped), or why it failed."""

    rows: tuple[Record, ...] = ()
    failure: str | None = None


def outcome_of(
    record: Record, function: RecordFunction, policy: OnError, sleep: Callable[[float], object] = time.sleep
) -> Outcome:
    """Call the function, as often as the policy says."""
    attempts = 1
    while True:
        try:
            return Outcome(_rows(function(record)))
        except CAUGHT as error:
            if attempts >= policy.attempts:
                return Outcome(failure=redact(Failure.of("heal", error).error)[:LONGEST_REASON])
        sleep(policy.pause_seconds(attempts))
        attempts += 1


def _rows(returned: Record | Iterable[Record] | None) -> tuple[Record, ...]:
    if returned is None:
        return ()
    rows = (returned,) if isinstance(returned, Mapping) else tuple(returned)
    for row in rows:
        if not isinstance(row, Mapping):
            raise TypeError(f"the function returned a {type(row).__name__}; it has to return a dict, dicts or None")
    return rows


def fitting(outcomes: Sequence[Outcome], schema: pa.Schema) -> list[Outcome]:
    """The outcomes, with those failed whose rows do not fit the schema."""
    strange = [_stranger(outcome, schema) for outcome in outcomes]
    known = [Outcome(failure=why) if why else outcome for outcome, why in zip(outcomes, strange, strict=True)]
    if _misfit([row for outcome in known for row in outcome.rows], schema) is None:
        return known
    return [Outcome(failure=why) if (why := _misfit(outcome.rows, schema)) else outcome for outcome in known]


def _stranger(outcome: Outcome, schema: pa.Schema) -> str | None:
    names = set(schema.names)
    strange = next((name for row in outcome.rows for name in row if name not in names), None)
    return None if strange is None else f"the function returned a field '{strange}' that the schema does not have"


def _misfit(rows: Sequence[Record], schema: pa.Schema) -> str | None:
    import pyarrow as pa

    try:
        pa.RecordBatch.from_pylist(list(rows), schema=schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        return f"what the function returned does not fit the schema: {str(error).splitlines()[0]}"
    return None


def healed_batch(batch: pa.RecordBatch, function: RecordFunction, policy: OnError, schema: pa.Schema) -> pa.RecordBatch:
    """The rows that the function gave, then a row for each record that failed, each with its place in the source."""
    import pyarrow as pa

    places = batch.column(POSITION) if POSITION in batch.schema.names else None
    given = batch.drop_columns([POSITION]) if places is not None else batch
    records = given.to_pylist()
    outcomes = fitting([outcome_of(record, function, policy) for record in records], schema)
    told: list[tuple[int, Record, str | None]]
    told = [(at, row, None) for at, outcome in enumerate(outcomes) for row in outcome.rows]
    told += [(at, {}, each.failure) for at, each in enumerate(outcomes) if each.failure]
    columns = pa.RecordBatch.from_pylist([row for _, row, _ in told], schema=schema).columns
    names = [*schema.names, *([POSITION] if places is not None else []), FAILURE]
    own = [places.take(pa.array([at for at, _, _ in told], pa.int64()))] if places is not None else []
    failures = _failures(given, records, [(at, why) for at, _, why in told])
    return pa.RecordBatch.from_arrays([*columns, *own, failures], names=names)


def _failures(given: pa.RecordBatch, records: Sequence[Record], told: Sequence[tuple[int, str | None]]) -> pa.Array:
    """For each row of the answer why its record failed, with the record as text and as it came; else null."""
    import pyarrow as pa

    texts = pa.array([None if why is None else _text_of(records[at]) for at, why in told], pa.string())
    reasons = pa.array([why for _, why in told], pa.string())
    whole = pa.StructArray.from_arrays(given.columns, fields=list(given.schema))
    saved = whole.take(pa.array([None if why is None else at for at, why in told], pa.int64()))
    fields = [pa.field("text", pa.string()), pa.field("reason", pa.string()), pa.field("record", whole.type)]
    return pa.StructArray.from_arrays([texts, reasons, saved], fields=fields, mask=reasons.is_null())


def _text_of(record: Record) -> str:
    return json.dumps(record, default=_text, ensure_ascii=False)


def _text(value: object) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def healing_task(
    function: RecordFunction, policy: OnError, schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (healed_batch(batch, function, policy, schema) for batch in batches)

    return task
