"""Keys: one form for both sides of an edge, exact in Spark, and the same however many elements are read at once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from floodmark.errors import ElementInvalid, JoinTreeInvalid
from floodmark.mill import JoinWith, const_expression, function_call, get_field, join_streams, window
from floodmark.mill.codec import Codec
from floodmark.mill.expressions import Expression, KeyValue, Kind
from floodmark.mill.join_tree import single_stream
from floodmark.mill.keys import Key, KeyReader, edge_keys, window_key


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
    ("left", "right", "kind"),
    [
        (N, J + 1, "int"),
        (N, F, "float"),
        (N, B, "int"),
        (T, get_field("place")["name"] + "x", "text"),
        (get_field("place")["x"] // 2, N, "int"),
        (get_field("extra")["e"], N, "int"),
        (get_field("amount"), N, "decimal"),
        (get_field("day") + timedelta(days=1), get_field("day"), "date"),
        (get_field("moment"), get_field("moment"), "datetime"),
        (get_field("uuid"), get_field("uuid"), "uuid"),
        (function_call(length), N, "int"),
        (function_call(lambda element: element["n"]), N, "int"),
        (N > J, B, "int"),
        (F > 0.5, B, "int"),
        (get_field("maybe") * 2, N, "int"),
    ],
)
def test_both_sides_have_one_kind(left: Expression, right: Expression, kind: str) -> None:
    """What Python compares is brought to one form."""
    keys = keys_of(left, right)
    assert [key.kind for key in keys] == [kind, kind]


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
    assert not key.is_ordered
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


@dataclass
class Event:
    """A field of each plain kind, one with a default, and one that no key is about."""

    n: int
    f: float
    t: str
    other: int
    later: int = 7


@dataclass
class Bill:
    """JSON's numbers are read as Decimal here."""

    n: int
    f: float
    amount: Decimal


GOOD = {"n": 1, "f": 1.5, "t": "a", "other": 0}
EVENTS = Codec(Event)


def key(field: str, kind: Kind, codec: Codec = EVENTS) -> Key:
    return Key(codec, get_field(field), kind)


@pytest.mark.parametrize(
    ("field", "kind", "text", "expected"),
    [
        ("n", "int", json.dumps({**GOOD, "n": -(2**63)}), -(2**63)),
        ("n", "int", json.dumps({**GOOD, "n": 2**63}), None),
        ("n", "int", json.dumps({**GOOD, "n": 1.0}), None),
        ("n", "int", json.dumps({**GOOD, "n": True}), None),
        ("n", "int", json.dumps({**GOOD, "n": None}), None),
        ("n", "int", json.dumps({**GOOD, "other": "no number"}), 1),
        ("n", "int", '{"n": 1, "n": 2}', 2),
        ("n", "int", "{}", None),
        ("n", "int", "[]", None),
        ("n", "int", "{}, {}", None),
        ("n", "int", None, None),
        ("later", "int", "{}", 7),
        ("f", "float", json.dumps({**GOOD, "f": 2}), 2.0),
        ("f", "float", json.dumps({**GOOD, "f": float("nan")}), None),
        ("t", "text", json.dumps({**GOOD, "t": "\U0001d11e"}), "\U0001d11e"),
        ("t", "text", json.dumps({**GOOD, "t": 1}), None),
    ],
)
def test_a_key_is_read_alone_and_among_others(
    field: str, kind: Kind, text: str | None, expected: KeyValue | None
) -> None:
    """Null where no key can be had, which the scan then reports with the element's place; neighbours keep theirs."""
    keys, neighbour = KeyReader(EVENTS, (key(field, kind),)), json.dumps({**GOOD, "later": 3})
    [alone], [among] = (keys.columns(pa.array(texts, pa.string())) for texts in ([text], [neighbour, text, neighbour]))
    own = {"later": 3, **GOOD}[field]
    assert (alone.to_pylist(), among.to_pylist()) == ([expected], [own, expected, own])


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (key("n", "int"), True),
        (key("f", "float"), True),
        (key("t", "text"), True),
        (key("n", "float"), False),
        (Key(EVENTS, get_field("n") // 2, "int"), False),
        (Key(Codec(Event, lambda raw: Event(**raw)), get_field("n"), "int"), False),
        (key("n", "int", Codec(Bill)), True),
        (key("f", "float", Codec(Bill)), False),
        (key("amount", "decimal", Codec(Bill)), False),
    ],
)
def test_only_a_field_of_the_type_that_it_is_compared_as_is_plain(asked: Key, expected: bool) -> None:
    """Anything else has rules of its own."""
    assert (asked.plain_field is not None) is expected


def half(element: dict[str, Any]) -> float:
    return float(element["n"]) / 2


@pytest.mark.parametrize(
    ("expression", "kind", "text", "expected"),
    [
        (N // 2 + 1, "int", GOOD, 1),
        (N // 2 + 1, "int", {**GOOD, "other": "no number"}, 1),
        (N // 2 + 1, "int", {**GOOD, "n": "1"}, None),
        (N // get_field("other"), "int", GOOD, None),
        (N * 2**62, "int", {**GOOD, "n": 3}, None),
        (get_field("later") + N, "int", GOOD, 8),
        (N, "float", {**GOOD, "n": 2**53 + 1}, None),
        (T + "x", "text", GOOD, "ax"),
        (function_call(half), "float", {**GOOD, "n": 3}, 1.5),
        (function_call(half), "float", {**GOOD, "other": "no number"}, None),
        (function_call(half), "int", {**GOOD, "n": 3}, None),
    ],
)
def test_a_key_that_python_evaluates_is_the_same_alone_and_among_others(
    expression: Expression, kind: Kind, text: dict[str, Any], expected: KeyValue | None
) -> None:
    """Only the fields that an expression reads have to be right; a function of the user's sees the whole element."""
    keys, neighbour = KeyReader(EVENTS, (Key(EVENTS, expression, kind), key("n", "int"))), {**GOOD, "n": 2, "other": 1}
    texts = [json.dumps(each) for each in (neighbour, text, neighbour)]
    alone, among = (keys.columns(pa.array(own, pa.string())) for own in (texts[1:2], texts))
    assert alone[0].to_pylist() == among[0].to_pylist()[1:2] == [expected]
