"""Keys that are a field as it stands: Python reads many of them at once, sooner than Spark's from_json would."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

from floodmark.errors import ElementInvalid
from floodmark.mill.brokers import OFFSET, PARTITION, VALUE
from floodmark.mill.codec import Codec
from floodmark.mill.codec.classes import FieldPlan, class_reader, plans_of
from floodmark.mill.codec.reading import Unfit
from floodmark.mill.codec.types import mentions
from floodmark.mill.expressions import ENCODERS, SPARK_TYPES, Field, KeyValue, Kind, NotThisKind
from floodmark.mill.horizon import EVERYTHING, NOTHING, Level
from floodmark.mill.join_tree import MARKER
from floodmark.mill.keys import Key, type_of
from floodmark.spark.faults import ElementFault

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


# Columns that elements get on Spark: their keys, whether they are an end, which window they belong to.
IS_END = "_fm_is_end"


def is_end() -> Column:
    """Whether a message is the end of its partition; cheap for those that do not even hold the word."""
    from pyspark.sql import functions as F

    said = F.get_json_object(VALUE, f"$.{MARKER}") == "true"
    return F.coalesce(F.col(VALUE).contains(MARKER) & said, F.lit(False))


def with_python_keys(rows: DataFrame, codec: Codec, keys: Mapping[str, Key]) -> DataFrame:
    """The rows with keys that only Python can tell; an element without one fails with its position."""
    schema = with_columns(rows.schema, key_columns(keys))

    def compute(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from (with_computed(batch, codec, keys) for batch in batches)

    return rows.mapInArrow(compute, schema)


def key_columns(keys: Mapping[str, Key]) -> dict[str, pa.DataType]:
    """The columns of keys, and what they hold."""
    return {name: ARROW_TYPES[key.spark_type]() for name, key in keys.items()}


def with_columns(schema: StructType, added: Mapping[str, pa.DataType]) -> StructType:
    """The schema with more columns behind its own."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    own = [StructField(name, from_arrow_type(kind)) for name, kind in added.items()]
    return StructType([*schema.fields, *own])


def with_computed(batch: pa.RecordBatch, codec: Codec, keys: Mapping[str, Key]) -> pa.RecordBatch:
    """One batch with its computed keys; ends have none."""
    import pyarrow as pa

    try:
        texts = [text or "null" for text in batch.column(VALUE).to_pylist()]
        rows = [tuple(key.of(each) for key in keys.values()) for each in codec.values_from_texts(texts)]
    except (ElementInvalid, ValueError):
        rows = list(computed_one_by_one(batch, codec, keys))
    columns = zip(*rows, strict=True) if rows else [()] * len(keys)
    for (name, key), values in zip(keys.items(), columns, strict=True):
        batch = batch.append_column(name, pa.array(list(values), ARROW_TYPES[key.spark_type]()))
    return batch


def computed_one_by_one(batch: pa.RecordBatch, codec: Codec, keys: Mapping[str, Key]) -> Iterator[tuple[Any, ...]]:
    """The keys of a batch that has an end, or something that cannot be read, which is then told."""
    ends = batch.column(IS_END).to_pylist() if IS_END in batch.schema.names else [False] * batch.num_rows
    places = zip(batch.column(PARTITION).to_pylist(), batch.column(OFFSET).to_pylist(), strict=True)
    for text, end, place in zip(batch.column(VALUE).to_pylist(), ends, places, strict=True):
        yield (None,) * len(keys) if end else computed(codec, keys.values(), text, place)


def computed(codec: Codec, keys: Iterable[Key], text: str | None, place: tuple[int, int]) -> tuple[Any, ...]:
    """The keys of one element. Raises an ElementFault that the driver can tell of."""
    try:
        values = codec.values_from_text(text or "null")
        return tuple(key.of(values) for key in keys)
    except ElementInvalid as error:
        raise ElementFault.invalid(error, *place) from None


def _arrow(name: str, *arguments: int) -> Callable[[], pa.DataType]:
    def made() -> pa.DataType:
        import pyarrow as pa

        return getattr(pa, name)(*arguments)

    return made


ARROW_TYPES: Mapping[str, Callable[[], pa.DataType]] = {
    "bigint": _arrow("int64"),
    "double": _arrow("float64"),
    "string": _arrow("string"),
    "decimal(38,18)": _arrow("decimal128", 38, 18),
}


def between(rows: DataFrame, after: Level, until: Level) -> DataFrame:
    """The elements that stand at or above one level and below another."""
    kept = rows if after == NOTHING else rows.where(~is_below(after))
    return kept if until == EVERYTHING else kept.where(is_below(until))


def is_below(level: Level) -> Column:
    """(key, partition, offset) against a level of as many parts as it has."""
    from pyspark.sql import functions as F

    if level in (NOTHING, EVERYTHING):
        return F.lit(level == EVERYTHING)
    columns = [F.col("k0"), F.col(PARTITION).cast("bigint"), F.col(OFFSET)]
    below = F.lit(False)
    for column, bound in reversed(list(zip(columns, level[1:], strict=False))):
        below = (column < F.lit(bound)) | ((column == F.lit(bound)) & below)
    return below


