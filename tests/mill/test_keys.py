"""Keys: one form for both sides of an edge, exact in Spark, and the same whether Spark or Python computes it."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from pyspark.sql import functions as F_

from floodmark.errors import ElementInvalid, JoinTreeInvalid
from floodmark.mill import JoinWith, const_expression, function_call, get_field, join_streams, window
from floodmark.mill.codec import Codec
from floodmark.mill.expressions import Expression, Kind
from floodmark.mill.join_tree import single_stream
from floodmark.mill.keys import Key, edge_keys, key_schema, kind_of, window_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Place:
    """Nested."""

    x: int
    name: str


@dataclass
class Many:
    """A field of each kind."""

    n: int
    j: int
    f: float
    g: float
    b: bool
    t: str
    place: Place
    extra: dict[str, int]
    amount: Decimal
    day: date
    moment: datetime
    uuid: UUID
    maybe: int | None = None


@dataclass
class Other(Many):
    """The other side."""


N, J, F, G, B, T = (get_field(name) for name in "njfgbt")
CODEC = Codec(Many)
CODECS = {Many: CODEC, Other: Codec(Other)}


def keys_of(left: Expression, right: Expression) -> tuple[Key, Key]:
    return edge_keys(join_streams(Many, JoinWith(Other, left, right)).edges[0], CODECS)


def length(element: dict[str, Any]) -> int:
    return len(element["t"])


@pytest.mark.parametrize(
    ("left", "right", "kind", "compiled"),
    [
        (N, J + 1, "int", True),
        (N, F, "float", True),
        (N, B, "int", True),
        (T, get_field("place")["name"] + "x", "text", True),
        (get_field("place")["x"] // 2, N, "int", True),
        (get_field("extra")["e"], N, "int", True),
        (get_field("amount"), N, "decimal", False),
        (get_field("day") + timedelta(days=1), get_field("day"), "date", False),
        (get_field("moment"), get_field("moment"), "datetime", False),
        (get_field("uuid"), get_field("uuid"), "uuid", False),
        (function_call(length), N, "int", False),
        (function_call(lambda element: element["n"]), N, "int", False),
        (N > J, B, "int", True),
        (F > 0.5, B, "int", False),
        (get_field("maybe") * 2, N, "int", True),
    ],
)
def test_both_sides_have_one_kind(left: Expression, right: Expression, kind: str, compiled: bool) -> None:
    """What Python compares is brought to one form; what Spark would compute otherwise runs as Python."""
    keys = keys_of(left, right)
    assert [key.kind for key in keys] == [kind, kind]
    assert keys[0].compiled is compiled


@pytest.mark.parametrize(
    ("left", "right", "reason"),
    [
        (T, N, "text keys on the left, int keys on the right"),
        (get_field("amount"), F, "decimal keys on the left, float keys on the right"),
        (get_field("moment"), get_field("day"), "datetime keys on the left, date keys on the right"),
        (get_field("place"), N, "has no order"),
        (function_call(lambda e: 1), function_call(lambda e: 1), "nobody knows the type"),
    ],
)
def test_sides_that_cannot_be_compared_are_refused(left: Expression, right: Expression, reason: str) -> None:
    """At construction: text against numbers would never be equal, and nobody would know why."""
    with pytest.raises(JoinTreeInvalid, match=reason):
        keys_of(left, right)


def test_windows_need_no_order() -> None:
    """A function without an annotation is compared for equality alone, as Python does it."""
    key = window_key(single_stream(window(Many, function_call(lambda element: element["n"]))), CODECS)
    assert key is not None
    assert not key.ordered
    assert key.of({"n": 1}) == key.of({"n": 1.0}) == key.of({"n": True})
    assert key.of({"n": 1}) != key.of({"n": "1"})


ELEMENT = {
    "n": 5,
    "f": 2.5,
    "t": "ab",
    "amount": Decimal("1.50"),
    "day": date(2026, 1, 2),
    "moment": datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
    "uuid": UUID(int=1),
    "maybe": None,
    "big": 2**63,
    "nan": float("nan"),
}


@pytest.mark.parametrize(
    ("expression", "kind", "encoded"),
    [
        (N, "int", 5),
        (N, "float", 5.0),
        (get_field("amount"), "decimal", Decimal("1.5")),
        (get_field("day"), "date", date(2026, 1, 2).toordinal()),
        (get_field("moment"), "datetime", 1767225600000000),
        (get_field("uuid"), "uuid", "00000000-0000-0000-0000-000000000001"),
    ],
)
def test_a_key_has_a_form_that_spark_holds_exactly(expression: Expression, kind: Kind, encoded: object) -> None:
    """Times are microseconds in UTC, dates are days."""
    assert Key(CODEC, expression, kind).of(ELEMENT) == encoded


@pytest.mark.parametrize(
    ("expression", "kind", "reason"),
    [
        (get_field("maybe"), "int", "the key is null"),
        (get_field("maybe") + 1, "int", "the key is null"),
        (get_field("gone"), "int", "KeyError: 'gone'"),
        (N // 0, "int", "ZeroDivisionError"),
        (get_field("big"), "int", "is no int of 64 bits"),
        (T, "int", "'ab' is no int of 64 bits"),
        (N, "text", "5 is no str"),
        (const_expression(2**53 + 1), "float", "too large to be compared with floats"),
        (get_field("nan"), "float", "no number that could be compared"),
        (get_field("amount") * Decimal("1e-18"), "decimal", "18 after it"),
    ],
)
def test_an_element_without_a_key_is_an_error(expression: Expression, kind: Kind, reason: str) -> None:
    """It names the expression; the position is added by the turn."""
    with pytest.raises(ElementInvalid, match=reason) as caught:
        Key(CODEC, expression, kind).of(ELEMENT)
    assert expression.describe() in str(caught.value)


WHOLE = [0, 1, -1, 2, -2, 3, -3, 7, -7, 30, -30, 1000, 2**31, -(2**31), 2**53, 2**53 + 1, 2**62, -(2**63), 2**63 - 1]
REAL = [0.0, -0.0, 0.1, -0.1, 0.5, 1.0, -1.0, 2.5, -2.5, 7.7, -7.7, 1e-300, 1e15, -1e15, 1e16, 1e300, 2.0**53]
SIGNS = ["+", "-", "*", "//", "%"]
EXPRESSIONS = [
    *(f"N {sign} J" for sign in SIGNS),
    *(f"F {sign} G" for sign in SIGNS),
    *(f"N {sign} F" for sign in SIGNS),
    *(f"F {sign} J" for sign in SIGNS),
    *("N // 30", "N % -7", "10 + N", "-N", "N // 2 + J // 3", "(N + J) * 2", "F // 0.1"),
    *("B + N", "B * F", "N < J", "N == J", "T + 'x'", "get_field('maybe')"),
    *("get_field('place')['x'] - N", "get_field('extra')['e']", "get_field('place')['name']"),
]


def elements() -> list[dict[str, Any]]:
    """Every pair of the whole numbers and of the real ones, and some at random."""
    numbers = random.Random(4)
    pairs = [(i, j, f, g) for (i, j), (f, g) in zip(product(WHOLE, WHOLE), product(REAL, REAL), strict=False)]
    pairs += [(i, j, float(j), float(i)) for i, j in product(WHOLE, WHOLE)]
    pairs += [
        (numbers.randint(-99, 99), numbers.randint(-9, 9), numbers.uniform(-9, 9), numbers.uniform(-1, 1))
        for _ in range(300)
    ]
    rest = {"amount": "1", "day": "2026-01-01", "moment": "2026-01-01T00:00:00Z", "uuid": str(UUID(int=1))}
    return [{**numbers_of(*pair), **rest} for pair in pairs]


def numbers_of(n: int, j: int, f: float, g: float) -> dict[str, Any]:
    nested = {"place": {"x": j, "name": "n"}, "extra": {"e": n}}
    return {"n": n, "j": j, "f": f, "g": g, "b": n > 0, "t": f"ä{n}", **nested}


def outcome(key: Key, text: str) -> object:
    """What Python gives; an error stands for Spark's null."""
    try:
        return key.of(CODEC.values_from_text(text))
    except ElementInvalid:
        return None


