"""Rows as Kafka messages: key, value and headers as bytes, each with its writer, in one order for every attempt.

Spark makes the messages; the partition of a key is found by the writers, where the Java client's default partitioner
would put it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.locations import quote
from floodmark.sinks.contract import POSITION, written_columns
from floodmark.sinks.kafka.ledger import Layout
from floodmark.sinks.values import NESTED, base_name, exact_text, json_record, json_text
from floodmark.spark.schemas import EXACT_JSON

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

HEADERS_TYPE = "array<struct<key:string,value:binary>>"
PLACE = "_fm_place"
WRITER = "_fm_writer"
UNHASHED = re.compile(r"map<|variant")
"""Types that Spark does not hash."""
UNORDERED = re.compile(r"map<|variant|interval")
"""Types that it does not put in order, or not all of them."""
SEED, FACTOR = 0x9747B28C, 0x5BD1E995
POSITIVE = 0x7FFFFFFF
HASHED_COLUMNS = ("key", "value", "headers")


@dataclass(frozen=True)
class Routing:
    """Columns that are made of rows of one schema: the writer, the place in its order, that order, and the message."""

    writer: Column
    place: Column
    order: tuple[Column | str, ...]
    messages: tuple[Column, ...]


@dataclass(frozen=True)
class MessageFormat:
    """How a row becomes a message.

    `value` is "json" (all columns), "text:<expression>" or "bytes:<column>". `headers` maps names to expressions, or
    names a column of maps or of Spark's own header type; such a column is not part of the JSON. `partition` is an
    expression; where it is null, key or content decide.
    """

    key: str | None = None
    value: str = "json"
    headers: Mapping[str, str] | str | None = None
    partition: str | None = None
    _routings: dict[tuple[object, ...], Routing] = field(init=False, repr=False, compare=False, default_factory=dict)

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

    def route(self, rows: DataFrame, layout: Layout) -> DataFrame:
        """Each writer's messages in a task, in an order that is the same at every attempt.

        The order is the source's where its position is known; then every column takes part. Rows of one key, or of a
        chosen partition, have one writer, which finds the partition of a key; rows without a key have one already.
        A batch that goes out at once is small, and no second attempt compares its order: one task has it all, without
        a shuffle, in the order of the source.
        """
        from pyspark.sql import functions as F

        routing = self._routing(rows, layout)
        if layout.at_once:
            own = rows.coalesce(1)
            is_ordered = self.has_order and POSITION in rows.columns
            return (own.sortWithinPartitions(POSITION) if is_ordered else own).select(*routing.messages)
        placed = rows.withColumn(WRITER, routing.writer)
        # Columns travel to the writers and become messages there: as text they would be twice as large on the way.
        own = placed.repartitionById(layout.writers, F.col(WRITER))
        # They are sorted before they become messages, which are larger.
        return own.withColumn(PLACE, routing.place).sortWithinPartitions(*routing.order).select(*routing.messages)

    def _routing(self, rows: DataFrame, layout: Layout) -> Routing:
        """What is made of such rows: to put it together takes longer than to send a few of them, so it is kept."""
        what = (rows.sparkSession, rows.schema.json(), layout.partitions, layout.writers, layout.at_once)
        if what not in self._routings:
            self._routings.clear()
            self._routings[what] = self._new_routing(rows, layout)
        return self._routings[what]

    def _new_routing(self, rows: DataFrame, layout: Layout) -> Routing:
        from pyspark.sql import functions as F

        content, key = content_hash(rows), self._key(rows)
        spread = content if self.key is None else F.when(key.isNull(), content).otherwise(F.xxhash64(key))
        spread = spread if self.partition is None else F.coalesce(self._chosen_partition().cast("long"), spread)
        writer = F.pmod(spread, F.lit(layout.writers)).cast("int") if layout.writers > 1 else F.lit(0)
        place = F.col(POSITION) if self.has_order and POSITION in rows.columns else content
        return Routing(writer, place, order_for_writers(rows), self._messages(rows, key, content, layout))

    def _messages(self, rows: DataFrame, key: Column, content: Column, layout: Layout) -> tuple[Column, ...]:
        """Writer, key and value, headers where there are any, and the partition of rows without a key."""
        from pyspark.sql import functions as F

        partition = F.when(key.isNull(), F.pmod(content, F.lit(layout.partitions)).cast("int"))
        partition = partition if self.partition is None else F.coalesce(self._chosen_partition(), partition)
        columns = [F.lit(0).alias("writer") if layout.at_once else F.col(WRITER).alias("writer")]
        columns += [key.alias("key"), self._value(rows).alias("value"), partition.alias("partition")]
        if self.headers:
            columns.append(self._headers(rows).cast(HEADERS_TYPE).alias("headers"))
        return tuple(columns)

    def _chosen_partition(self) -> Column:
        from pyspark.sql import functions as F

        return F.expr(str(self.partition)).cast("int")

    def _key(self, rows: DataFrame) -> Column:
        from pyspark.sql import functions as F

        return as_bytes(rows, self.key) if self.key is not None else F.lit(None).cast("binary")

    def _value(self, rows: DataFrame) -> Column:
        kind, _, what = self.value.partition(":")
        if kind != "json":
            return as_bytes(rows, what)
        apart = self.headers if isinstance(self.headers, str) else None
        names = [name for name in written_columns(rows) if name != apart]
        return json_record(rows, names).cast("binary")

    def _headers(self, rows: DataFrame) -> Column:
        from pyspark.sql import functions as F

        if isinstance(self.headers, str):
            return header_column(rows, self.headers)
        values = {name: as_bytes(rows, what) for name, what in (self.headers or {}).items()}
        return F.array(*(F.struct(F.lit(name).alias("key"), value.alias("value")) for name, value in values.items()))


def as_bytes(rows: DataFrame, expression: str) -> Column:
    """The bytes of a column, or of what SQL makes of the row."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructField

    what = F.col(quote(expression)) if expression in rows.columns else F.expr(expression)
    return value_bytes(what, StructField(expression, rows.select(what).schema[0].dataType))


