"""Mills from JSON files to JSON files: the specification's table, ends, windows, errors with their places."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.errors import ElementFailed, ElementInvalid, KeyDecreased, SourceChanged
from floodmark.mill import EndOfStream, JoinWith, function_call, get_field, join_streams, window
from tests.mill.cases import (
    BY_K,
    CASES,
    Case,
    Joined,
    L,
    Location,
    R,
    S,
    identity,
    join_names,
    joined,
    keyed,
    locations,
)
from tests.mill.mills import mill_on_files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ONE = Case("one", {L: keyed("l", 1, 2, 3)}, identity, Joined, [])
JOIN = Case("join", {L: keyed("l", 1, 2, 3), R: keyed("r", 1, 2, 3)}, join_names, Joined, [], BY_K)
K = get_field("k")


def output(folder: Path, name: str = "Joined") -> str:
    return (folder / f"{name}.json").read_text()


def output_of(case: Case, folder: Path, spark: SparkSession) -> list[object]:
    mill_on_files(case, folder, spark).run()
    found: list[object] = json.loads(output(folder, case.output.__name__))
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_table_of_the_specification_holds_on_files(spark: SparkSession, tmp_path: Path, case: Case) -> None:
    """Literal streams in, literal rows out, in master order."""
    assert output_of(case, tmp_path / "case", spark) == case.expected


def test_a_file_is_written_with_the_fields_in_the_order_of_the_class(spark: SparkSession, tmp_path: Path) -> None:
    """One array on one line, as json.dumps writes it."""
    mill_on_files(ONE, tmp_path / "case", spark).run()
    rows = '{"k": 1, "names": ["l0"]}, {"k": 2, "names": ["l1"]}, {"k": 3, "names": ["l2"]}'
    assert output(tmp_path / "case") == f"[{rows}]"


def test_a_rerun_reads_nothing_and_leaves_the_file_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    """The marks are at the end of every file."""
    mill = mill_on_files(ONE, tmp_path / "case", spark)
    mill.run()
    before = output(tmp_path / "case")
    assert (mill.turn().status, mill.run().is_over, output(tmp_path / "case")) == ("nothing_new", True, before)


def until_two(left: L) -> Iterator[Joined | EndOfStream]:
    yield Joined(left.k, [left.name])
    if left.k == 2:
        yield EndOfStream()


def test_an_end_that_is_yielded_stops_the_output_and_the_mark_behind_its_element(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What follows it in the stream is read by the next run."""
    mill = mill_on_files(replace(ONE, process=until_two), tmp_path / "case", spark)
    mill.run()
    first = json.loads(output(tmp_path / "case"))
    mill.run()
    assert (first, json.loads(output(tmp_path / "case"))) == (
        joined((1, ["l0"]), (2, ["l1"])),
        joined((1, ["l0"]), (2, ["l1"]), (3, ["l2"])),
    )


def chain_names(left: L, rights: Mapping[L, list[R]], others: Mapping[R, list[S]]) -> Joined:
    return Joined(left.k, [f"{right.name}{[other.name for other in others[right]]}" for right in rights[left]])


