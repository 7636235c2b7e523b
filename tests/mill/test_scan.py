"""A task's pass over keys finds the same ranges, faults and ends however Spark cuts its rows into batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.mill.horizon import KeyRange
from floodmark.mill.inputs import IS_END
from floodmark.mill.scan import NOTES, KeySurvey, ScanResult, ends_in, notes_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        (IS_END, pa.bool_()),
        ("value", pa.string()),
        ("k0", pa.int64()),
        ("k1", pa.string()),
    ]
)
TYPES = ("bigint", "string")

steps = st.lists(
    st.tuples(
        st.sampled_from([1, 1, 1, 1, 1, 1, 1, 2]),  # how far the offset goes on
        st.sampled_from([0, 0, 0, 0, 1, 1, 2, -1]),  # how far the key does
        st.sampled_from([*("element",) * 20, "end", "no key", "next partition"]),
    ),
    max_size=60,
)
cuts = st.lists(st.integers(1, 25), max_size=8)


def rows_of(drawn: list[tuple[int, int, str]]) -> list[tuple[Any, ...]]:
    """(partition, offset, is end, text, keys): mostly rising, with ends, faults and other partitions among them."""
    rows, partition, offset, key = [], 0, 0, 10
    for far, up, what in drawn:
        partition, offset, key = partition + (what == "next partition"), offset + far, key + up
        keys = (None, None) if what in ("end", "no key") else (key, f"{key // 2:03}")
        rows.append((partition, offset, what == "end", "{}" if what == "no key" else None, *keys))
    return rows


def batches_of(rows: list[tuple[Any, ...]], sizes: list[int]) -> list[pa.RecordBatch]:
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
    parts = [rows[begin:end] for begin, end in zip([0, *ends], [*ends, len(rows)], strict=True)]
    named = [[dict(zip(SCHEMA.names, row, strict=True)) for row in part] for part in parts]
    return [pa.RecordBatch.from_pylist(part, schema=SCHEMA) for part in named]


def one_by_one(rows: list[tuple[Any, ...]], survey: KeySurvey) -> list[dict[str, Any]]:
    for partition, offset, is_end, text, *keys in rows:
        survey.take(partition, offset, is_end, text, tuple(keys))
    survey.close()
    notes: list[dict[str, Any]] = pa.array([survey.notes], notes_type(TYPES)).to_pylist()[0]
    return notes


def notes_in(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [note for batch in batches for notes in batch.column(NOTES).to_pylist() for note in notes or ()]


@settings(max_examples=200)
@given(steps, cuts, st.booleans(), st.sampled_from([1, 2, 5]))
def test_in_a_batch_that_is_taken_whole_is_found_what_its_elements_show(
    drawn: list[tuple[int, int, str]], sizes: list[int], ordered: bool, size: int
) -> None:
    """Most batches are never looked at element by element: the ranges are the same."""
    rows = rows_of(drawn)
    batches = KeySurvey(TYPES, ordered, size=size).with_notes(batches_of(rows, sizes))
    assert notes_in(batches) == one_by_one(rows, KeySurvey(TYPES, ordered, size=size))


@settings(max_examples=100)
@given(steps, cuts, st.booleans())
def test_the_rows_go_on_as_they_came(drawn: list[tuple[int, int, str]], sizes: list[int], ordered: bool) -> None:
    """What was found in them stands beside them, in a column of its own."""
    batches = batches_of(rows_of(drawn), sizes)
    noted = KeySurvey(TYPES, ordered).with_notes(batches)
    rows = [row for batch in noted for row in batch.drop_columns([NOTES]).to_pylist()]
    assert rows == [row for batch in batches for row in batch.to_pylist()]


def test_ranges_grow_with_the_stream_so_that_the_driver_holds_few() -> None:
    """A hundred thousand different keys in less than four thousand ranges, none lost and none overlapping."""
    rows = [(0, offset, False, None, offset, "") for offset in range(100_000)]
    notes = notes_in(KeySurvey(TYPES, ordered=True).with_notes(batches_of(rows, [10_000] * 9)))
    assert len(notes) < 4_000
    assert [note["first"] for note in notes] == [0, *(note["next"] for note in notes[:-1])]
    assert sum(note["count"] for note in notes) == 100_000


@pytest.mark.spark
def test_a_stream_without_keys_is_one_range_before_its_first_end(spark: SparkSession) -> None:
    """Each partition by itself: one goes on, one ends, one goes on behind its end, one begins with it; with holes."""
    rows = [
        *[(0, 0, False), (0, 2, False)],
        *[(1, 5, False), (1, 7, True)],
        *[(2, 0, False), (2, 1, False), (2, 3, True), (2, 4, False), (2, 5, True)],
        *[(3, 9, True), (3, 10, False)],
        *[(4, 1, True)],
    ]
    messages = spark.createDataFrame(rows, f"partition int, offset bigint, {IS_END} boolean")
    assert ends_in(messages) == {
        0: ScanResult((KeyRange(0, 3, 2, (), ()),)),
        1: ScanResult((KeyRange(5, 6, 1, (), ()),), end=7),
        2: ScanResult((KeyRange(0, 2, 2, (), ()),), end=3, has_rest=True),
        3: ScanResult((), end=9, has_rest=True),
        4: ScanResult((), end=1),
    }