def value_bytes(value: Column, field: StructField) -> Column:
    """Bytes as they are; text as UTF-8; records and lists as JSON; moments in UTC; anything else as Spark writes it."""
    base = base_name(field.dataType)
    if base == "binary":
        return value
    text = json_text(value, field) if base in NESTED else exact_text(value, field.dataType)
    return text.cast("binary")


def header_column(rows: DataFrame, name: str) -> Column:
    """A column of maps as Spark's own header type."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import MapType, StructField

    kind = rows.select(quote(name)).schema[0].dataType
    if not isinstance(kind, MapType):
        return F.col(quote(name))
    value = StructField(name, kind.valueType)
    return F.transform(
        F.map_entries(quote(name)),
        lambda each: F.struct(exact_text(each["key"], kind.keyType), value_bytes(each["value"], value)),
    )


def order_for_writers(rows: DataFrame) -> tuple[Column | str, ...]:
    """Each writer's rows by their place, then by every column: rows that are equal in all make equal messages.

    What has no order takes part as text.
    """
    from pyspark.sql import functions as F

    kinds = {name: rows.schema[name].dataType.simpleString() for name in written_columns(rows)}
    as_text = {name: F.to_json(F.struct(quote(name)), EXACT_JSON) for name in kinds if UNORDERED.search(kinds[name])}
    return (WRITER, PLACE, *(as_text.get(name, quote(name)) for name in kinds))


def content_hash(rows: DataFrame) -> Column:
    """A hash of a row's content: the same whenever the row is read."""
    from pyspark.sql import functions as F

    fields = [field for field in rows.schema.fields if field.name in written_columns(rows)]
    plain = [field.name for field in fields if not UNHASHED.search(field.dataType.simpleString())]
    if plain:
        return F.xxhash64(*map(quote, plain))
    return F.xxhash64(F.to_json(F.struct(*(quote(field.name) for field in fields)), EXACT_JSON))


