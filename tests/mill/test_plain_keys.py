"""Keys that are a field as it stands, read many at a time: what they are does not depend on their neighbours."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pytest

from floodmark.mill import get_field
from floodmark.mill.codec import Codec
from floodmark.mill.columns import PlainKeys, is_plain
from floodmark.mill.expressions import KeyValue, Kind
from floodmark.mill.keys import Key


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
CODEC = Codec(Event)


def key(field: str, kind: Kind, codec: Codec = CODEC) -> Key:
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
def test_a_key_is_told_alone_and_among_others(
    field: str, kind: Kind, text: str | None, expected: KeyValue | None
) -> None:
    """Null where no key can be had, which the scan then tells with the element's place; neighbours keep theirs."""
    keys, neighbour = PlainKeys.of(CODEC, [key(field, kind)]), json.dumps({**GOOD, "later": 3})
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
        (Key(CODEC, get_field("n") // 2, "int"), False),
        (Key(Codec(Event, lambda raw: Event(**raw)), get_field("n"), "int"), False),
        (key("n", "int", Codec(Bill)), True),
        (key("f", "float", Codec(Bill)), False),
        (key("amount", "decimal", Codec(Bill)), False),
    ],
)
def test_only_a_field_of_the_type_that_it_is_compared_as_is_plain(asked: Key, expected: bool) -> None:
    """Anything else has rules of its own."""
    assert is_plain(asked) is expected
