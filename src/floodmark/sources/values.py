"""What the bytes of a message mean: left alone, text, or JSON with a schema; and which of them do not mean it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from floodmark.errors import ConfigError
from floodmark.spark.schemas import ClassColumns

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType


CORRUPT = "_fm_corrupt"
REASON, PARSED, TEXT = "_fm_reason", "_fm_parsed", "_fm_text"
WHITESPACE = " \t\r\n"
HINT = 'one of: bytes, text, or {format: json, schema: "id long, v string"}'


@dataclass(frozen=True)
class Json:
    """Each value is one JSON object; `schema` is DDL text, a StructType, or a dataclass with typed fields."""

    schema: str | StructType | type

    def columns(self) -> str | StructType:
        """The schema as Spark takes it."""
        if not isinstance(self.schema, type):
            return self.schema
        if not is_dataclass(self.schema):
            raise ConfigError(f"{self.schema.__name__} is no dataclass.", hint=HINT)
        return ClassColumns("give the schema as DDL text", has_bytes=True).schema(self.schema)

    def parse(self, text: Column, options: Mapping[str, str] | None = None) -> Column:
        """A struct of the schema and of CORRUPT, which holds the text of what does not fit it."""
        from pyspark.sql import functions as F

        # Spark leaves out fields that nobody asks for, and does not judge them then, only where there are no options.
        ours = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        return F.from_json(text, _with_corrupt(self.columns()), {**(options or {}), **ours})


Value: TypeAlias = "Literal['bytes', 'text'] | Json"
ValueOption: TypeAlias = "Literal['bytes', 'text'] | Json | Mapping[str, Any] | type"


def value_of(option: object) -> Value:
    """The format that an option means. Raises ConfigError if it means none."""
    if option == "bytes" or option == "text":
        return option
    if isinstance(option, Json):
        return option
    if isinstance(option, type) and is_dataclass(option):
        return Json(option)
    if isinstance(option, Mapping) and option.get("format") == "json" and set(option) == {"format", "schema"}:
        return Json(option["schema"])
    if isinstance(option, Mapping) and option.get("format") in ("bytes", "text") and set(option) == {"format"}:
        return value_of(option["format"])
    raise ConfigError(f"value {option!r} is not known.", hint=HINT)


def _with_corrupt(schema: str | StructType) -> str | StructType:
    from pyspark.sql.types import StringType, StructField, StructType

    if isinstance(schema, str):
        return f"{schema.strip().rstrip(',')}, {CORRUPT} STRING"
    return StructType([*schema.fields, StructField(CORRUPT, StringType())])


def is_no_object() -> Column:
    """Whether TEXT is not the one JSON object that PARSED was made from.

    Spark takes the first object of a text and leaves the rest: the second question is whether that was all.
    """
    from pyspark.sql import functions as F

    text, parsed = F.col(TEXT), F.col(PARSED)
    as_list = F.json_array_length(F.concat(F.lit("["), text, F.lit("]")))
    is_whole = (F.coalesce(as_list, F.lit(0)) == 1) & F.rtrim(text, F.lit(WHITESPACE)).endswith("}")
    return text.isNotNull() & (parsed.isNull() | parsed[CORRUPT].isNotNull() | ~is_whole)
