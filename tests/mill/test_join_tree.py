"""Join trees: the master at the root, every stream once, and errors that name the stream."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass

import pytest

from floodmark.errors import ConfigError, JoinTreeInvalid
from floodmark.mill import JoinWith, get_field, join_streams, type_alias, window
from floodmark.mill.join_tree import single_stream
from tests.mill.cases import L, R, S

K = get_field("k")
R_TO_L = join_streams(R, JoinWith(L, K, K))
R_IN_WINDOWS = join_streams(window(R, K), JoinWith(S, K, K))


def test_a_chain_is_one_tree_with_every_parent_before_its_children() -> None:
    """`join_streams` inside `JoinWith` nests."""
    tree = join_streams(L, JoinWith(join_streams(R, JoinWith(S, K + 1, K)), K, K, how="left"))
    assert tree.nodes == (L, R, S)
    assert tree.describe() == "L; L: k = R: k (left); R: (k + 1) = S: k (inner)"
    assert [edge.right for edge in tree.edges_from(R)] == [S]


def test_a_window_stands_at_the_root() -> None:
    """Windows are runs of master elements."""
    tree = join_streams(window(cls=L, window_expression=K // 30), JoinWith(R, K, K))
    assert tree.window is not None
    assert tree.describe() == "L in windows of (k // 30); L: k = R: k (inner)"


def test_a_single_stream_is_a_tree_without_edges() -> None:
    """So that everything behind it knows one form."""
    assert single_stream(L).nodes == (L,)


def test_aliases_let_one_class_be_several_nodes() -> None:
    """A self-join needs a name per node, for its position."""
    first, second = type_alias(L, "first"), type_alias(L, "second")
    assert join_streams(first, JoinWith(second, K + 1, K)).describe() == "first; first: (k + 1) = second: k (inner)"
    assert first == type_alias(L, "first")
    assert first(1, "a") == L(1, "a")


@pytest.mark.parametrize(
    ("make", "stream", "reason"),
    [
        (lambda: join_streams(L), "L", "nothing is joined"),
        (lambda: join_streams(L, JoinWith(L, K, K)), "L", "a loop"),
        (lambda: join_streams(L, JoinWith(R_TO_L, K, K)), "L", "below itself, to R: a loop"),
        (lambda: join_streams(L, JoinWith(R, K, K), JoinWith(R, K, K)), "R", "twice"),
        (lambda: join_streams(L, JoinWith(R, K, K), JoinWith(other_r(), K, K)), "R", "two classes have this name"),
        (lambda: join_streams(L, JoinWith(R_IN_WINDOWS, K, K)), "R", "only the master"),
    ],
    ids=["alone", "to itself", "loop", "twice", "same name", "inner window"],
)
def test_what_is_no_tree_is_refused(make: object, stream: str, reason: str) -> None:
    """The error names the stream and says why."""
    with pytest.raises(JoinTreeInvalid, match=reason) as caught:
        make()  # type: ignore[operator]  # a lambda of the table
    assert caught.value.stream == stream


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: JoinWith(R, "k", K), r"left_expression of JoinWith is str.*get_field\('k'\)"),
        (lambda: JoinWith(R, K, len), "right_expression of JoinWith is builtin_function.*function_call"),
        (lambda: JoinWith(R, K, K, how="outer"), "how='outer'.*inner, left"),
        (lambda: window(cls=L, window_expression=30), "window_expression is int"),
        (lambda: join_streams(int, JoinWith(R, K, K)), "int is no dataclass"),
        (lambda: type_alias(L, ""), "an alias of L is empty"),
    ],
    ids=["name", "function", "how", "window", "class", "alias"],
)
def test_what_is_no_declaration_is_refused(make: object, message: str) -> None:
    """With what to write instead."""
    with pytest.raises(ConfigError, match=message):
        make()  # type: ignore[operator]  # a lambda of the table


def other_r() -> type:
    return dataclass(frozen=True)(make_dataclass("R", [("k", int)]))
