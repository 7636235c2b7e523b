"""Keys: what an expression gives for an element, in a form that Spark orders and compares as Python would.

Wrong fields and mixed types are found from the types of the class, before any element is read. A task reads the keys
of many elements at once where each is a field as it stands; the rows "mill, Kafka map", "join" and the same on files
of bench_mill pay for that. Any other expression is evaluated by Python, element by element, and so are the elements of
a batch in which one has no key.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from floodmark.errors import ConfigError, ElementInvalid, JoinTreeInvalid
from floodmark.errors.configuration import did_you_mean, nearest_names
from floodmark.mill.brokers import VALUE
from floodmark.mill.codec import Codec
from floodmark.mill.codec.reading import Read
from floodmark.mill.codec.types import UnfitValue, hints_of, mentions
from floodmark.mill.expressions import (
    COMPARISONS,
    ENCODERS,
    KINDS,
    SIGNS,
    SPARK_TYPES,
    TOGETHER,
    Call,
    Constant,
    Expression,
    Field,
    Item,
    KeyValue,
    Kind,
    NotThisKind,
    Operation,
)
from floodmark.mill.join_tree import Edge, JoinTree, Stream, name_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


SAMPLES: Mapping[type, Any] = {
    int: 3,
    float: 2.5,
    bool: True,
    str: "a",
    Decimal: Decimal(3),
    date: date(2026, 1, 1),
    datetime: datetime(2026, 1, 1, tzinfo=timezone.utc),
    timedelta: timedelta(days=1),
    UUID: UUID(int=1),
}
"""One value of each type: what an operator gives for these is what it gives for all."""
PLAIN_TYPES: Mapping[Kind, type] = {"int": int, "float": float, "text": str}
"""Kinds whose values JSON has, and Spark holds, as they are."""


@dataclass(frozen=True, eq=False)
class Key:
    """One side of an edge, or a window. `kind` is what both sides are compared as; "any" can only be equal or not."""

    codec: Codec
    expression: Expression
    kind: Kind

    @property
    def spark_type(self) -> str:
        return SPARK_TYPES[self.kind]

    @property
    def is_ordered(self) -> bool:
        return self.kind != "any"

    @property
    def calls_a_function(self) -> bool:
        """Whether the key is made by code of the user's, which may give another answer the next time."""
        return any(isinstance(part, Call) for part in self.expression.walk())

    @cached_property
    def plain_field(self) -> str | None:
        """The field, if the key is one, compared as the type that it has, and JSON has it as that."""
        if self.codec.deserializer is not None or not isinstance(self.expression, Field):
            return None
        has_type = type_of(self.expression, self.codec) is PLAIN_TYPES.get(self.kind)
        is_decimal_in_json = self.kind == "float" and mentions(self.codec.cls, Decimal)
        return self.expression.name if has_type and not is_decimal_in_json else None

    def of(self, values: Mapping[str, Any] | None) -> KeyValue:
        """The key of an element, given as `Codec.values` does; None on an idle poll. Raises ElementInvalid."""
        try:
            value = self.expression.evaluate(values)
            if value is None:
                raise self._invalid("the key is null")
            return ENCODERS[self.kind](value)
        except ElementInvalid:
            raise
        except NotThisKind as error:
            raise self._invalid(str(error)) from error
        except Exception as error:
            raise self._invalid(f"{type(error).__name__}: {error}") from error

    def __reduce__(self) -> tuple[object, ...]:
        return Key, (self.codec, self.expression, self.kind)

    def _invalid(self, reason: str) -> ElementInvalid:
        return ElementInvalid(
            name_of(self.codec.stream), field="", reason=f"key {self.expression.describe()}: {reason}"
        )


def edge_keys(edge: Edge, codecs: Mapping[Stream, Codec]) -> tuple[Key, Key]:
    """The keys of both sides, of one kind. Raises JoinTreeInvalid for sides that cannot be compared."""
    left, right = codecs[edge.left], codecs[edge.right]
    kinds = (kind_of(edge.left_expression, left), kind_of(edge.right_expression, right))
    kind = _common_kind(edge, kinds)
    return Key(left, edge.left_expression, kind), Key(right, edge.right_expression, kind)


