"""Keys that are a field as it stands: Python reads many of them at once, sooner than Spark's from_json would."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

from floodmark.errors import ElementInvalid
from floodmark.mill.brokers import VALUE
from floodmark.mill.class_closures import FieldPlan, class_reader, plans_of
from floodmark.mill.codec import Codec
from floodmark.mill.element_columns import ARROW_TYPES, key_columns, with_columns
from floodmark.mill.expression_types import type_of
from floodmark.mill.expressions import Field
from floodmark.mill.field_types import mentions
from floodmark.mill.key_values import ENCODERS, SPARK_TYPES, KeyValue, Kind, NotThisKind
from floodmark.mill.keys import Key
from floodmark.mill.scalars import Unfit

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

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
