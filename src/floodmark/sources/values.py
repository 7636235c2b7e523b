"""What the bytes of a message mean: left alone, text, or JSON with a schema; and which of them do not mean it."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from floodmark.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType


CORRUPT = "_fm_corrupt"
HINT = 'one of: bytes, text, or {format: json, schema: "id long, v string"}'


@dataclass(frozen=True)
class Json:
    """Each value is one JSON object; `schema` is DDL text, a StructType, or a dataclass with typed fields."""

    schema: str | StructType | type

    def columns(self) -> str | StructType:
        """The schema as Spark takes it."""
        return ddl_of(self.schema) if isinstance(self.schema, type) else self.schema

    def parsed(self, text: Column, options: Mapping[str, str] | None = None) -> Column:
        """A struct of the schema and of CORRUPT, which holds the text of what does not fit it."""
        from pyspark.sql import functions as F

        # Spark leaves out fields that nobody asks for, and does not judge them then, only where there are no options.
        ours = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        return F.from_json(text, _with_corrupt(self.columns()), {**(options or {}), **ours})


Value: TypeAlias = "Literal['bytes', 'text'] | Json"
ValueOption: TypeAlias = "Literal['bytes', 'text'] | Json | Mapping[str, Any] | type"


def value_of(given: object) -> Value:
    """The format that an option means. Raises ConfigError if it means none."""
    if given == "bytes" or given == "text":
        return given
    if isinstance(given, Json):
        return given
    if isinstance(given, type) and is_dataclass(given):
        return Json(given)
    if isinstance(given, Mapping) and given.get("format") == "json" and set(given) == {"format", "schema"}:
        return Json(given["schema"])
    if isinstance(given, Mapping) and given.get("format") in ("bytes", "text") and set(given) == {"format"}:
        return value_of(given["format"])
    raise ConfigError(f"value {given!r} is not known.", hint=HINT)


_TYPES: Mapping[Any, str] = {
    bool: "boolean",
    int: "bigint",
    float: "double",
    str: "string",
    bytes: "binary",
    Decimal: "decimal(38,18)",
    date: "date",
    datetime: "timestamp",
}


def ddl_of(described: type) -> str:
    """The columns of a dataclass. Raises ConfigError for a field whose type has no column type."""
    if not is_dataclass(described):
        raise ConfigError(f"{described.__name__} is no dataclass.", hint=HINT)
    hints = get_type_hints(described)
    return ", ".join(f"`{field.name}` {_type_of(hints[field.name], field.name)}" for field in fields(described))


def _type_of(hint: Any, field: str) -> str:  # noqa: ANN401 (a type hint is any object)
    if hint in _TYPES:
        return _TYPES[hint]
    if isinstance(hint, type) and is_dataclass(hint):
        return f"struct<{ddl_of(hint).replace('` ', '`: ')}>"
    inner = [each for each in get_args(hint) if each is not type(None)]
    if get_origin(hint) in (Union, types.UnionType) and len(inner) == 1:
        return _type_of(inner[0], field)
    if get_origin(hint) in (list, tuple) and [each for each in inner if each is not Ellipsis] == inner[:1]:
        return f"array<{_type_of(inner[0], field)}>"
    if get_origin(hint) is dict and inner[:1] == [str]:
        return f"map<string, {_type_of(inner[1], field)}>"
    raise ConfigError(f"field '{field}' has the type {hint}, which no column has.", hint="give the schema as DDL text")


def _with_corrupt(schema: str | StructType) -> str | StructType:
    from pyspark.sql.types import StringType, StructField, StructType

    if isinstance(schema, str):
        return f"{schema.strip().rstrip(',')}, {CORRUPT} STRING"
    return StructType([*schema.fields, StructField(CORRUPT, StringType())])
