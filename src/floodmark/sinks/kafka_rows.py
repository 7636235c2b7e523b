"""Rows as Kafka messages: key, value and headers as bytes, each with its writer, in one order for every attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.sinks.contract import POSITION
from floodmark.sinks.kafka_layout import Layout
from floodmark.sinks.own_columns import written_columns
from floodmark.spark.delta_tables import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HEADERS_TYPE = "array<struct<key:string,value:binary>>"
PLACE = "_place"


@dataclass(frozen=True)
class Shape:
    """How a row becomes a message.

    `value` is "json" (all columns), "text:<expression>" or "bytes:<column>". `headers` maps names to expressions, or
    names a column of maps or of Spark's own header type; such a column is not part of the JSON.
    """

    key: str | None = None
    value: str = "json"
    headers: Mapping[str, str] | str | None = None

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
        if self.key is not None and POSITION in rows.columns:
            columns.append(F.col(POSITION).alias(PLACE))
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


def routed(messages: DataFrame, layout: Layout) -> DataFrame:
    """Each writer's rows in a task, by position; every column takes part, so the order is the same at every attempt.

    Rows of one key have one writer. Rows without a key have their partition; that of a key is found by the writer.
    """
    from pyspark.sql import functions as F

    content = F.xxhash64("value")
    writer = F.pmod(F.when(F.col("key").isNull(), content).otherwise(F.xxhash64("key")), F.lit(layout.writers))
    partition = F.when(F.col("key").isNull(), F.pmod(content, F.lit(layout.partitions)))
    placed = messages.withColumns({"writer": writer.cast("int"), "partition": partition.cast("int")})
    first = [PLACE] if PLACE in messages.columns else [content]
    rest = [name for name in ("key", "value", "headers") if name in messages.columns]
    # Rows come out of the shuffle nearly in the source's order: to sort by position first costs next to nothing.
    together = placed.repartitionById(layout.writers, F.col("writer"))
    return together.sortWithinPartitions("writer", *first, *rest).drop(PLACE)
