"""What a look has read is at hand for the turn that follows, and for nobody after it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.errors import ElementInvalid
from floodmark.mill import JoinWith, function_call, get_field, inputs, join_streams
from floodmark.mill.brokers.files import JsonArray
from floodmark.mill.inputs import CachedMessages, MessageCache
from tests.mill.cases import BY_K, Case, Joined, L, R, join_names, keyed
from tests.mill.mills import Topics, mill_on_files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from floodmark.hwm import Span
    from floodmark.mill.inputs import StreamInput
    from floodmark.sources.contract import Reading
    from floodmark.testing.servers import Broker

JOIN = Case("join", {L: keyed("l", 1, 2, 3), R: keyed("r", 1, 2, 3)}, join_names, Joined, [], BY_K)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The streams that are read, one by one, while even a single message is worth caching."""
    found: list[str] = []
    read = JsonArray.read

    def noted(self: JsonArray, spark: SparkSession, span: Span) -> Reading:
        found.append(self.name)
        return read(self, spark, span)

    monkeypatch.setattr(inputs, "WORTH_CACHING", 1)
    monkeypatch.setattr(JsonArray, "read", noted)
    return found


def test_a_stream_is_read_once_and_the_room_is_given_back(
    spark: SparkSession, tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the look and for the turn; without the cache each stream would be read twice."""
    cached: list[DataFrame] = []
    add = MessageCache.add

    def noted(self: MessageCache, stream: StreamInput, span: Span, rows: DataFrame) -> DataFrame:
        cached.append(add(self, stream, span, rows))
        assert cached[-1].is_cached
        return cached[-1]

    monkeypatch.setattr(MessageCache, "add", noted)
    mill_on_files(JOIN, tmp_path, spark).run()
    rows = json.loads((tmp_path / "Joined.json").read_text())
    assert ([row["k"] for row in rows], sorted(reads)) == ([1, 2, 3], ["L", "R"])
    assert [rows.is_cached for rows in cached] == [False, False]


def test_what_the_horizon_held_back_is_given_by_the_next_turn(
    spark: SparkSession, kafka: Broker, tmp_path: Path, reads: list[str]
) -> None:
    """The first turn takes a part of what its look has read; partition 0 has not risen above 5, so 5 is not final."""
    topics = Topics(kafka, tmp_path, {L: 2}).make(L, R, Joined)
    topics.put(L, *keyed("a", 1, 3, 5), partition=0)
    topics.put(L, *keyed("b", 2, 4, 6), partition=1)
    topics.put(R, *keyed("r", 1, 2, 3, 4))
    mill = topics.mill(join_names, spark, **BY_K)
    mill.turn()
    first = [row["k"] for row in topics.rows_of(Joined)]
    topics.put(R, *keyed("s", 5, 7))
    mill.turn()
    assert (first, [row["k"] for row in topics.rows_of(Joined)]) == ([1, 2, 3], [1, 2, 3, 4])


@pytest.mark.parametrize(
    ("offsets", "is_there"),
    [
        ({0: (2, 5)}, True),
        ({0: (3, 4), 1: (0, 9)}, True),
        ({0: (1, 5)}, False),
        ({0: (2, 6)}, False),
        ({2: (0, 1)}, False),
    ],
)
def test_only_what_was_read_is_taken_from_the_cache(offsets: dict[int, tuple[int, int]], is_there: bool) -> None:
    """An intent of an earlier process may reach further than the last look."""
    nothing: DataFrame = None  # type: ignore[assignment]  # nobody looks at the rows
    assert CachedMessages({0: (2, 5), 1: (0, 9)}, nothing).covers(offsets) is is_there


def test_an_element_whose_key_is_gone_when_it_is_read_again_is_an_error_and_not_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A join takes no element without a key, so a function that fails in the turn alone would drop one silently."""
    calls = tmp_path / "calls"
    calls.mkdir()

    def key_once(element: Mapping[str, Any]) -> int:
        (calls / str(element["k"])).touch(exist_ok=False)
        return int(element["k"])

    tree = join_streams(L, JoinWith(R, get_field("k"), function_call(key_once)))
    case = replace(JOIN, declared={"join_tree": tree})
    with pytest.raises(ElementInvalid, match="the key that it had is gone"):
        mill_on_files(case, tmp_path / "mill", spark).run()