def test_a_chain_gives_the_partners_of_partners(spark: SparkSession, tmp_path: Path) -> None:
    """A partner without one of its own is left out, and a master whose partners all are is skipped."""
    tree = join_streams(L, JoinWith(join_streams(R, JoinWith(S, K, K // 10)), K, K // 10))
    streams: dict[type, list[dict[str, Any]]] = {
        L: keyed("l", 1, 2),
        R: keyed("r", 10, 11, 20),
        S: keyed("s", 100, 110, 111),
    }
    case = Case("chain", streams, chain_names, Joined, [], {"join_tree": tree})
    assert output_of(case, tmp_path / "case", spark) == joined((1, ["r0['s0']", "r1['s1', 's2']"]))


def test_a_left_join_gives_an_empty_list(spark: SparkSession, tmp_path: Path) -> None:
    """The master is there, its partner is not."""
    tree = join_streams(L, JoinWith(R, K, K, how="left"))
    case = Case("left", {L: keyed("l", 1, 2), R: keyed("r", 2)}, join_names, Joined, [], {"join_tree": tree})
    assert output_of(case, tmp_path / "case", spark) == joined((1, []), (2, ["r0"]))


def window_names(lefts: list[L], rights: Mapping[L, list[R]]) -> Joined:
    return Joined(len(lefts), [right.name for left in lefts for right in rights[left]])


def test_a_window_of_joined_masters_holds_the_partners_of_each(spark: SparkSession, tmp_path: Path) -> None:
    """Also of equal ones: they keep their own."""
    tree = join_streams(window(L, K // 3), JoinWith(R, K, K))
    streams: dict[type, list[dict[str, Any]]] = {L: keyed("l", 0, 1, 1, 3, 7), R: keyed("r", 0, 1, 3, 4)}
    case = Case("windows", streams, window_names, Joined, [], {"join_tree": tree})
    assert output_of(case, tmp_path / "case", spark) == joined((3, ["r0", "r1", "r1"]), (1, ["r2"]))


def half(element: dict[str, int]) -> int:
    return element["k"] // 2


def test_a_key_may_be_what_a_function_says(spark: SparkSession, tmp_path: Path) -> None:
    """It runs as Python beside the data, and is compared with a key that Spark computes."""
    tree = join_streams(L, JoinWith(R, function_call(half), K))
    case = Case("call", {L: keyed("l", 1, 2, 3, 5), R: keyed("r", 1, 2)}, join_names, Joined, [], {"join_tree": tree})
    assert output_of(case, tmp_path / "case", spark) == joined((2, ["r0"]), (3, ["r0"]), (5, ["r1"]))


def count_of(seen: list[Location]) -> Joined:
    return Joined(len(seen), [])


def tens(element: dict[str, int] | None) -> str:
    return "idle" if element is None else str(element["time"] // 30)


def test_windows_may_be_what_a_function_says(spark: SparkSession, tmp_path: Path) -> None:
    """Asked once for each element, in the driver; the answer needs no order."""
    declared = {"stream_cls": window(Location, function_call(tens))}
    case = Case("timed", {Location: locations(0, 10, 30, 40, 0)}, count_of, Joined, [], declared)
    assert output_of(case, tmp_path / "case", spark) == joined((2, []), (2, []), (1, []))


def by_tens(element: dict[str, int]) -> int:
    return element["k"] // 10


def test_windows_that_a_function_says_go_with_a_join(spark: SparkSession, tmp_path: Path) -> None:
    """The windows are those of the master; a master without a partner is not in them."""
    tree = join_streams(window(L, function_call(by_tens)), JoinWith(R, K, K))
    streams: dict[type, list[dict[str, Any]]] = {L: keyed("l", 1, 2, 3, 11, 30), R: keyed("r", 1, 3, 11, 11, 40)}
    case = Case("function", streams, window_names, Joined, [], {"join_tree": tree})
    assert output_of(case, tmp_path / "case", spark) == joined((2, ["r0", "r1"]), (1, ["r2", "r3"]))


def test_a_key_that_decreases_is_reported_with_its_place(spark: SparkSession, tmp_path: Path) -> None:
    """Going on would lose what belongs to it without a word."""
    case = replace(JOIN, streams={L: keyed("l", 1, 2), R: keyed("r", 1, 3, 2)})
    with pytest.raises(KeyDecreased) as caught:
        mill_on_files(case, tmp_path / "case", spark).run()
    assert (caught.value.stream, caught.value.position, caught.value.key) == ("R", "partition 0, offset 2", "2")


def test_an_element_without_its_key_is_reported_with_its_place(spark: SparkSession, tmp_path: Path) -> None:
    """Null, missing and of a wrong type are one: there is no key."""
    case = replace(JOIN, streams={L: [*keyed("l", 1), {"name": "l1"}], R: keyed("r", 1)})
    with pytest.raises(ElementInvalid) as caught:
        mill_on_files(case, tmp_path / "case", spark).run()
    assert (caught.value.stream, caught.value.position, caught.value.field) == ("L", "partition 0, offset 1", "k")


def test_an_element_that_does_not_fit_its_class_is_reported_with_its_place(spark: SparkSession, tmp_path: Path) -> None:
    """A number with a fraction is no int."""
    case = replace(ONE, streams={L: [*keyed("l", 1), {"k": 1.7, "name": "l1"}]})
    with pytest.raises(ElementInvalid) as caught:
        mill_on_files(case, tmp_path / "case", spark).run()
    assert (caught.value.position, caught.value.field) == ("partition 0, offset 1", "k")


def fails_at_two(left: L) -> Joined:
    if left.k == 2:
        raise ValueError("two is too much")
    return Joined(left.k, [])


def test_a_function_that_raises_is_reported_with_its_element_and_nothing_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The turn is tried anew by the next run."""
    mill = mill_on_files(replace(ONE, process=fails_at_two), tmp_path / "case", spark)
    with pytest.raises(ElementFailed) as caught:
        mill.run()
    assert (caught.value.position, caught.value.reason) == ("partition 0, offset 1", "ValueError: two is too much")
    assert caught.value.element == "L(k=2, name='l1')"
    assert not (tmp_path / "case" / "Joined.json").exists()


def test_a_changed_key_needs_a_decision(spark: SparkSession, tmp_path: Path) -> None:
    """What was joined by the old key says nothing about the new one: exit 5."""
    mill_on_files(JOIN, tmp_path / "case", spark).run()
    other = Case("other", {}, join_names, Joined, [], {"join_tree": join_streams(L, JoinWith(R, K, K // 2))})
    with pytest.raises(SourceChanged) as caught:
        mill_on_files(other, tmp_path / "case", spark, streams=(L, R)).turn()
    assert caught.value.exit_code == 5
