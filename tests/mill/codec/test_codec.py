"""Elements: every type there and back, and every fault with the field at fault."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from datetime import date, datetime, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, Optional
from uuid import UUID

import pytest

from floodmark.errors import ConfigError, ElementInvalid
from floodmark.mill import type_alias
from floodmark.mill.codec import Codec


class Colour(Enum):
    """A few words."""

    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    """Nested in others."""

    x: int
    y: float = 0.5


@dataclass
class Node:
    """Holds its own kind."""

    name: str
    children: list[Node] = field(default_factory=list)


@dataclass(frozen=True)
class Everything:
    """One field of each type that is known."""

    whole: int
    real: float
    text: str
    flag: bool
    point: Point
    maybe: Optional[Point]  # noqa: UP045  # both spellings
    points: list[Point]
    by_name: dict[str, Point]
    by_number: dict[int, Colour]
    colour: Colour
    amount: Decimal
    day: date
    moment: datetime
    uuid: UUID
    kind: Literal["a", "b"]
    either: int | str
    pair: tuple[int, str]
    many: tuple[int, ...]
    tags: set[str]
    anything: Any
    node: Node


RAW = {
    "whole": -3,
    "real": 2.5,
    "text": "grün",
    "flag": True,
    "point": {"x": 1, "y": 2.0},
    "maybe": None,
    "points": [{"x": 1, "y": 1.0}, {"x": 2, "y": 2.0}],
    "by_name": {"p": {"x": 3, "y": 3.0}},
    "by_number": {"7": "blue"},
    "colour": "red",
    "amount": "12345678901234567890.123456789",
    "day": "2026-01-31",
    "moment": "2026-01-31T12:00:00.123456+00:00",
    "uuid": "12345678-1234-5678-1234-567812345678",
    "kind": "b",
    "either": "x",
    "pair": [1, "one"],
    "many": [1, 2, 3],
    "tags": ["t"],
    "anything": {"free": [1, None]},
    "node": {"name": "root", "children": [{"name": "leaf", "children": []}]},
}
ELEMENT = Everything(
    whole=-3,
    real=2.5,
    text="grün",
    flag=True,
    point=Point(1, 2.0),
    maybe=None,
    points=[Point(1, 1.0), Point(2, 2.0)],
    by_name={"p": Point(3, 3.0)},
    by_number={7: Colour.BLUE},
    colour=Colour.RED,
    amount=Decimal("12345678901234567890.123456789"),
    day=date(2026, 1, 31),
    moment=datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=timezone.utc),
    uuid=UUID("12345678-1234-5678-1234-567812345678"),
    kind="b",
    either="x",
    pair=(1, "one"),
    many=(1, 2, 3),
    tags={"t"},
    anything={"free": [1, None]},
    node=Node("root", [Node("leaf")]),
)


def text_of(codec: Codec, element: object) -> str:
    """The element as it stands in a stream."""
    return codec.texts([codec.snapshot(element)])[0]


def test_every_type_is_read() -> None:
    """What JSON can say becomes what the fields promise."""
    assert Codec(Everything).decode(RAW) == ELEMENT


def test_every_type_is_written_as_it_was_read() -> None:
    """In the order of the fields, with the separators of Python's own json."""
    written = json.loads(text_of(Codec(Everything), ELEMENT))
    assert written == RAW
    assert list(written) == list(RAW)
    assert text_of(Codec(Point), Point(1, 2.0)) == '{"x": 1, "y": 2.0}'


def test_expressions_see_a_dict_of_typed_values() -> None:
    """Nested elements are dicts there, so that `['x']` and functions of the user find their way."""
    values = Codec(Everything).values(RAW)
    assert (values["point"], values["moment"], values["maybe"]) == ({"x": 1, "y": 2.0}, ELEMENT.moment, None)


@dataclass
class Price:
    """An amount of money."""

    amount: Decimal
    rate: float


def test_a_decimal_keeps_the_digits_of_its_number() -> None:
    """A float on the way would round them."""
    text = '{"amount": 0.1000000000000000055, "rate": 0.5}'
    assert Codec(Price).from_text(text) == Price(Decimal("0.1000000000000000055"), 0.5)


