"""Keys: what an expression says about an element, in a form that Spark can order and compare as Python would."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from floodmark.errors import ElementInvalid, JoinTreeInvalid
from floodmark.mill.aliases import Stream, name_of
from floodmark.mill.codec import Codec
from floodmark.mill.expression_columns import to_column
from floodmark.mill.expression_types import is_compilable, type_of
from floodmark.mill.expressions import Expression, Field, Item, Operation
from floodmark.mill.joining import Edge, JoinTree
from floodmark.mill.key_values import ENCODERS, EXACT_FLOATS, KINDS, SPARK_TYPES, TOGETHER, KeyValue, Kind, NotThisKind

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType


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
    def ordered(self) -> bool:
        return self.kind != "any"

    @cached_property
    def compiled(self) -> bool:
        """Whether `column` can be asked; otherwise `of` runs as Python."""
        return self.kind in ("int", "float", "text") and is_compilable(self.expression, self.codec)

    def column(self, element: Column) -> Column:
        """The key over a struct column; null where `of` would raise."""
        from pyspark.sql import functions as F

        found = to_column(self.expression, self.codec, element)
        if self.kind != "float":
            return found.cast(self.spark_type)
        if type_of(self.expression, self.codec) is float:
            return F.when(~F.isnan(found), found)
        whole = found.cast("bigint")
        return F.when(whole.between(-EXACT_FLOATS, EXACT_FLOATS), whole.cast("double"))

    def of(self, values: Mapping[str, Any] | None) -> KeyValue:
        """The key of an element, given as `Codec.values` does; None on an idle poll. Raises ElementInvalid."""
        try:
            value = self.expression.evaluate(values)
            if value is None:
                raise self._invalid("the key is null")
            return ENCODERS[self.kind](value)
        except ElementInvalid:
            raise
        except Exception as error:
            raise self._invalid(_told(error)) from error

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
    kind = _common(edge, kinds)
    return Key(left, edge.left_expression, kind), Key(right, edge.right_expression, kind)


def window_key(tree: JoinTree, codecs: Mapping[Stream, Codec]) -> Key | None:
    """The key of the windows, if the tree has any; where nobody knows its type it is only compared for equality."""
    if tree.window is None:
        return None
    codec = codecs[tree.root]
    return Key(codec, tree.window, kind_of(tree.window, codec) or "any")


def kind_of(expression: Expression, codec: Codec) -> Kind | None:
    """What the expression's values are compared as; None if it cannot be told, "any" if they have no order."""
    found = type_of(expression, codec)
    return KINDS.get(found, "any") if found is not None else None


def key_schema(codec: Codec, keys: Sequence[Key]) -> StructType:
    """Only those fields of an element that compiled keys read, for from_json."""
    from floodmark.mill.spark_schema import spark_schema

    return spark_schema(codec.cls, only={path for key in keys if key.compiled for path in _paths(key.expression)})


def _paths(expression: Expression) -> Iterator[tuple[str, ...]]:
    """The fields that an expression reads, each as the names that lead to it."""
    if isinstance(expression, Operation):
        yield from (*_paths(expression.left), *_paths(expression.right))
    elif isinstance(expression, Item):
        yield from ((*path, expression.name) for path in _paths(expression.whole))
    elif isinstance(expression, Field):
        yield (expression.name,)


def _common(edge: Edge, kinds: tuple[Kind | None, Kind | None]) -> Kind:
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


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, NotThisKind) else f"{type(error).__name__}: {error}"