def _common_kind(edge: Edge, kinds: tuple[Kind | None, Kind | None]) -> Kind:
    known: set[Kind] = {kind for kind in kinds if kind is not None}
    if not known:
        reason, hint = "nobody knows the type of either key", "annotate what the functions of function_call return"
    elif "any" in known:
        reason, hint = "a key has no order", "join on numbers, text, dates or times; function_call(…) can make one"
    elif len(known) == 1:
        return known.pop()
    elif frozenset(known) in TOGETHER:
        return TOGETHER[frozenset(known)]
    else:
        reason = f"{kinds[0]} keys on the left, {kinds[1]} keys on the right"
        hint = "bring both sides to one type; function_call(…) can convert"
    raise JoinTreeInvalid(edge.describe(), reason=reason, hint=hint)


def window_key(tree: JoinTree, codecs: Mapping[Stream, Codec]) -> Key | None:
    """The key of the windows, if the tree has any; where nobody knows its type it is only compared for equality."""
    if tree.window is None:
        return None
    codec = codecs[tree.root]
    return Key(codec, tree.window, kind_of(tree.window, codec) or "any")


def kind_of(expression: Expression, codec: Codec) -> Kind | None:
    """What the expression's values are compared as; None if nobody knows, "any" if they have no order."""
    found = type_of(expression, codec)
    return KINDS.get(found, "any") if found is not None else None


def type_of(expression: Expression, codec: Codec) -> type | None:
    """The type of the expression's values; None where nobody can tell before it is called.

    Raises ConfigError for a field that the class does not have, and for an operator that its operands do not know.
    """
    if isinstance(expression, Constant):
        return type(expression.value)
    if isinstance(expression, Call):
        return _return_type(expression)
    if isinstance(expression, Operation):
        return _operation_type(expression, codec)
    return _concrete_type(_hint(expression, codec))


def _return_type(call: Call) -> type | None:
    try:
        return _concrete_type(get_type_hints(call.function).get("return"))
    except (TypeError, NameError):
        return None


def _operation_type(operation: Operation, codec: Codec) -> type | None:
    left, right = type_of(operation.left, codec), type_of(operation.right, codec)
    if left is None or right is None:
        return bool if operation.sign in COMPARISONS else None
    try:
        return type(SIGNS[operation.sign](SAMPLES[left], SAMPLES[right]))
    except (TypeError, KeyError):
        raise ConfigError(
            f"{operation.describe()} on {codec.cls.__name__}: '{operation.sign}' does not go with {left.__name__} and "
            f"{right.__name__}.",
            hint="use fields of one kind, or function_call(…) for what has no operator",
        ) from None


def _hint(expression: Expression, codec: Codec) -> object:
    if isinstance(expression, Field):
        return _field_hint(codec.cls, expression.name, codec)
    if isinstance(expression, Item):
        return _item_hint(_hint(expression.whole, codec), expression, codec)
    return Any


def _item_hint(whole: object, item: Item, codec: Codec) -> object:
    bare = _without_none(whole)
    if isinstance(bare, type) and is_dataclass(bare):
        return _field_hint(bare, item.name, codec)
    if get_origin(bare) in (dict, Mapping):
        return get_args(bare)[1]
    if bare in (Any, object, dict) or codec.deserializer is not None:
        return Any
    raise ConfigError(
        f"{item.describe()} on {codec.cls.__name__}: {item.whole.describe()} has no parts.",
        hint="['…'] is for a field that is a dataclass or a dict",
    )


def _field_hint(cls: type, name: str, codec: Codec) -> object:
    """With a deserializer of the user's own the stream may have fields that the class does not have."""
    names = [field.name for field in fields(cls)] if is_dataclass(cls) else []
    if name in names:
        return hints_of(cls)[name]
    if codec.deserializer is not None:
        return Any
    hint = did_you_mean(nearest_names(name, names)) or f"one of: {', '.join(names)}"
    raise ConfigError(f"{cls.__name__} has no field '{name}'.", hint=hint)


def _without_none(hint: object) -> object:
    """X for `X | None`: a null is found, and refused, when it is met."""
    if get_origin(hint) in (Union, types.UnionType):
        rest = [arg for arg in get_args(hint) if arg is not type(None)]
        return rest[0] if len(rest) == 1 else Any
    return hint


