"""Reading exactly these offsets with Spark, so that a value that cannot be parsed is seen and never a row of nulls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from floodmark.errors import ConfigError
from floodmark.probes.kafka import Offsets
from floodmark.sources.contract import LETTER, Reading
from floodmark.sources.kafka.decoding import Decoded
from floodmark.sources.kafka.offsets import by_topic
from floodmark.sources.values import CORRUPT, KEY, PARSED, REASON, Json, Value, is_no_object, object_in, readable_text
from floodmark.spark.faults import raise_in_plan
from floodmark.spark.session import cores, tasks_for

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


Malformed = Literal["fail", "dead_letter"]
Key = Literal["bytes", "text"]

BARRIER = "_fm_barrier"
PLACE = ("topic", "partition", "offset")
COLUMNS = ("key", "value", *PLACE, "timestamp", "headers")
PREFIX = "kafka_"
WORTH_SPLITTING = 20_000
"""Offsets in a partition below which a second consumer costs more than it brings."""

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
FAST: Mapping[str, str] = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": "10485760",
    "kafka.receive.buffer.bytes": "4194304",
    # At the end of a topic a consumer asks for more, and its next question has to wait for the answer: half a second.
    "kafka.fetch.max.wait.ms": "10",
}
"""Java's own defaults are for streams of single records, and half as fast in bulk."""
ALWAYS: Mapping[str, str] = {"kafka.isolation.level": "read_committed", "failOnDataLoss": "true"}


