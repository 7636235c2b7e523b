"""Streams sorted by their one key are joined as they pass, however Spark cuts them into batches."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.mill import JoinWith, function_call, get_field, join_streams, window
from floodmark.mill.declaration import declare
from floodmark.mill.join_tree import JoinTree, Stream
from floodmark.mill.process import ProcessTask
from tests.mill.cases import Joined, L, R, S, join_names, join_two
from tests.mill.nested_loop import Match, calls

K = get_field("k")
SCHEMA = pa.schema(
    [
        ("node", pa.int32()),
        ("k0", pa.int64()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.string()),
    ]
)


def chain_names(left: L, rights: Mapping[L, list[R]], others: Mapping[R, list[S]]) -> Joined:
    return Joined(left.k, [f"{right.name}{[other.name for other in others[right]]}" for right in rights[left]])


JOIN = join_streams(L, JoinWith(R, K, K))
LEFT = join_streams(L, JoinWith(R, K, K, how="left"))
STAR = join_streams(L, JoinWith(R, K, K), JoinWith(S, K, K, how="left"))
CHAIN = join_streams(L, JoinWith(join_streams(R, JoinWith(S, K, K)), K, K))
CHAIN_LEFT = join_streams(L, JoinWith(join_streams(R, JoinWith(S, K, K, how="left")), K, K, how="left"))
SHAPES = [(join_names, JOIN), (join_names, LEFT), (join_two, STAR), (chain_names, CHAIN), (chain_names, CHAIN_LEFT)]

partitions = st.lists(st.lists(st.integers(0, 6), max_size=6).map(sorted), min_size=1, max_size=2)
cuts = st.lists(st.integers(0, 8), max_size=6)


def elements(cls: Any, keys: list[list[int]]) -> list[list[Any]]:  # noqa: ANN401 (a class of elements)
    return [
        [cls(key, f"{cls.__name__}{partition}.{n}") for n, key in enumerate(own)] for partition, own in enumerate(keys)
    ]


def batches_of(tree: JoinTree, streams: Mapping[Stream, list[list[Any]]], sizes: Sequence[int]) -> list[pa.RecordBatch]:
    """All elements as Spark sorts them, in batches of these sizes."""
    rows = sorted(
        (each.k, node, partition, offset, json.dumps(vars(each)))
        for node, stream in enumerate(tree.nodes)
        for partition, own in enumerate(streams[stream])
        for offset, each in enumerate(own)
    )
    named = [
        {"k0": key, "node": node, "partition": partition, "offset": offset, "value": text}
        for key, node, partition, offset, text in rows
    ]
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
    parts = [named[begin:end] for begin, end in zip([0, *ends], [*ends, len(named)], strict=True)]
    return [pa.RecordBatch.from_pylist(part, schema=SCHEMA) for part in parts]


def names_of(match: Match) -> list[str]:
    """What the functions above make of a master's partners."""
    return [
        f"{right.element.name}{[other.element.name for other in right.partners[0]]}"
        if right.partners
        else right.element.name
        for rights in match.partners
        for right in rights
    ]


@pytest.mark.parametrize(("process", "tree"), SHAPES, ids=["join", "left", "star", "chain", "chain left"])
@settings(max_examples=40)
@given(partitions, partitions, partitions, cuts)
def test_a_pass_in_the_order_of_the_key_gives_what_a_nested_loop_gives(
    process: Any,  # noqa: ANN401 (whatever function fits the tree)
    tree: JoinTree,
    left: list[list[int]],
    right: list[list[int]],
    other: list[list[int]],
    sizes: list[int],
) -> None:
    """The same calls in the same order, wherever a batch ends."""
    declared = declare(process, join_tree=tree)
    streams: dict[Stream, list[list[Any]]] = {L: elements(L, left), R: elements(R, right), S: elements(S, other)}
    task = ProcessTask.of(declared, declared.output, 1)
    texts = [text for batch in task.run(batches_of(tree, streams, sizes)) for text in batch.column("value").to_pylist()]
    expected = [Joined(found.element.k, names_of(found)) for (found,) in calls(tree, streams)]
    assert [json.loads(text) for text in texts] == [vars(row) for row in expected]


def halved(element: dict[str, int]) -> int:
    return element["k"] // 2


def windowed(lefts: list[L], rights: Mapping[L, list[R]]) -> None:
    """Only its signature is used."""


@pytest.mark.parametrize(
    ("process", "tree", "has_one"),
    [
        (join_two, STAR, True),
        (chain_names, CHAIN_LEFT, True),
        (join_names, join_streams(L, JoinWith(R, K + 1, K // 2)), True),
        (join_two, join_streams(L, JoinWith(R, K, K), JoinWith(S, K // 2, K)), False),
        (chain_names, join_streams(L, JoinWith(join_streams(R, JoinWith(S, K // 2, K)), K, K)), False),
        (join_two, join_streams(L, JoinWith(R, K, K), JoinWith(S, K, function_call(halved) * 1.5)), False),
        (windowed, join_streams(window(L, K // 3), JoinWith(R, K, K)), False),
    ],
)
def test_only_a_tree_with_one_key_is_joined_so(process: Any, tree: JoinTree, *, has_one: bool) -> None:  # noqa: ANN401
    """Where an element is joined by one key and ordered by another, Spark joins."""
    assert declare(process, join_tree=tree).has_one_key() is has_one