def _concrete_type(hint: object) -> type | None:
    bare = _without_none(hint)
    return bare if isinstance(bare, type) and bare is not object else None


def with_keys(rows: DataFrame, codec: Codec, keys: Mapping[str, Key]) -> DataFrame:
    """The rows and a column for every key; null for an element that has none, or none that could be compared."""
    if not keys:
        return rows

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from keyed_batches(batches, codec, keys)

    return rows.mapInArrow(read, with_columns(rows.schema, key_columns(keys)))


def keyed_batches(batches: Iterable[pa.RecordBatch], codec: Codec, keys: Mapping[str, Key]) -> Iterator[pa.RecordBatch]:
    """In a task: every batch with its keys."""
    reader = KeyReader(codec, tuple(keys.values()))
    for batch in batches:
        columns = zip(keys, reader.columns(batch.column(VALUE)), strict=True)
        yield reduce(lambda wider, column: wider.append_column(*column), columns, batch)


@dataclass(frozen=True)
class KeyReader:
    """How a task reads the keys of one stream."""

    codec: Codec
    keys: tuple[Key, ...]

    def columns(self, texts: pa.Array) -> list[pa.Array]:
        """One for each key."""
        given = [text or "null" for text in texts.to_pylist()]
        try:
            return self._columns_at_once(self.codec.parse_all(given))
        except (ElementInvalid, UnfitValue, ValueError, LookupError, OverflowError):
            rows = list(map(self._keys_of_one, given))
            return [key_column([row[place] for row in rows], key) for place, key in enumerate(self.keys)]

    def _columns_at_once(self, raws: Sequence[dict[str, Any]]) -> list[pa.Array]:
        """Raises unless every element has every key."""
        values = [] if all(key.plain_field for key in self.keys) else list(map(self._read_values, raws))
        return [
            key_column(plain_values(raws, key) if key.plain_field else list(map(key.of, values)), key)
            for key in self.keys
        ]

    def _keys_of_one(self, text: str) -> list[KeyValue] | list[None]:
        """The keys of one element; a field that is missing has its default, and what no key is about may be wrong."""
        try:
            values = self._read_values(self.codec.parse(text))
            return [key.of(values) for key in self.keys]
        except (ElementInvalid, UnfitValue):
            return [None] * len(self.keys)

    @cached_property
    def _read_values(self) -> Read:
        """Reads what the keys are made of: some fields, or for a function of the user's the whole element."""
        if any(key.calls_a_function for key in self.keys):
            return self.codec.values
        parts = [part for key in self.keys for part in key.expression.walk()]
        return self.codec.values_reader({part.name for part in parts if isinstance(part, Field)})


def plain_values(raws: Sequence[Mapping[str, Any]], key: Key) -> list[Any]:
    """One key of many elements. Raises LookupError, ValueError unless it is as it shall be in all."""
    found = list(map(operator.itemgetter(key.plain_field), raws))
    if set(map(type, found)) != {PLAIN_TYPES[key.kind]} or any(map(operator.ne, found, found)):
        raise ValueError("not one key per element")
    return found


def key_column(values: Sequence[KeyValue | None], key: Key) -> pa.Array:
    """The keys in the type that Spark compares them by."""
    import pyarrow as pa

    return pa.array(values, ARROW_TYPES[key.spark_type]())


def key_columns(keys: Mapping[str, Key]) -> dict[str, pa.DataType]:
    """The columns of keys, and what they hold."""
    return {name: ARROW_TYPES[key.spark_type]() for name, key in keys.items()}


def with_columns(schema: StructType, added: Mapping[str, pa.DataType]) -> StructType:
    """The schema with more columns behind its own."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    own = [StructField(name, from_arrow_type(kind)) for name, kind in added.items()]
    return StructType([*schema.fields, *own])


def _arrow(name: str, *arguments: int) -> Callable[[], pa.DataType]:
    def arrow_type() -> pa.DataType:
        import pyarrow as pa

        return getattr(pa, name)(*arguments)

    return arrow_type


ARROW_TYPES: Mapping[str, Callable[[], pa.DataType]] = {
    "bigint": _arrow("int64"),
    "double": _arrow("float64"),
    "string": _arrow("string"),
    "decimal(38,18)": _arrow("decimal128", 38, 18),
}
