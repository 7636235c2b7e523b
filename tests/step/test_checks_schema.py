"""Which types fit a target without losing anything."""

from __future__ import annotations

import pytest
from pyspark.sql.types import DataType, StructType

from floodmark.step.checks import compare, fits

pytestmark = pytest.mark.usefixtures("spark")  # Spark's parser reads the types


def kind(text: str) -> DataType:
    return DataType.fromDDL(f"x {text}").fields[0].dataType


@pytest.mark.parametrize(
    ("found", "held"),
    [
        ("int", "bigint"),
        ("int", "double"),
        ("float", "double"),
        ("date", "timestamp_ntz"),
        ("decimal(10,2)", "decimal(12,2)"),
        ("decimal(10,2)", "decimal(38,18)"),
        ("bigint", "decimal(38,0)"),
        ("int", "decimal(12,2)"),
    ],
)
def test_a_wider_type_takes_every_value(found: str, held: str) -> None:
    """Nothing has to be asked."""
    assert fits(kind(found), kind(held))


@pytest.mark.parametrize(
    ("found", "held"),
    [
        ("bigint", "int"),
        ("bigint", "double"),
        ("double", "float"),
        ("string", "bigint"),
        ("bigint", "string"),
        ("decimal(10,2)", "decimal(10,1)"),
        ("decimal(12,2)", "decimal(10,2)"),
        ("bigint", "decimal(18,0)"),
        ("double", "decimal(38,18)"),
        ("timestamp", "date"),
    ],
)
def test_what_could_lose_something_does_not_fit(found: str, held: str) -> None:
    """A long is not a double: above 2^53 it would be rounded."""
    assert not fits(kind(found), kind(held))


def test_names_are_compared_without_case_and_own_columns_not_at_all() -> None:
    """As Spark and Delta do; `_fm_*` never reaches a table."""
    rows, target = StructType.fromDDL("ID bigint, _fm_position int, extra string"), StructType.fromDDL("id bigint")
    assert compare(rows, target).differences() == ("new column extra string",)


def test_columns_that_the_rows_lack_are_told_and_are_no_reason_to_stop() -> None:
    """A target may have columns of its own; a plan and the log name them."""
    rows, target = StructType.fromDDL("id bigint"), StructType.fromDDL("ID bigint, Name string")
    drift = compare(rows, target)
    assert (drift.differences(), drift.absent) == ((), ("Name",))


def test_a_field_that_is_new_inside_a_struct_is_a_new_column() -> None:
    """Named as a whole; fields are known by name, in whatever order they stand."""
    rows = StructType.fromDDL("s struct<b: string, a: int, c: struct<d: int>>, l array<struct<x: int, y: int>>")
    target = StructType.fromDDL("s struct<a: bigint, b: string>, l array<struct<x: int>>")
    assert compare(rows, target).differences() == ("new column s.c struct<d:int>", "new column l.element.y int")


def test_a_field_whose_type_the_target_cannot_hold_does_not_fit() -> None:
    """Wherever it is nested."""
    rows, target = (
        StructType.fromDDL("m map<string, struct<a: string>>"),
        StructType.fromDDL("m map<string, struct<a: int>>"),
    )
    assert compare(rows, target).unfit == (
        "column m is map<string,struct<a:string>>, the target has map<string,struct<a:int>>",
    )