@dataclass(frozen=True)
class KafkaReading:
    """Some ranges of offsets on their way into Spark; `upto` is not part of them."""

    spark: SparkSession
    options: Mapping[str, str]
    start: Offsets
    upto: Offsets
    value: Value
    key: Key
    columns: Sequence[str]
    saved_messages: DataFrame | None = None
    """Messages to be parsed in the place of the topic's."""
    gathers: bool = False
    """Whether one task may read several small partitions, one after the other and each in its order."""

    def reading(self, malformed: Malformed) -> Reading:
        """The rows; values that cannot be parsed make them fail, or are told apart by the reading's `reason`."""
        if self.value == "bytes" and self.key == "bytes":
            return Reading(self.rows, hidden=self.hidden, position=self._position())
        if malformed == "fail":
            return Reading(self._failing_rows(), hidden=self.hidden, position=self._position())
        from pyspark.sql import functions as F

        return Reading(self.rows, F.col(REASON), self.hidden, self._position(), self.dead)

    @cached_property
    def rows(self) -> DataFrame:
        """Every message, with the columns that its user sees and those in `hidden`."""
        from pyspark.sql import functions as F

        own = {f"{self._prefix}{name}": F.col(name) for name in COLUMNS if name not in ("key", "value")}
        key = {f"{self._prefix}key": self._key()}
        if self.value == "bytes":
            value = {"value": F.col("value")}
        elif self.value == "text":
            value = {"value": _text()}
        else:
            value = {name: self._object[name] for name in self._fields()}
        letter = {} if self.saved_messages is None else {LETTER: F.col(LETTER)}
        ours = {REASON: self._reason(), BARRIER: F.spark_partition_id(), **letter}
        everything = {**value, **key, **own, **ours} if self._prefix else {**key, **value, **own, **ours}
        # All in one select: Spark parses a value once for all of it, and keeps no copy of what it has parsed.
        return self._decoded_messages.select(*(column.alias(name) for name, column in everything.items()))

    @property
    def hidden(self) -> tuple[str, ...]:
        """Columns that are ours, and those of Kafka's that were not asked for."""
        unwanted = [f"{self._prefix}{name}" for name in COLUMNS if name not in self.columns]
        return (REASON, BARRIER, *(name for name in unwanted if name in self.rows.columns))

    def dead(self) -> DataFrame:
        """The values that could not be parsed, each as (file, line, text, reason) and as the whole message.

        `file` is the topic and partition, `line` the offset, `text` the value.
        """
        from pyspark.sql import functions as F

        bad = self._decoded_messages.withColumn(REASON, self._reason()).where(F.col(REASON).isNotNull())
        return bad.select(
            F.concat_ws("/", "topic", "partition").alias("file"),
            F.col("offset").alias("line"),
            readable_text(_text()).alias("text"),
            F.col(REASON).alias("reason"),
            F.struct(*COLUMNS).alias("record"),
        )

    def _failing_rows(self) -> DataFrame:
        from pyspark.sql import functions as F

        place = F.concat_ws(" ", *(F.col(f"{self._prefix}{name}") for name in PLACE))
        message = F.concat(place, F.lit(": "), F.col(REASON))
        fine = F.when(F.col(REASON).isNotNull(), raise_in_plan("malformed", message)).isNull()
        # A filter that is not deterministic stays below the user's, which could drop a malformed message unseen; a
        # column that is not deterministic keeps Spark from parsing every value once for the filter and once again.
        return self.rows.where((F.col(BARRIER) >= 0) & (F.spark_partition_id() >= 0) & fine)

    @cached_property
    def _messages(self) -> DataFrame:
        """Messages as Kafka has them."""
        if self.saved_messages is not None:
            return self.saved_messages
        if not self.start:
            return self.spark.createDataFrame([], SCHEMA)
        reader = self.spark.read.format("kafka").options(**self.all_options())
        rows = self._gathered(reader.load())
        return rows.select(*COLUMNS) if "headers" in rows.columns else rows.selectExpr(*_without_headers())

    def all_options(self) -> dict[str, str]:
        """The user's options over the fast ones, under those that are not to be chosen."""
        splits = self._splits()
        ranges = {
            "assign": json.dumps({topic: sorted(parts) for topic, parts in by_topic(self.start).items()}),
            "startingOffsets": json.dumps(by_topic(self.start)),
            "endingOffsets": json.dumps(by_topic(self.upto)),
            "includeHeaders": str("headers" in self.columns).lower(),
        }
        return {**FAST, **splits, **self.options, **ALWAYS, **ranges}

    def _gathered(self, rows: DataFrame) -> DataFrame:
        """Fewer tasks than partitions, where most of those have next to nothing; not where the user says how many."""
        has_number = any(name.lower() == "minpartitions" for name in self.options)
        offsets = sum(self.upto[place] - at for place, at in self.start.items())
        tasks = tasks_for(self.spark, len(self.start), offsets, WORTH_SPLITTING)
        return rows if tasks is None or has_number or not self.gathers else rows.coalesce(tasks)

    def _splits(self) -> dict[str, str]:
        """More readers than partitions, where few large partitions would leave cores idle."""
        tasks = cores(self.spark)
        large = [place for place, at in self.start.items() if self.upto[place] - at > WORTH_SPLITTING]
        return {"minPartitions": str(tasks)} if large and len(self.start) < tasks else {}

    def _reason(self) -> Column:
        """Why a value, or a key that should be text, is not what it should be; null for the others."""
        from pyspark.sql import functions as F

        key = F.when(~F.is_valid_utf8(F.col("key").cast("string")), "the key is not UTF-8 text (`key: bytes` keeps it)")
        reasons = [key] if self.key == "text" else []
        if isinstance(self.value, Decoded):
            return F.coalesce(*reasons, self.value.reason())
        if self.value != "bytes":
            reasons.append(F.when(~F.is_valid_utf8(_text()), "the value is not UTF-8 text"))
        if isinstance(self.value, Json):
            is_bad = is_no_object(_text(), self._parsed)
            reasons.append(F.when(is_bad, "the value is not a JSON object of this schema"))
        return F.coalesce(*reasons) if reasons else F.lit(None).cast("string")

    def _fields(self) -> list[str]:
        parsed = self._decoded_messages.select(self._object.alias(PARSED)).select(f"{PARSED}.*")
        names = parsed.drop(KEY, CORRUPT).columns
        taken = {f"{PREFIX}{name}" for name in COLUMNS} & {name.lower() for name in names}
        if taken:
            raise ConfigError(
                f"the schema has a field {min(taken)}, which is Kafka's own.", hint="read the value as text"
            )
        return names

    @cached_property
    def _decoded_messages(self) -> DataFrame:
        """The messages; where a function decodes them, with what it gave: it is called once for each."""
        return self._messages.withColumn(PARSED, self._parsed) if isinstance(self.value, Decoded) else self._messages

    @property
    def _object(self) -> Column:
        """The fields of a value, of a reading whose values have some."""
        from pyspark.sql import functions as F

        return F.col(PARSED) if isinstance(self.value, Decoded) else object_in(self._parsed)

    @cached_property
    def _parsed(self) -> Column:
        """What a value says, of a reading whose values have fields."""
        return self.value.parse(_text()) if isinstance(self.value, Json) else _text()

    @property
    def _prefix(self) -> str:
        return PREFIX if isinstance(self.value, Json) else ""

    def _key(self) -> Column:
        from pyspark.sql import functions as F

        return F.col("key").cast("string") if self.key == "text" else F.col("key")

    def _position(self) -> Column:
        from pyspark.sql import functions as F

        return F.struct(*(F.col(f"{self._prefix}{name}").alias(name) for name in PLACE))


def _text() -> Column:
    from pyspark.sql import functions as F

    return F.col("value").cast("string")


def _without_headers() -> list[str]:
    return [
        *(name for name in COLUMNS if name != "headers"),
        "cast(null as array<struct<key: string, value: binary>>) as headers",
    ]
