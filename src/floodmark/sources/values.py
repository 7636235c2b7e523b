"""What the bytes of a message mean: left alone, text, or JSON with a schema; and which of them do not mean it."""

from __future__ import annotations

import secrets
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
KEY = f"_fm_{secrets.token_hex(4)}"
"""Our own key around a text that is parsed: no text knows it, so none can pretend that it ends where it does not.

Short, since it is parsed with every text.
"""
END = f"{KEY}e"
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
        """What stands in the text, for `object_in` and `is_no_object`; null for a text that is null.

        Spark takes the first object of a text and leaves the rest. So the text is parsed as an element of a list that
        ends with an element of ours: one parse sees whether there is anything between the two.
        """
        from pyspark.sql import functions as F

        # On a line of its own: where options allow comments, one may end the text.
        whole = F.concat(F.lit(f'{{"{KEY}":['), text, F.lit(f'\n,{{"{KEY}":1}}]}}'))
        # Spark leaves out fields that nobody asks for, and does not judge them then, only where there are no options.
        ours = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        return F.from_json(whole, _in_a_list(self.columns()), {**(options or {}), **ours})

    def parse_list(self, text: Column, options: Mapping[str, str] | None = None) -> Column:
        """As `parse`, of a text that holds an object or a list of them, for `objects_in` and `is_no_list`."""
        from pyspark.sql import functions as F

        listed = F.when(text.startswith("["), text).otherwise(F.concat(F.lit("["), text, F.lit("\n]")))
        whole = F.concat(F.lit(f'{{"{KEY}":'), listed, F.lit(f'\n,"{END}":1}}'))
        ours = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        return F.from_json(whole, _with_end(self.columns()), {**(options or {}), **ours})


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


def _in_a_list(schema: str | StructType) -> str | StructType:
    """The schema of the list, and CORRUPT, which is set where something in it does not fit."""
    from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType

    if isinstance(schema, str):
        return f"{KEY} ARRAY<STRUCT<{schema.strip().rstrip(',')}, {KEY} INT>>, {CORRUPT} STRING"
    element = StructType([*schema.fields, StructField(KEY, IntegerType())])
    return StructType([StructField(KEY, ArrayType(element)), StructField(CORRUPT, StringType())])


def _with_end(schema: str | StructType) -> str | StructType:
    """The schema of a list of such objects, of what stands behind it, and of CORRUPT."""
    from pyspark.sql.types import ArrayType, IntegerType, StringType, StructType

    if isinstance(schema, str):
        return f"{KEY} ARRAY<STRUCT<{schema.strip().rstrip(',')}>>, {END} INT, {CORRUPT} STRING"
    return StructType().add(KEY, ArrayType(schema)).add(END, IntegerType()).add(CORRUPT, StringType())


def objects_in(parsed: Column) -> Column:
    """The objects that were parsed, as a list of structs."""
    return parsed[KEY]


def is_no_list(parsed: Column) -> Column:
    """Whether the text was anything but one JSON object of the schema, or one list of such objects."""
    from pyspark.sql import functions as F

    is_whole = (parsed[END] == 1) & parsed[CORRUPT].isNull() & ~F.exists(parsed[KEY], lambda each: each.isNull())
    return ~F.coalesce(is_whole, F.lit(False))


def object_in(parsed: Column) -> Column:
    """The object that was parsed, as a struct with one field more, KEY; null where there is none."""
    from pyspark.sql import functions as F

    return F.get(parsed[KEY], F.lit(0))


def is_no_object(text: Column, parsed: Column) -> Column:
    """Whether the text is anything but one JSON object of the schema; false for a text that is null."""
    from pyspark.sql import functions as F

    is_whole = (F.size(parsed[KEY]) == 2) & (F.get(parsed[KEY], F.lit(1))[KEY] == 1)
    is_one = is_whole & parsed[CORRUPT].isNull() & object_in(parsed).isNotNull()
    return text.isNotNull() & ~F.coalesce(is_one, F.lit(False))


def is_surely_whole(text: Column) -> Column:
    """Whether nothing can follow an object that begins the text, as seen without parsing it; no is a perhaps.

    An object ends with a brace, and the first closing one is the last character.
    """
    from pyspark.sql import functions as F

    before = F.substring_index(text, "}", 1)  # of the whole text, where it has none
    return text.startswith("{") & (F.octet_length(before) + 1 == F.octet_length(text)) & F.is_valid_utf8(text)


def readable_text(text: Column) -> Column:
    """The text as it can be kept and shown; bytes that are no UTF-8 in a form from which they can be brought back."""
    from pyspark.sql import functions as F

    return F.coalesce(F.try_validate_utf8(text), F.concat(F.lit("base64:"), F.base64(text.cast("binary"))))
