"""`fm.heal`: a per-record function as the transform of a job; each record is done, dropped or failed on its own.

How it is called on the executors is in `calls`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError, FloodmarkError, TransformFailed
from floodmark.errors.causes import reason_of
from floodmark.sinks.contract import POSITION
from floodmark.step.set_aside import json_text
from floodmark.step.transform import Function, only_frame
from floodmark.streams.calls import FAILURE, RecordFunction, function_task
from floodmark.streams.policy import OnError, on_error_of

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


KAFKA_PLACE = {"topic", "partition", "offset"}


def heal(function: RecordFunction, *, schema: str, on_error: str | OnError = "stop") -> HealedRecords:
    """A transform that calls a Python function for every record, on the executors.

    The function gets a dict and returns a dict, several in a list, or None to drop the record. `schema` is what it
    returns, as in `"id long, total decimal(10,2)"`. `on_error`: "stop" fails the run and writes nothing, and names
    the record; "dead_letter" puts the record into the job's dead letters; `retry(n, backoff)` tries it again first.

    >>> heal(lambda row: {"id": row["id"]}, schema="id long", on_error="dead_letter").schema
    'id long'
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
        return self.policy.puts_aside

    def apply(self, frames: Mapping[str, DataFrame], *, job: str, attempt: str, batch_time: datetime) -> DataFrame:
        from pyspark.sql.pandas.types import to_arrow_schema

        rows = only_frame(frames, job)
        try:
            returned = _struct_type(self.schema)
            task = function_task(self.function, self.policy, to_arrow_schema(returned, timezone="UTC"))
            outcomes = rows.mapInArrow(task, _with_own_columns(returned, rows))
            return outcomes.withColumn(FAILURE, _failure_column(outcomes))
        except FloodmarkError:
            raise
        except Exception as error:
            raise TransformFailed(job, reason=reason_of(error)) from error

    def healed_rows(self, outcomes: DataFrame) -> DataFrame:
        """The rows that the function returned."""
        from pyspark.sql import functions as F

        return outcomes.where(F.col(FAILURE).isNull()).drop(FAILURE)

    def failed_records(self, outcomes: DataFrame) -> DataFrame:
        """The records that it failed on, as dead letters: where they stood, what they were, and why."""
        from pyspark.sql import functions as F

        failure = F.col(FAILURE)
        reason = [failure[name].alias(name) for name in ("text", "reason", "record", "shape")]
        return outcomes.where(failure.isNotNull()).select(*_place_columns(outcomes), *reason)

    def fingerprint(self) -> str:
        return f"{Function(self.function).fingerprint()} {self.schema}"  # type: ignore[arg-type]  # any code will do

    def is_deterministic(self) -> bool:
        return False


def _place_columns(outcomes: DataFrame) -> list[Column]:
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


def _failure_column(outcomes: DataFrame) -> Column:
    """The failure with its record as text: a column of any type can be frozen so, and run again."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    failure = F.col(FAILURE)
    shape = outcomes.select(failure["record"].alias("record")).schema["record"].dataType
    text = StructType.json(shape) if isinstance(shape, StructType) else None
    return failure.withField("record", json_text(failure["record"])).withField("shape", F.lit(text))


def _struct_type(schema: str) -> StructType:
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
