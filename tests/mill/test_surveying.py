"""A task's pass over keys finds the same key_ranges, faults and ends however Spark cuts its rows into batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.mill.columns import IS_END
from floodmark.mill.survey import NOTES, KeySurvey

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
    """(partition, offset, is end, text, keys): mostly rising, with ends, faults and changes of the partition among them."""
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
    told: list[dict[str, Any]] = survey.told().to_pylist()
    return told


@settings(max_examples=200, deadline=None)
@given(steps, cuts, st.booleans(), st.sampled_from([1, 2, 5]))
def test_a_batch_that_is_taken_whole_tells_what_its_elements_tell(
    drawn: list[tuple[int, int, str]], sizes: list[int], ordered: bool, size: int
) -> None:
    """Most batches are never looked at element by element: the key_ranges are the same."""
    rows = rows_of(drawn)
    told = [
        row for batch in KeySurvey(TYPES, ordered, size=size).run(batches_of(rows, sizes)) for row in batch.to_pylist()
    ]
    assert told == one_by_one(rows, KeySurvey(TYPES, ordered, size=size))


@settings(max_examples=100, deadline=None)
@given(steps, cuts, st.booleans())
def test_what_is_noted_beside_the_rows_is_what_a_pass_of_its_own_tells(
    drawn: list[tuple[int, int, str]], sizes: list[int], ordered: bool
) -> None:
    """The rows go on as they came, and every finding stands beside one of them."""
    batches = batches_of(rows_of(drawn), sizes)
    noted = list(KeySurvey(TYPES, ordered).noted(batches))
    found = [note for batch in noted for notes in batch.column(NOTES).to_pylist() for note in notes or ()]
    assert found == [row for batch in KeySurvey(TYPES, ordered).run(batches) for row in batch.to_pylist()]
    rows = [row for batch in noted for row in batch.drop_columns([NOTES]).to_pylist()]
    assert rows == [row for batch in batches for row in batch.to_pylist()]


def test_pieces_grow_with_the_stream_so_that_the_driver_holds_few() -> None:
    """A hundred thousand different keys in less than four thousand key_ranges, none lost and none overlapping."""
    rows = [(0, offset, False, None, offset, "") for offset in range(100_000)]
    told = [
        row for batch in KeySurvey(TYPES, ordered=True).run(batches_of(rows, [10_000] * 9)) for row in batch.to_pylist()
    ]
    assert len(told) < 4_000
    assert [row["first"] for row in told] == [0, *(row["next"] for row in told[:-1])]
    assert sum(row["count"] for row in told) == 100_000
