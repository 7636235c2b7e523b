"""A per-record function as the transform of a job: each record is done, dropped or failed on its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from floodmark.errors import ConfigError, FloodmarkError, TransformFailed
from floodmark.logs import redact
from floodmark.sinks.contract import POSITION
from floodmark.step.refused import json_text
from floodmark.step.transform import Function, first_lines, only_frame
from floodmark.streams.elements import Failure
from floodmark.streams.healing_step import OnError, on_error_of
from floodmark.streams.workers import CAUGHT

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


# Calling a function for every record of an Arrow batch: what it returned, and on which records it failed.
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


KAFKA_PLACE = {"topic", "partition", "offset"}


def heal(function: RecordFunction, *, schema: str, on_error: str | OnError = "stop") -> HealedRecords:
    """A transform that calls a Python function for every record, on the executors.

    The function gets a dict and returns a dict, several in a list, or None to drop the record. `schema` is what it
    returns, as in `"id long, total decimal(10,2)"`. `on_error`: "stop" fails the run and writes nothing, and names
    the record; "dead_letter" puts the record into the job's dead letters; `retry(n, backoff)` tries it again first.
    """
    if not callable(function):
        raise ConfigError(
            f"heal needs a function, not {type(function).__name__}.", hint="fm.heal(work, schema='id long')"
        )
    return HealedRecords(function, schema, on_error_of(on_error))


@dataclass(frozen=True)
class HealedRecords:
    """The function at work; its outcomes are frozen before anything else looks at them, so that it runs once."""

    function: RecordFunction
    schema: str
    policy: OnError

    @property
    def puts_aside(self) -> bool:
        """Whether failed records become dead letters; else they fail the run."""
        return self.policy.then == "dead_letter"

    def apply(self, frames: Mapping[str, DataFrame], *, job: str, attempt: str, batch_time: datetime) -> DataFrame:
        from pyspark.sql.pandas.types import to_arrow_schema

        rows = only_frame(frames, job)
        try:
            returned = _parsed(self.schema)
            task = healing_task(self.function, self.policy, to_arrow_schema(returned, timezone="UTC"))
            outcomes = rows.mapInArrow(task, _with_own_columns(returned, rows))
            return outcomes.withColumn(FAILURE, _saved(outcomes))
        except FloodmarkError:
            raise
        except Exception as error:
            raise TransformFailed(job, reason=first_lines(error)) from error

    def healed_rows(self, outcomes: DataFrame) -> DataFrame:
        """The rows that the function returned."""
        from pyspark.sql import functions as F

        return outcomes.where(F.col(FAILURE).isNull()).drop(FAILURE)

    def failed_records(self, outcomes: DataFrame) -> DataFrame:
        """The records that it failed on, as dead letters: where they stood, what they were, and why."""
        from pyspark.sql import functions as F

        failure = F.col(FAILURE)
        told = [failure[name].alias(name) for name in ("text", "reason", "record", "shape")]
        return outcomes.where(failure.isNotNull()).select(*_place(outcomes), *told)

    def fingerprint(self) -> str:
        return f"{Function(self.function).fingerprint()} {self.schema}"  # type: ignore[arg-type]  # any code will do

    def is_deterministic(self) -> bool:
        return False


def _place(outcomes: DataFrame) -> list[Column]:
    """Where a record stood, as (file, line): topic and partition with the offset, else its place as JSON.

    One that was a dead letter before is known by that, in `letter`.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    no_file, no_line = F.lit(None).cast("string").alias("file"), F.lit(None).cast("long").alias("line")
    if POSITION not in outcomes.columns:
        return [no_file, no_line]
    position, kind = F.col(POSITION), outcomes.schema[POSITION].dataType
    if not isinstance(kind, StructType):
        return [F.to_json(F.struct(position.alias("position"))).alias("file"), no_line]
    if set(kind.names) == KAFKA_PLACE:
        file = F.concat_ws("/", position["topic"], position["partition"])
        return [file.alias("file"), position["offset"].alias("line")]
    if "letter" in kind.names:
        return [position[name].alias(name) for name in ("file", "line", "letter")]
    return [F.to_json(position).alias("file"), no_line]


def _saved(outcomes: DataFrame) -> Column:
    """The failure with its record as text: a column of any type can be frozen so, and run again."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    failure = F.col(FAILURE)
    shape = outcomes.select(failure["record"].alias("record")).schema["record"].dataType
    text = StructType.json(shape) if isinstance(shape, StructType) else None
    return failure.withField("record", json_text(failure["record"])).withField("shape", F.lit(text))


def _parsed(schema: str) -> StructType:
    from pyspark.sql.types import DataType, StructType

    parsed = DataType.fromDDL(schema)
    if not isinstance(parsed, StructType):
        raise ConfigError(f"heal's schema '{schema}' names no columns.", hint="as in schema='id long, total double'")
    return parsed


def _with_own_columns(returned: StructType, rows: DataFrame) -> StructType:
    """What the tasks give: the function's columns, the record's place in the source, and why it failed."""
    from pyspark.sql.types import StringType, StructField, StructType

    position = [rows.schema[POSITION]] if POSITION in rows.columns else []
    record = StructType([field for field in rows.schema.fields if field.name != POSITION])
    failure = [StructField("text", StringType()), StructField("reason", StringType()), StructField("record", record)]
    return StructType([*returned.fields, *position, StructField(FAILURE, StructType(failure))])