def grown(numbers: random.Random, depth: int) -> str:
    """A random expression, as a user would write it."""
    if depth == 0 or numbers.random() < 0.2:
        return numbers.choice(["N", "J", "F", "G", "3", "-7", "0.5", "get_field('place')['x']"])
    left, right = grown(numbers, depth - 1), grown(numbers, depth - 1)
    return f"({left} {numbers.choice(SIGNS)} {right})"


def compared(spark: SparkSession, keys: Mapping[str, Key], texts: list[str]) -> list[tuple[object, ...]]:
    """Where Spark and Python differ: the expression, the element, Spark's value and Python's."""
    struct = F_.from_json("value", key_schema(CODEC, list(keys.values())))
    rows = spark.createDataFrame([(text,) for text in texts], "value string").withColumn("e", struct)
    found = rows.select("value", *(key.column(F_.col("e")).alias(text) for text, key in keys.items())).collect()
    assert len(found) == len(texts)
    return [
        (text, row["value"], row[place + 1], expected)
        for row in found
        for place, (text, key) in enumerate(keys.items())
        if row[place + 1] != (expected := outcome(key, row["value"]))
    ]


def test_what_would_grow_too_large_as_a_column_runs_as_python() -> None:
    """Spark has no names for values on the way, so each `//` repeats its operands; a few are fine, many are not."""
    assert key_of("N // 1000 // 60 % 60").compiled
    assert key_of("(N // J) % (J + 1)").compiled
    assert not key_of("((N // J) // (J % N)) // ((N % J) // N)").compiled
    assert not key_of("(F // G) // (G // F)").compiled


def key_of(text: str) -> Key:
    expression = eval(text)  # noqa: S307  # of the lists above
    return Key(CODEC, expression, kind_of(expression, CODEC) or "int")


@pytest.mark.spark
def test_spark_gives_what_python_gives(spark: SparkSession) -> None:
    """For every operator on every kind of number: signs, overflow, division by zero, great and small ones."""
    keys = {text: key_of(text) for text in EXPRESSIONS} | {"N beside floats": Key(CODEC, N, "float")}
    assert [text for text, key in keys.items() if not key.compiled] == []
    assert compared(spark, keys, [json.dumps(element) for element in elements()])[:5] == []


@pytest.mark.spark
def test_spark_gives_what_python_gives_for_any_expression(spark: SparkSession) -> None:
    """Operators within operators, at random, on numbers that stay within 64 bits on the way."""
    numbers = random.Random(11)
    drawn = {text: key_of(text) for text in (grown(numbers, 3) for _ in range(80)) if "N" in text or "F" in text}
    keys = {text: key for text, key in drawn.items() if key.compiled}
    assert len(keys) > 20
    small = [element for element in elements() if max(abs(element[name]) for name in "njfg") < 100]
    assert len(small) > 200
    assert compared(spark, keys, [json.dumps(element) for element in small])[:5] == []