def with_partitions(rows: pa.RecordBatch, count: int) -> pa.RecordBatch:
    """The rows with the partition of every key filled in; those without a key, or with a chosen one, have theirs."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keys, chosen = rows.column("key"), rows.column("partition")
    if chosen.null_count == 0:
        return rows
    filled = pc.if_else(chosen.is_valid(), chosen, pa.array(partitions_of(keys, count), pa.int32()))
    return rows.set_column(rows.schema.get_field_index("partition"), "partition", filled)


def partitions_of(keys: pa.Array, count: int) -> NDArray[np.int64]:
    """The partition of every key; what stands at a null key means nothing."""
    import numpy as np

    hashes = murmur2(keys).astype(np.int64)
    return (hashes & POSITIVE) % count


class RowsHash:
    """A running hash of messages in their order: the same wherever their batches are cut.

    Each kind of content has a checksum of its own (the bytes of all values, their lengths, the bytes of all keys, …),
    so that whole buffers are summed and no row is looked at. CRC-32, since a cryptographic hash takes ten times as
    long, and nobody forges rows here.
    """

    def __init__(self) -> None:
        self._sums: dict[str, int] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        """The rows behind those that it had so far."""
        for name in HASHED_COLUMNS:
            if name in rows.schema.names:
                for part, content in contents(name, rows.column(name)):
                    self._sums[part] = zlib.crc32(content, self._sums.get(part, 0))

    def hexdigest(self) -> str:
        """Of all rows so far; more may follow."""
        return "-".join(f"{checksum:08x}" for _, checksum in sorted(self._sums.items()))


def contents(name: str, column: pa.Array) -> Iterator[tuple[str, memoryview]]:
    """What makes up a column, each part under a name: lengths and bytes; lists and records by those.

    A null has the length -1, so that it is no empty text.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_struct(column.type):
        for field, child in zip(column.type, column.flatten(), strict=True):
            yield from contents(f"{name}.{field.name}", child)
    elif pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        yield f"{name} lengths", _numbers(pc.list_value_length(column))
        yield from contents(f"{name}[]", column.flatten())
    else:
        yield f"{name} lengths", _numbers(pc.binary_length(column))
        yield name, _data(column.drop_null() if column.null_count else column)


def _numbers(column: pa.Array) -> memoryview:
    return memoryview((column.fill_null(-1) if column.null_count else column).to_numpy())


def _data(column: pa.Array) -> memoryview:
    """The bytes of all values, one after the other, as they lie in memory."""
    import numpy as np
    import pyarrow as pa

    is_large = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    _, offsets, data = column.buffers()
    if len(column) == 0 or data is None:
        return memoryview(b"")
    ends = np.frombuffer(offsets, dtype=np.int64 if is_large else np.int32)
    return memoryview(data)[ends[column.offset] : ends[column.offset + len(column)]]


def murmur2(keys: pa.Array) -> NDArray[np.uint32]:
    """Kafka's hash of each key, computed for all keys of one length at a time."""
    import numpy as np
    import pyarrow as pa

    wide = keys.cast(pa.large_binary())
    _, offsets, data = wide.buffers()
    if len(wide) == 0:
        return np.zeros(0, dtype=np.uint32)
    ends = np.frombuffer(offsets, dtype=np.int64)[wide.offset : wide.offset + len(wide) + 1]
    content = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
    lengths = np.diff(ends)
    hashes = np.zeros(len(wide), dtype=np.uint32)
    for length in np.unique(lengths):
        places = np.flatnonzero(lengths == length)
        bytes_of = content[ends[places, None] + np.arange(length)]
        hashes[places] = _hash_equal_lengths(np.ascontiguousarray(bytes_of))
    return hashes


def _hash_equal_lengths(keys: NDArray[np.uint8]) -> NDArray[np.uint32]:
    import numpy as np

    count, length = keys.shape
    factor, whole = np.uint32(FACTOR), length // 4 * 4
    state: NDArray[np.uint32] = np.full(count, SEED ^ length, dtype=np.uint32)
    words = np.ascontiguousarray(keys[:, :whole]).view("<u4")
    for place in range(whole // 4):
        word = words[:, place] * factor
        word = (word ^ (word >> np.uint32(24))) * factor
        state = (state * factor) ^ word
    rest = keys[:, whole:].astype(np.uint32)
    if rest.shape[1]:
        for place in range(rest.shape[1]):
            state ^= rest[:, place] << np.uint32(8 * place)
        state *= factor
    state = (state ^ (state >> np.uint32(13))) * factor
    state ^= state >> np.uint32(15)
    return state
