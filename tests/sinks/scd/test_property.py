"""The property that decides: whatever the order and the batches in which events come, the table is the same."""

from __future__ import annotations

import random
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark.sinks import Scd1, Scd2
from tests.sinks.batches import SMALL, UNKNOWN, batch, frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.sinks.contract import BatchSize

SEEDS, KEYS, MOMENTS, BATCHES = 50, 4, 24, 8
SCHEMA = "seed int, k int, at int, v string, note int, gone boolean"
Event = tuple[int, int, int, str, int, bool]


def stream(seed: int) -> list[Event]:
    """Events of one seed in order: a fifth deletes, values that often repeat, and 15 of 100 events twice."""
    luck = random.Random(seed)
    moments = [(key, at) for key in range(KEYS) for at in luck.sample(range(100), MOMENTS)]
    once = [(seed, key, at, luck.choice("ab"), luck.randrange(3), luck.random() < 0.2) for key, at in moments]
    return sorted(once + luck.sample(once, len(once) * 15 // 100))


def shuffled(seed: int) -> list[tuple[int, Event]]:
    """The same events, each in one of eight batches: most in order, a third anywhere."""
    luck, events = random.Random(seed + 1000), stream(seed)
    in_order = [(place * BATCHES // len(events), event) for place, event in enumerate(events)]
    return [(luck.randrange(BATCHES) if luck.random() < 0.33 else turn, event) for turn, event in in_order]


def expected(seed: int) -> list[tuple[object, ...]]:
    """The versions by the plainest reading of the rules."""
    return [row for _, of_key in groupby(stream(seed), lambda event: event[:2]) for row in versions(list(of_key))]


def versions(events: list[Event]) -> list[tuple[object, ...]]:
    """One key's versions, with the last note of each."""
    rows: list[list[object]] = []
    state: str | None = None
    for seed, key, at, value, note, gone in events:
        after = None if gone else value
        if after != state and state is not None:
            rows[-1][4] = at
        if after is not None and after != state:
            rows.append([seed, key, after, at, None, note])
        if after is not None:
            rows[-1][5] = note
        state = after
    return [tuple(row) for row in rows]


def table(spark: SparkSession, folder: Path) -> list[tuple[object, ...]]:
    found = spark.read.format("delta").load(str(folder))
    return sorted(tuple(row) for row in found.select("seed", "k", "v", "valid_from", "valid_to", "note").collect())


def sink(kind: type[Scd1], folder: Path) -> Scd1:
    return kind(str(folder), key=("seed", "k"), sequence=("at",), track=("v",), delete_when="gone")


@pytest.fixture(scope="module")
def batches(spark: SparkSession) -> list[DataFrame]:
    """All seeds at once, since the seed is part of the key."""
    events = [each for seed in range(SEEDS) for each in shuffled(seed)]
    return [frame(spark, SCHEMA, *(event for turn, event in events if turn == number)) for number in range(BATCHES)]


@pytest.mark.crash
@pytest.mark.spark
@pytest.mark.parametrize("size", [UNKNOWN, SMALL], ids=["spark", "arrow"])
def test_eight_shuffled_batches_give_the_versions_of_one_in_order(
    spark: SparkSession, batches: list[DataFrame], tmp_path: Path, size: BatchSize
) -> None:
    """50 seeds, late events, a fifth deletes, 15 of 100 events twice: row by row what the rules say."""
    whole = frame(spark, SCHEMA, *(event for seed in range(SEEDS) for event in stream(seed)))
    sink(Scd2, tmp_path / "once").write(whole, batch(1))
    kept = sink(Scd2, tmp_path / "often")
    assert [kept.write(rows, batch(number, size=size)) for number, rows in enumerate(batches, 1)] == [
        rows.count() for rows in batches
    ]
    by_the_rules = sorted(row for seed in range(SEEDS) for row in expected(seed))
    assert table(spark, tmp_path / "once") == by_the_rules
    assert table(spark, tmp_path / "often") == by_the_rules


@pytest.mark.crash
@pytest.mark.spark
def test_the_latest_rows_do_not_depend_on_the_order_either(
    spark: SparkSession, batches: list[DataFrame], tmp_path: Path
) -> None:
    """What was deleted stays deleted, whatever comes late."""
    kept = sink(Scd1, tmp_path)
    kept.write(batches[7].unionByName(batches[3]).unionByName(batches[5]), batch(1))
    rest = batches[0]
    kept.write(
        rest.unionByName(batches[1]).unionByName(batches[2]).unionByName(batches[4]).unionByName(batches[6]), batch(2)
    )
    open_versions = [row for seed in range(SEEDS) for row in expected(seed) if row[4] is None]
    found = spark.read.format("delta").load(str(tmp_path)).select("seed", "k", "v", "note")
    assert sorted(map(tuple, found.collect())) == sorted((row[0], row[1], row[2], row[5]) for row in open_versions)
