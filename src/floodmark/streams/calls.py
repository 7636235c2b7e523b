"""Calling a user's function for every record of an Arrow batch: what it returned, and on which records it failed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from floodmark.logs import redact
from floodmark.sinks.contract import POSITION
from floodmark.streams.elements import USER_ERRORS, Failure

if TYPE_CHECKING:
    import pyarrow as pa

    from floodmark.streams.policy import OnError


FAILURE = "_fm_failure"
LONGEST_REASON = 4_000

Record: TypeAlias = "Mapping[str, Any]"
RecordFunction: TypeAlias = "Callable[[Record], Record | Iterable[Record] | None]"


def function_task(
    function: RecordFunction, policy: OnError, schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (call_on_batch(batch, function, policy, schema) for batch in batches)

    return task


def call_on_batch(
    batch: pa.RecordBatch, function: RecordFunction, policy: OnError, schema: pa.Schema
) -> pa.RecordBatch:
    """The rows that the function gave, then a row for each record that failed, each with its place in the source."""
    import pyarrow as pa

    positions = batch.column(POSITION) if POSITION in batch.schema.names else None
    batch = batch.drop_columns([POSITION]) if positions is not None else batch
    records = batch.to_pylist()
    results = fail_misfits([call(function, record, policy) for record in records], schema)
    answers: list[tuple[int, Record, str | None]]
    answers = [(at, row, None) for at, result in enumerate(results) for row in result.rows]
    answers += [(at, {}, result.failure) for at, result in enumerate(results) if result.failure]
    columns = pa.RecordBatch.from_pylist([row for _, row, _ in answers], schema=schema).columns
    names = [*schema.names, *([POSITION] if positions is not None else []), FAILURE]
    own = [positions.take(pa.array([at for at, _, _ in answers], pa.int64()))] if positions is not None else []
    failures = _failures(batch, records, [(at, reason) for at, _, reason in answers])
    return pa.RecordBatch.from_arrays([*columns, *own, failures], names=names)


@dataclass(frozen=True)
class CallResult:
    """What became of one record: the rows that it gave (none: it was dropped), or why it failed."""

    rows: tuple[Record, ...] = ()
    failure: str | None = None


def call(
    function: RecordFunction, record: Record, policy: OnError, sleep: Callable[[float], object] = time.sleep
) -> CallResult:
    """Call the function, as often as the policy says."""
    attempts = 1
    while True:
        try:
            return CallResult(_rows(function(record)))
        except USER_ERRORS as error:
            if attempts >= policy.attempts:
                return CallResult(failure=redact(Failure.of("heal", error).error)[:LONGEST_REASON])
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


def fail_misfits(results: Sequence[CallResult], schema: pa.Schema) -> list[CallResult]:
    """The results, with those failed whose rows do not fit the schema; one by one only if not all of them do."""
    strange = [_strange_field(result, schema) for result in results]
    known = [CallResult(failure=why) if why else result for result, why in zip(results, strange, strict=True)]
    if _misfit([row for result in known for row in result.rows], schema) is None:
        return known
    return [CallResult(failure=why) if (why := _misfit(result.rows, schema)) else result for result in known]


def _strange_field(result: CallResult, schema: pa.Schema) -> str | None:
    names = set(schema.names)
    strange = next((name for row in result.rows for name in row if name not in names), None)
    return None if strange is None else f"the function returned a field '{strange}' that the schema does not have"


def _misfit(rows: Sequence[Record], schema: pa.Schema) -> str | None:
    import pyarrow as pa

    try:
        pa.RecordBatch.from_pylist(list(rows), schema=schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        return f"what the function returned does not fit the schema: {str(error).splitlines()[0]}"
    return None


def _failures(batch: pa.RecordBatch, records: Sequence[Record], reasons: Sequence[tuple[int, str | None]]) -> pa.Array:
    """For each row of the answer why its record failed, with the record as text and as it came; else null."""
    import pyarrow as pa

    texts = pa.array([None if why is None else _record_text(records[at]) for at, why in reasons], pa.string())
    whys = pa.array([why for _, why in reasons], pa.string())
    whole = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
    saved = whole.take(pa.array([None if why is None else at for at, why in reasons], pa.int64()))
    fields = [pa.field("text", pa.string()), pa.field("reason", pa.string()), pa.field("record", whole.type)]
    return pa.StructArray.from_arrays([texts, whys, saved], fields=fields, mask=whys.is_null())


def _record_text(record: Record) -> str:
    def text(value: object) -> str:
        return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)

    return json.dumps(record, default=text, ensure_ascii=False)
