"""Rows as Kafka messages: key, value and headers as bytes, each with its partition, in one order for every attempt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.sinks.contract import POSITION
from floodmark.sinks.kafka_layout import Layout
from floodmark.sinks.kafka_partitioner import partitions_of
from floodmark.sinks.own_columns import written_columns
from floodmark.spark.delta_tables import quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

HEADERS_TYPE = "array<struct<key:string,value:binary>>"
PLACE, CHOSEN = "_place", "_chosen"


@dataclass(frozen=True)
class Shape:
    """How a row becomes a message.

    `value` is "json" (all columns), "text:<expression>" or "bytes:<column>". `headers` maps names to expressions, or
    names a column of maps or of Spark's own header type; such a column is not part of the JSON. `partition` is an
    expression; where it is null, key or content decide.
    """

    key: str | None = None
    value: str = "json"
    headers: Mapping[str, str] | str | None = None
    partition: str | None = None

    @property
    def has_order(self) -> bool:
        """Whether rows of one partition stand in the order of the source."""
        return self.key is not None or self.partition is not None

    def check(self, sink: str) -> None:
        kind, _, what = self.value.partition(":")
        if self.value != "json" and (kind not in ("text", "bytes") or not what):
            raise ConfigError(
                f"sink '{sink}' has value {self.value!r}.", hint="one of: json, text:<expression>, bytes:<column>"
            )

    def messages(self, rows: DataFrame) -> DataFrame:
        """Columns key and value (binary), headers where there are any, and the position where it is kept."""
        from pyspark.sql import functions as F

        key = as_bytes(rows, self.key) if self.key is not None else F.lit(None).cast("binary")
        columns = [key.alias("key"), self._value(rows).alias("value")]
        if self.headers:
            columns.append(self._headers(rows).cast(HEADERS_TYPE).alias("headers"))
        if self.has_order and POSITION in rows.columns:
            columns.append(F.col(POSITION).alias(PLACE))
        if self.partition is not None:
            columns.append(F.expr(self.partition).cast("int").alias(CHOSEN))
        return rows.select(*columns)

    def _value(self, rows: DataFrame) -> Column:
        from pyspark.sql import functions as F

        kind, _, what = self.value.partition(":")
        if kind != "json":
            return as_bytes(rows, what)
        apart = self.headers if isinstance(self.headers, str) else None
        names = [name for name in written_columns(rows) if name != apart]
        return F.to_json(F.struct(*map(quoted, names)), {"ignoreNullFields": "false"}).cast("binary")

    def _headers(self, rows: DataFrame) -> Column:
        from pyspark.sql import functions as F

        if isinstance(self.headers, str):
            return header_column(rows, self.headers)
        named = [(F.lit(name), as_bytes(rows, what)) for name, what in (self.headers or {}).items()]
        return F.array(*(F.struct(name.alias("key"), value.alias("value")) for name, value in named))


def as_bytes(rows: DataFrame, expression: str) -> Column:
    """Bytes as they are; text as UTF-8; records and lists as JSON; anything else as Spark writes it."""
    from pyspark.sql import functions as F

    what = F.col(quoted(expression)) if expression in rows.columns else F.expr(expression)
    kind = rows.select(what).schema[0].dataType.typeName()
    if kind in ("struct", "array", "map", "variant"):
        return F.to_json(what).cast("binary")
    return what if kind == "binary" else what.cast("string").cast("binary")


def header_column(rows: DataFrame, name: str) -> Column:
    """A column of maps as Spark's own header type."""
    from pyspark.sql import functions as F

    kind = rows.select(quoted(name)).schema[0].dataType.typeName()
    if kind != "map":
        return F.col(quoted(name))
    entries = F.map_entries(quoted(name))
    return F.transform(entries, lambda e: F.struct(e["key"].cast("string"), e["value"].cast("string").cast("binary")))


def routed(messages: DataFrame, layout: Layout, *, keyed: bool) -> DataFrame:
    """Each writer's rows in a task, by partition, then by position; every column takes part, so the order is fixed."""
    from pyspark.sql import functions as F

    placed = (
        by_key(messages, layout.partitions)
        if keyed
        else messages.withColumn("partition", by_content(layout.partitions))
    )
    if CHOSEN in messages.columns:
        placed = placed.withColumn("partition", F.coalesce(CHOSEN, "partition")).drop(CHOSEN)
    writer = F.col("partition") % layout.writers
    exact = getattr(placed, "repartitionById", None)  # Spark 4.1; before, two writers may share a task
    together = exact(layout.writers, writer) if exact else placed.repartition(layout.writers, writer)
    first = [PLACE] if PLACE in messages.columns else [F.xxhash64("value")]
    rest = [name for name in ("key", "value", "headers") if name in messages.columns]
    ordered = together.sortWithinPartitions(writer, "partition", *first, *rest)
    return ordered.drop(PLACE)


def by_content(count: int) -> Column:
    """A partition for rows without a key: the same one whenever the row is sent."""
    from pyspark.sql import functions as F

    return F.pmod(F.xxhash64("value"), F.lit(count)).cast("int")


def by_key(messages: DataFrame, count: int) -> DataFrame:
    """The Java client's partitions; rows without a key are spread by their content."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import IntegerType, StructField, StructType

    spread = messages.withColumn("partition", F.when(F.col("key").isNull(), by_content(count)))
    schema = StructType([*spread.schema.fields[:-1], StructField("partition", IntegerType())])

    def place(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield with_partitions(batch, count)

    return spread.mapInArrow(place, schema)


def with_partitions(batch: pa.RecordBatch, count: int) -> pa.RecordBatch:
    """The batch with the partition of every key filled in."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = batch.column("key")
    found = pc.if_else(keys.is_valid(), pa.array(partitions_of(keys, count), pa.int32()), batch.column("partition"))
    return batch.set_column(batch.num_columns - 1, "partition", found)
