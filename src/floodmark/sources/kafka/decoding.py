"""Values of any format, decoded by a user's function: Avro, Protobuf, something of their own. What fails is told why.

The function gets the bytes of one value and gives its fields. It runs where Spark reads, once per message; a value that
it raises on, or that does not fit the schema, is malformed as JSON would be, and becomes a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from floodmark.errors import ConfigError
from floodmark.locations import load_name
from floodmark.sources.values import CORRUPT, PARSED, Json, Value, value_of

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

Decoder: TypeAlias = "Callable[[bytes | None], tuple[Any, ...] | None]"
HINT = 'value: {python: "module:decode", schema: "id long, v string"}'


@dataclass(frozen=True)
class Decoded(Json):
    """Each value is what the function `python` (`module:name`) makes of its bytes: a mapping, or a dataclass."""

    python: str = ""

    def parse(self, text: Column, options: Mapping[str, str] | None = None) -> Column:
        """A struct of the schema and of CORRUPT, which says why a value could not be decoded."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        own = _as_struct(self.columns())
        whole = StructType([*own.fields, StructField(CORRUPT, StringType())])
        # Else Spark may call it once for a filter and once more for the columns.
        decode = F.udf(decoder(self.function(), own), whole, useArrow=False).asNondeterministic()
        return decode(text.cast("binary"))

    def reason(self) -> Column:
        """Why the value of a message is not what it should be; null for the others."""
        from pyspark.sql import functions as F

        return F.col(PARSED)[CORRUPT]

    def function(self) -> Callable[[bytes], object]:
        """The function itself. Raises ConfigError."""
        found = load_name(self.python, Path.cwd())
        if not callable(found):
            raise ConfigError(f"{self.python} is no function.", hint=HINT)
        return found


def message_value(option: object) -> Value:
    """The format that an option means, a function of the user's among them. Raises ConfigError if it means none."""
    if isinstance(option, Decoded) or not isinstance(option, Mapping) or "python" not in option:
        return value_of(option)
    if set(option) != {"python", "schema"} or ":" not in str(option["python"]):
        raise ConfigError(f"value {dict(option)!r} is not known.", hint=HINT)
    return Decoded(option["schema"], str(option["python"]))


def decoder(
    function: Callable[[bytes], object], schema: StructType
) -> Callable[[bytes | None], tuple[Any, ...] | None]:
    """What a task calls: the fields in their order and, behind them, why there are none."""
    from pyspark.sql.types import _make_type_verifier

    names = schema.fieldNames()
    verifiers = {field.name: _make_type_verifier(field.dataType, field.nullable) for field in schema.fields}
    moments = [field.name for field in schema.fields if field.dataType.typeName() == "timestamp"]

    def decode(value: bytes | None) -> tuple[Any, ...] | None:
        if value is None:
            return None  # a message without a value says that its key is gone
        try:
            fields = fields_of(function(bytes(value)), names, moments)
            for name, verify in verifiers.items():
                require_fit(name, fields[name], verify)
        except Exception as error:  # noqa: BLE001 (whatever a user's function raises is what its value is put aside for)
            return (*[None] * len(names), f"{type(error).__name__}: {error}")
        return (*(fields.get(name) for name in names), None)

    return decode


def fields_of(decoded: object, names: list[str], moments: list[str]) -> dict[str, Any]:
    """The fields by name; those that are missing are null. Raises TypeError and ValueError for what no column has."""
    if is_dataclass(decoded) and not isinstance(decoded, type):
        decoded = asdict(decoded)
    if not isinstance(decoded, Mapping):
        raise TypeError(f"the function gave {type(decoded).__name__}, and not a mapping or a dataclass")
    unknown = sorted(set(decoded) - set(names))
    if unknown:
        raise ValueError(f"the schema has no field {unknown[0]!r}")
    naive = [n for n in moments if isinstance(decoded.get(n), datetime) and decoded[n].tzinfo is None]
    if naive:
        raise ValueError(f"{naive[0]} is a time without a zone: which moment is meant?")
    return {name: decoded.get(name) for name in names}


def require_fit(name: str, value: object, verify: Callable[[object], None]) -> None:
    """Raise ValueError for a value that Spark would turn into a null, or into another one."""
    try:
        verify(value)
    except Exception as error:
        raise ValueError(f"field {name}: {error}") from error


def _as_struct(schema: str | StructType) -> StructType:
    from pyspark.sql.types import StructType

    parsed = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(parsed, StructType):
        raise ConfigError(f"schema {schema!r} names no columns.", hint=HINT)
    return parsed
