"""The columns of a dataclass, by the types of its fields."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Literal
from uuid import UUID

import pytest

from floodmark.errors import ConfigError
from floodmark.spark.schemas import ClassColumns


class Color(Enum):
    """What a field may be one of."""

    RED = "red"


@dataclass(frozen=True)
class Line:
    """A class within another."""

    price: Decimal
    tags: list[str]


@dataclass(frozen=True)
class Order:
    """A field of every kind."""

    id: int
    weight: float | None
    day: date
    at: datetime
    key: UUID
    color: Color
    kind: Literal["new", "old"]
    lines: tuple[Line, ...]
    names: dict[str, str]


@dataclass(frozen=True)
class Blob:
    """Bytes."""

    content: bytes


@dataclass(frozen=True)
class Either:
    """A field of two types."""

    value: int | str


def test_every_field_is_a_column_in_its_order() -> None:
    """Classes within are structs, whole numbers are long, decimals keep 18 places."""
    columns = ClassColumns("declare it").schema(Order)
    assert columns.simpleString() == (
        "struct<id:bigint,weight:double,day:date,at:timestamp,key:string,color:string,kind:string,"
        "lines:array<struct<price:decimal(38,18),tags:array<string>>>,names:map<string,string>>"
    )


def test_bytes_are_a_column_where_no_text_is_in_between() -> None:
    """JSON has no bytes."""
    assert ClassColumns("", has_bytes=True).schema(Blob).simpleString() == "struct<content:binary>"
    with pytest.raises(ConfigError, match=r"Blob\.content is bytes, which no column can hold"):
        ClassColumns("").schema(Blob)


def test_a_field_without_one_type_is_refused_by_name() -> None:
    """With what to do instead."""
    with pytest.raises(ConfigError, match=r"Either\.value is int \| str") as caught:
        ClassColumns("declare it").schema(Either)
    assert caught.value.hint == "declare it"
