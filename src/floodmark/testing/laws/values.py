"""The laws of values: what every sink holds of a value, read back by somebody else, or that it refuses the column.

One row per value. A sink of your own is tried with `rows_of` and `expected`; the page docs/values.md is made of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Form = Literal["json", "csv", "parquet", "delta", "postgres", "message"]
"""What a sink writes: `message` is the text of a key, a header or a value `text:…` of Kafka."""
CYCLE_YEARS, CYCLE_DAYS = 400, 146_097
EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
DAY_MICROSECONDS = 86_400_000_000


@dataclass(frozen=True)
class Refused:
    """The column is refused by name: for its type, before a row is read, or for this value."""

    by: Literal["type", "value"] = "type"


@dataclass(frozen=True)
class Arrow:
    """A value in a column of this Arrow type; times are counted from 1970, as Python has no dates before the year 1."""

    type: str
    value: object


Expected: TypeAlias = "str | bytes | Arrow | Refused | None"
TYPE, VALUE = Refused("type"), Refused("value")


@dataclass(frozen=True)
class ValueLaw:
    """A value in SQL and what each form has for it: JSON as text, CSV, PostgreSQL and messages as their own text."""

    name: str
    sql: str
    json: str | Refused
    csv: str | Refused | None
    parquet: Arrow | Refused
    delta: Arrow | Refused
    postgres: str | Refused | None
    message: str | bytes | Refused | None

    def expected(self, form: Form) -> Expected:
        """What the form has to hold."""
        held: Expected = getattr(self, form)
        return held

    @property
    def column(self) -> str:
        """The name of its column."""
        return re.sub(r"\W+", "_", self.name)


def days(year: int, month: int, day: int) -> int:
    """A date of the Gregorian calendar, also before it was made, as days since 1970."""
    cycles = 0 if year > 0 else 1 - year // CYCLE_YEARS
    return date(year + CYCLE_YEARS * cycles, month, day).toordinal() - CYCLE_DAYS * cycles - EPOCH_ORDINAL


def law(
    name: str, sql: str, json: str | Refused, csv: str | Refused | None, arrow: Arrow | Refused, **others: Expected
) -> ValueLaw:
    """Parquet and Delta hold the same, and a message has what CSV has, unless it is said otherwise."""
    forms = {"parquet": arrow, "delta": arrow, "message": csv, "postgres": csv, **others}
    return ValueLaw(name, sql, json, csv, **forms)  # type: ignore[arg-type]


NOON = days(2024, 5, 1) * DAY_MICROSECONDS + 43_200_000_000
UTC = "timestamp[us, tz=UTC]"
LAWS: tuple[ValueLaw, ...] = (
    law("long", "9223372036854775807L", "9223372036854775807", "9223372036854775807", Arrow("int64", 2**63 - 1)),
    law("boolean", "true", "true", "true", Arrow("bool", True)),
    law("null", "cast(null as int)", "null", None, Arrow("int32", None)),
    law("empty text", "''", '""', "", Arrow("string", "")),
    law(
        "text with spaces, quotes and lines",
        r"' a \"b\"; c,\n\r\nd\\ '",
        r'" a \"b\"; c,\n\r\nd\\ "',
        ' a "b"; c,\n\r\nd\\ ',
        Arrow("string", ' a "b"; c,\n\r\nd\\ '),
    ),
    law("text beyond 16 bits", "'𝄞 größe'", '"𝄞 größe"', "𝄞 größe", Arrow("string", "𝄞 größe")),
    law("text with 0x00", r"concat('a', char(0), 'b')", r'"a\u0000b"', "a\0b", Arrow("string", "a\0b"), postgres=VALUE),
    law(
        "text that is not UTF-8",
        "cast(x'ff61' as string)",
        VALUE,
        VALUE,
        Arrow("string", b"\xffa"),
        postgres=VALUE,
        message=b"\xffa",
    ),
    law(
        "a lone surrogate",
        "cast(x'eda08061' as string)",
        VALUE,
        VALUE,
        Arrow("string", b"\xed\xa0\x80a"),
        postgres=VALUE,
        message=b"\xed\xa0\x80a",
    ),
    law(
        "moment",
        "timestamp'2024-05-01 12:00:00.123456Z'",
        '"2024-05-01T12:00:00.123456Z"',
        "2024-05-01T12:00:00.123456Z",
        Arrow(UTC, NOON + 123_456),
        postgres="2024-05-01 12:00:00.123456+00",
    ),
    law(
        "moment before 1582",
        "timestamp'1500-02-28 00:00:00.000001Z'",
        '"1500-02-28T00:00:00.000001Z"',
        "1500-02-28T00:00:00.000001Z",
        Arrow(UTC, days(1500, 2, 28) * DAY_MICROSECONDS + 1),
        postgres="1500-02-28 00:00:00.000001+00",
    ),
    law(
        "moment before the year 1",
        "timestamp'-0044-03-15 00:00:00.000001Z'",
        '"-0044-03-15T00:00:00.000001Z"',
        "-0044-03-15T00:00:00.000001Z",
        Arrow(UTC, days(-44, 3, 15) * DAY_MICROSECONDS + 1),
        postgres="0045-03-15 00:00:00.000001+00 BC",
    ),
    law(
        "moment without a zone",
        "timestamp_ntz'2024-05-01 12:00:00.123456'",
        '"2024-05-01T12:00:00.123456"',
        "2024-05-01T12:00:00.123456",
        Arrow("timestamp[us]", NOON + 123_456),
        postgres="2024-05-01 12:00:00.123456",
    ),
    law(
        "time of day",
        "time'12:34:56.123456'",
        '"12:34:56.123456"',
        "12:34:56.123456",
        TYPE,
    ),
    law("date", "date'2024-05-01'", '"2024-05-01"', "2024-05-01", Arrow("date32[day]", days(2024, 5, 1))),
    law("date before 1582", "date'1500-02-28'", '"1500-02-28"', "1500-02-28", Arrow("date32[day]", days(1500, 2, 28))),
    law(
        "date before the year 1",
        "date'-0044-03-15'",
        '"-0044-03-15"',
        "-0044-03-15",
        Arrow("date32[day]", days(-44, 3, 15)),
        postgres="0045-03-15 BC",
    ),
    law(
        "decimal of 38 digits",
        "cast('-12345678901234567890123456789012345678' as decimal(38,0))",
        "-12345678901234567890123456789012345678",
        "-12345678901234567890123456789012345678",
        Arrow("decimal128(38, 0)", "-12345678901234567890123456789012345678"),
    ),
    law(
        "decimal of 38 places",
        "cast('0.00000000000000000000000000000000000001' as decimal(38,38))",
        "1E-38",
        "0.00000000000000000000000000000000000001",
        Arrow("decimal128(38, 38)", "1E-38"),
    ),
    law("decimal with a zero at its end", "1.50BD", "1.50", "1.50", Arrow("decimal128(3, 2)", "1.50")),
    law("double", "0.1D", "0.1", "0.1", Arrow("double", 0.1)),
    law("float", "cast('0.1' as float)", "0.1", "0.1", Arrow("float", 0.10000000149011612)),
    law("minus zero", "-0.0D", "-0.0", "-0.0", Arrow("double", -0.0), postgres="-0"),
    law("not a number", "double('NaN')", '"NaN"', "NaN", Arrow("double", "nan")),
    law("infinity", "double('-Infinity')", '"-Infinity"', "-Infinity", Arrow("double", float("-inf"))),
    law("bytes", "x'00ff'", '"AP8="', "AP8=", Arrow("binary", b"\x00\xff"), postgres=r"\x00ff", message=b"\x00\xff"),
    law(
        "record with nulls",
        "named_struct('a', cast(null as int), 'b', array(1, null), 'c', map('k', cast(null as int)))",
        '{"a": null, "b": [1, null], "c": {"k": null}}',
        TYPE,
        Arrow("struct", {"a": None, "b": [1, None], "c": [("k", None)]}),
        postgres='{"a": null, "b": [1, null], "c": {"k": null}}',
        message='{"a":null,"b":[1,null],"c":{"k":null}}',
    ),
    law(
        "moments within",
        "named_struct('t', array(timestamp'2024-05-01 12:00:00.123456Z'), 'h', time'01:02:03.000004')",
        '{"t": ["2024-05-01T12:00:00.123456Z"], "h": "01:02:03.000004"}',
        TYPE,
        TYPE,
        postgres='{"h": "01:02:03.000004", "t": ["2024-05-01T12:00:00.123456Z"]}',
        message='{"t":["2024-05-01T12:00:00.123456Z"],"h":"01:02:03.000004"}',
    ),
    law(
        "map by date",
        "map(date'1500-02-28', x'00ff')",
        '{"1500-02-28": "AP8="}',
        TYPE,
        Arrow("map", [(date(1500, 2, 28), b"\x00\xff")]),
        postgres='{"1500-02-28": "AP8="}',
        message='{"1500-02-28":"AP8="}',
    ),
    law(
        "map by bytes",
        "map(x'00ff', 1)",
        TYPE,
        TYPE,
        Arrow("map", [(b"\x00\xff", 1)]),
        postgres=TYPE,
    ),
    law(
        "variant",
        """parse_json('{"a": [1, null, "x", 1.25]}')""",
        '{"a": [1, null, "x", 1.25]}',
        TYPE,
        Arrow("struct", {"a": [1, None, "x", Decimal("1.25")]}),
        postgres='{"a": [1, null, "x", 1.25]}',
        message='{"a":[1,null,"x",1.25]}',
    ),
    law(
        "interval of months",
        "interval '1-2' year to month",
        "\"INTERVAL '1-2' YEAR TO MONTH\"",
        "INTERVAL '1-2' YEAR TO MONTH",
        Arrow("int32", 14),
        delta=TYPE,
        postgres=TYPE,
    ),
    law(
        "interval of days",
        "interval '1 02:03:04.123456' day to second",
        "\"INTERVAL '1 02:03:04.123456' DAY TO SECOND\"",
        "INTERVAL '1 02:03:04.123456' DAY TO SECOND",
        Arrow("int64", 93_784_123_456),
        delta=TYPE,
        postgres=TYPE,
    ),
    law(
        "interval of both",
        "make_interval(1, 2, 0, 3)",
        '"1 years 2 months 3 days"',
        "1 years 2 months 3 days",
        TYPE,
        postgres=TYPE,
    ),
    law("nothing", "null", "null", None, Arrow("null", None)),
)


def laws_held(form: Form) -> tuple[ValueLaw, ...]:
    """The values that the form holds."""
    return tuple(each for each in LAWS if not isinstance(each.expected(form), Refused))


def laws_refused(form: Form, by: Literal["type", "value"]) -> tuple[ValueLaw, ...]:
    """The values that it refuses, for their type or for what they are."""
    return tuple(each for each in LAWS if each.expected(form) == Refused(by))


def rows_of(spark: SparkSession, laws: Sequence[ValueLaw]) -> DataFrame:
    """One row with the values of these laws, each in the column of its name."""
    return spark.sql("select " + ", ".join(f"{each.sql} as `{each.column}`" for each in laws))


FORMS: dict[Form, str] = {
    "json": "JSON (Kafka `value: json`, files `jsonl` and `json`, console)",
    "csv": "files `csv`",
    "parquet": "files `parquet`, as Arrow reads it",
    "delta": "Delta, as Arrow reads it",
    "postgres": "PostgreSQL, in its own text",
    "message": "Kafka key, header, `value: {text: …}`",
}


def table_lines() -> list[str]:
    """The laws as a table of Markdown, for docs/values.md."""
    head = ["a value", "in Spark SQL", *FORMS.values()]
    rows = [[each.name, f"`{_cell(each.sql)}`", *(_form_text(each.expected(form)) for form in FORMS)] for each in LAWS]
    return [_line(head), _line(["---"] * len(head)), *map(_line, rows)]


def _form_text(expected: Expected) -> str:
    if isinstance(expected, Refused):
        return "**refused**" if expected.by == "type" else "**this value is refused**"
    if isinstance(expected, Arrow):
        return f"`{expected.type}`"
    if expected is None:
        return "NULL"
    return f"`{_cell(repr(expected) if isinstance(expected, bytes) else expected)}`" if expected else "empty"


def _cell(text: str) -> str:
    """A text that stays within its cell."""
    return text.encode("unicode_escape").decode("ascii").replace("|", "\\|") if not text.isprintable() else text


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print("\n".join(table_lines()))