def with_window_numbers(rows: DataFrame, lanes: Mapping[int, Sequence[tuple[int, int, int]]]) -> DataFrame:
    """The elements of windows that were decided in the driver, with the window's number as their key."""
    from pyspark.sql.types import LongType, StructField, StructType

    schema = StructType([*rows.schema.fields, StructField("k0", LongType())])

    def number(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from (numbered(batch, lanes) for batch in batches)

    return rows.mapInArrow(number, schema).where("k0 is not null")


def numbered(batch: pa.RecordBatch, lanes: Mapping[int, Sequence[tuple[int, int, int]]]) -> pa.RecordBatch:
    """One batch; what belongs to no window has no number."""
    import pyarrow as pa

    starts = {lane: [first for first, _, _ in ranges] for lane, ranges in lanes.items()}
    numbers: list[int | None] = []
    for lane, offset in zip(batch.column(PARTITION).to_pylist(), batch.column(OFFSET).to_pylist(), strict=True):
        place = bisect_right(starts.get(lane, []), offset) - 1
        _, upto, found = lanes[lane][place] if place >= 0 else (0, 0, None)
        numbers.append(found if offset < upto else None)
    return batch.append_column("k0", pa.array(numbers, pa.int64()))


def numbered_runs(rows: DataFrame) -> DataFrame:
    """The rows with the number of their run in place of their key."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    along = Window.partitionBy(PARTITION).orderBy(OFFSET)
    begins = F.coalesce(F.col("k0") != F.lag("k0").over(along), F.lit(False))
    flagged = rows.withColumn("_fm_begins", begins.cast("bigint"))
    return flagged.withColumn("k0", F.sum("_fm_begins").over(along)).drop("_fm_begins")


TYPES: Mapping[Kind, type] = {"int": int, "float": float, "text": str}
"""Kinds whose values JSON has, and Spark holds, as they are."""


def is_plain(key: Key) -> bool:
    """Whether the key is a field, compared as the type that it has, and JSON has it as that."""
    is_field = key.codec.deserializer is None and isinstance(key.expression, Field)
    has_type = is_field and type_of(key.expression, key.codec) is TYPES.get(key.kind)
    return has_type and not (key.kind == "float" and mentions(key.codec.cls, Decimal))


def with_plain_keys(rows: DataFrame, codec: Codec, keys: Mapping[str, Key]) -> DataFrame:
    """The rows with their keys; null for an element that has none, or none that could be compared."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from keyed_batches(batches, codec, keys)

    return rows.mapInArrow(read, with_columns(rows.schema, key_columns(keys)))


def keyed_batches(batches: Iterable[pa.RecordBatch], codec: Codec, keys: Mapping[str, Key]) -> Iterator[pa.RecordBatch]:
    """In a task: every batch with its keys."""
    plain = PlainKeys.of(codec, list(keys.values()))
    for batch in batches:
        own = zip(keys, plain.columns(batch.column(VALUE)), strict=True)
        yield reduce(lambda wider, column: wider.append_column(*column), own, batch)


@dataclass(frozen=True)
class PlainKeys:
    """How a task reads the keys of one stream, all of them plain."""

    codec: Codec
    plans: Sequence[FieldPlan]
    kinds: Sequence[Kind]

    @classmethod
    def of(cls, codec: Codec, keys: Sequence[Key]) -> PlainKeys:
        plans = {plan.name: plan for plan in plans_of(codec.cls, class_reader)}
        fields = [key.expression.name for key in keys if isinstance(key.expression, Field)]
        return cls(codec, [plans[name] for name in fields], [key.kind for key in keys])

    def columns(self, texts: pa.Array) -> list[pa.Array]:
        """One for each key."""
        given = [text or "null" for text in texts.to_pylist()]
        try:
            raws = self.codec.parse_all(given)
            return [at_once(raws, *each) for each in zip(self.plans, self.kinds, strict=True)]
        except (ValueError, LookupError, OverflowError):
            rows = [self.one(text) for text in given]
            return [as_column(column, kind) for column, kind in zip(zip(*rows, strict=True), self.kinds, strict=True)]

    def one(self, text: str) -> list[KeyValue | None]:
        """The keys of one element."""
        try:
            raw = self.codec.parse(text)
        except ElementInvalid:
            return [None] * len(self.plans)
        return [value_of(raw, *each) for each in zip(self.plans, self.kinds, strict=True)]


def at_once(raws: Sequence[Mapping[str, Any]], plan: FieldPlan, kind: Kind) -> pa.Array:
    """One key of many elements. Raises LookupError, ValueError, OverflowError unless it is as it shall be in all."""
    found = list(map(operator.itemgetter(plan.name), raws))
    if set(map(type, found)) != {TYPES[kind]} or any(map(operator.ne, found, found)):
        raise ValueError("not one key per element")
    return as_column(found, kind)


def value_of(raw: Mapping[str, Any], plan: FieldPlan, kind: Kind) -> KeyValue | None:
    """One key of one element; a field that is missing has its default."""
    try:
        given = plan.read(raw[plan.name]) if plan.name in raw else plan.fallback and plan.fallback()
        return None if given is None else ENCODERS[kind](given)
    except (Unfit, NotThisKind):
        return None


def as_column(values: Sequence[KeyValue | None], kind: Kind) -> pa.Array:
    """The keys in the type that Spark compares them by."""
    import pyarrow as pa

    return pa.array(values, ARROW_TYPES[SPARK_TYPES[kind]]())