def test_defaults_fill_in_and_extra_keys_are_ignored() -> None:
    """A producer may know more than this class, or less where it has a default."""
    assert Codec(Point).decode({"x": 1, "z": 9}) == Point(1, 0.5)
    assert Codec(Node).decode({"name": "a"}) == Node("a", [])


@pytest.mark.parametrize(
    ("changed", "at", "reason"),
    [
        ({"whole": 1.7}, "whole", "1.7 is no int"),
        ({"whole": 1.0}, "whole", "1.0 is no int"),
        ({"whole": True}, "whole", "True is no int"),
        ({"whole": "1"}, "whole", "'1' is no int"),
        ({"whole": None}, "whole", "None is no int"),
        ({"real": "2.5"}, "real", "'2.5' is no float"),
        ({"text": 5}, "text", "5 is no str"),
        ({"flag": 1}, "flag", "1 is no bool"),
        ({"point": {"y": 1.0}}, "point.x", "it is missing"),
        ({"point": 5}, "point", "5 is no object"),
        ({"points": [{"x": 1}, {"x": "2"}]}, "points[1].x", "'2' is no int"),
        ({"points": {"x": 1}}, "points", "is no list"),
        ({"by_name": {"p": {"x": None}}}, "by_name['p'].x", "None is no int"),
        ({"by_number": {"seven": "red"}}, "by_number['seven']", "'seven' is no int"),
        ({"colour": "green"}, "colour", "'green' is no Colour (one of 'red', 'blue')"),
        ({"amount": "many"}, "amount", "'many' is no Decimal"),
        ({"day": "31.1.2026"}, "day", "is no date"),
        ({"moment": 5}, "moment", "5 is no datetime"),
        ({"uuid": "x"}, "uuid", "'x' is no UUID"),
        ({"kind": "c"}, "kind", "'c' is no one of 'a', 'b'"),
        ({"either": 1.5}, "either", "1.5 is no int or str"),
        ({"pair": [1]}, "pair", "is no list of 2"),
        ({"node": {"name": "a", "children": [{"name": 1}]}}, "node.children[0].name", "1 is no str"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(changed: dict[str, Any], at: str, reason: str) -> None:
    """The error names the field, however deep; nothing is bent to fit."""
    with pytest.raises(ElementInvalid) as caught:
        Codec(Everything).decode({**RAW, **changed})
    assert (caught.value.stream, caught.value.field) == ("Everything", at)
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("text", "reason"), [("{", "it is no JSON"), ("[1]", "it is list, not an object"), ("null", "it is NoneType")]
)
def test_a_text_that_is_no_object_is_refused(text: str, reason: str) -> None:
    """An element is one JSON object."""
    with pytest.raises(ElementInvalid, match=reason):
        Codec(Point).from_text(text)


def test_the_position_is_added_by_whoever_knows_it() -> None:
    """The codec sees one element, the turn knows where it stood."""
    with pytest.raises(ElementInvalid) as caught:
        Codec(type_alias(Point, "points-b")).decode({})
    assert str(caught.value.at("partition 1, offset 5")).startswith(
        "element of points-b at partition 1, offset 5, field x: it is missing."
    )


def test_many_texts_are_parsed_in_one_go() -> None:
    """Twice as fast; a text that is no object must not shift the others."""
    assert Codec(Point).parse_all(['{"x": 1}', '{"x": 2}']) == [{"x": 1}, {"x": 2}]
    with pytest.raises(ValueError, match="one object per text"):
        Codec(Point).parse_all(['{"x": 1}, {"x": 2}', '{"x": 3}'])


def test_the_users_own_functions_replace_ours() -> None:
    """A deserializer may build the class from only some fields, and expressions see what it sees."""
    codec = Codec(Point, lambda raw: Point(raw["position"]["x"]), lambda point: {"p": point.x})
    raw = {"position": {"x": 4}}
    assert codec.decode(raw) == Point(4)
    assert codec.values(raw) == raw
    assert text_of(codec, Point(4)) == '{"p": 4}'
    with pytest.raises(ElementInvalid, match="KeyError: 'position'"):
        codec.decode({})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_what_json_cannot_say_is_not_written(value: object) -> None:
    """NaN would be read by few others."""
    with pytest.raises(ElementInvalid, match="it cannot be written"):
        text_of(Codec(Point), Point(1, value))  # type: ignore[arg-type]  # the fault


@dataclass
class Odd:
    """A field that JSON has no word for."""

    when: complex


def test_a_class_that_cannot_be_read_is_refused_at_once() -> None:
    """Before the first element; a function of the user's own helps."""
    with pytest.raises(ConfigError, match=r"Odd.when: complex cannot be read from JSON.*deserializer"):
        Codec(Odd).check()
    Codec(Odd, lambda raw: Odd(complex(raw["when"]))).check()


POINTS = [Point(-5, 1e22), Point(10**20, -0.0)]
ODD_NAME = Node('"ü" \n\x00 \U0001d11e')


@pytest.mark.parametrize(
    ("element", "raw"), [*((point, asdict(point)) for point in POINTS), (ODD_NAME, asdict(ODD_NAME)), (ELEMENT, RAW)]
)
def test_the_text_is_that_of_pythons_own_json(element: object, raw: dict[str, Any]) -> None:
    """Escapes, digits and separators: byte for byte what watermill writes."""
    assert text_of(Codec(type(element)), element) == json.dumps(raw)


def test_many_elements_have_the_texts_of_each() -> None:
    """Whatever mixture of types stands in a field."""
    codec = Codec(Point)
    points = [Point(1, 2.5), Point(True, None), Point("a\n", 3), Point([1], {"b": 2.0})]  # type: ignore[arg-type]
    assert codec.texts([codec.snapshot(point) for point in points]) == [json.dumps(asdict(point)) for point in points]


@dataclass
class Bill:
    """What goes into a table."""

    amounts: list[Decimal]
    due: datetime


@pytest.mark.parametrize(
    ("bill", "at", "reason"),
    [
        (Bill([Decimal(1), Decimal("1e-19")], ELEMENT.moment), "amounts[1]", "18 after it"),
        (Bill([Decimal(10) ** 20], ELEMENT.moment), "amounts[0]", "more than 20 digits before the point"),
        (Bill([Decimal("NaN")], ELEMENT.moment), "amounts[0]", "NaN has more"),
        (Bill([], datetime(2026, 1, 1)), "due", "has no time zone"),  # noqa: DTZ001  # the fault
    ],
)
def test_what_a_column_would_round_or_shift_is_refused(bill: Bill, at: str, reason: str) -> None:
    """Spark would do it without a word; JSON, which can hold it, takes it."""
    with pytest.raises(ElementInvalid, match=reason) as caught:
        text_of(Codec(Bill).for_columns(), bill)
    assert caught.value.field == at
    assert text_of(Codec(Bill), bill).startswith('{"amounts": [')


def test_columns_need_the_fields_of_the_class() -> None:
    """A serializer gives something else, and some types no column has."""
    with pytest.raises(ConfigError, match="Bill has a serializer"):
        Codec(Bill, serializer=vars).for_columns()
    with pytest.raises(ConfigError, match=r"Everything\.either is .*which no column can hold"):
        Codec(Everything).for_columns()


SCRIPT = """
from __future__ import annotations
import sys
from dataclasses import dataclass
from decimal import Decimal
from pyspark import cloudpickle
from floodmark.mill.codec import Codec

@dataclass
class Line:
    price: Decimal

@dataclass
class Invoice:
    lines: list[Line]

sys.stdout.buffer.write(cloudpickle.dumps(Codec(Invoice)))
"""


def test_a_class_of_a_script_is_understood_in_the_tasks() -> None:
    """It travels as a value, and the names in its annotations are known only where it was written."""
    sent = subprocess.run([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, check=True).stdout
    codec = pickle.loads(sent)  # noqa: S301  # of the script above
    text = '{"lines": [{"price": "1.50"}]}'
    assert text_of(codec, codec.from_text(text)) == text
