"""The mill's joins and windows as plain loops over lists: what every faster way has to give, in the same order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

from floodmark.mill.expressions import Expression
from floodmark.mill.join_tree import Edge, JoinTree, Stream

Partitions: TypeAlias = "Sequence[Sequence[Any]]"
"""The elements of one stream: a list for each partition, in the order of its offsets."""
Streams: TypeAlias = "Mapping[Stream, Partitions]"


@dataclass(frozen=True)
class Match:
    """An element and, for each edge from its stream in the tree's order, what is joined to it."""

    element: Any
    partners: tuple[tuple[Match, ...], ...] = ()


def calls(tree: JoinTree, streams: Streams) -> list[list[Match]]:
    """What the process function is called with: one master element per call, or those of a window."""
    masters = in_order(streams[tree.root], order_of(tree))
    matches = [found for element in masters if (found := match(tree.root, element, tree, streams)) is not None]
    if tree.window is None:
        return [[found] for found in matches]
    window = tree.window
    return [list(run) for _, run in groupby(matches, key=lambda found: key_of(window, found.element))]


def match(stream: Stream, element: object, tree: JoinTree, streams: Streams) -> Match | None:
    """The element with its partners; None if an inner edge leaves it without one."""
    partners = tuple(partners_of(element, edge, tree, streams) for edge in tree.edges_from(stream))
    missing = [edge for edge, found in zip(tree.edges_from(stream), partners, strict=True) if not found]
    return None if any(edge.how == "inner" for edge in missing) else Match(element, partners)


def partners_of(left: object, edge: Edge, tree: JoinTree, streams: Streams) -> tuple[Match, ...]:
    """Every right element with an equal key, if it has partners of its own where it needs them."""
    wanted = key_of(edge.left_expression, left)
    equal = [right for right in in_order(streams[edge.right], None) if key_of(edge.right_expression, right) == wanted]
    found = [match(edge.right, right, tree, streams) for right in equal]
    return tuple(each for each in found if each is not None)


def order_of(tree: JoinTree) -> Expression | None:
    """What masters are ordered by before partition and offset; a window by a function orders nothing."""
    if tree.window is not None and not tree.has_function_windows:
        return tree.window
    return tree.edges[0].left_expression if tree.edges else None


def in_order(partitions: Partitions, order: Expression | None) -> list[Any]:
    """All elements of a stream by key, partition and offset; those of one partition as they stand."""
    elements = [element for partition in partitions for element in partition]
    if order is None or len(partitions) == 1:
        return elements
    return sorted(elements, key=lambda element: key_of(order, element))


def key_of(expression: Expression, element: object) -> Any:  # noqa: ANN401  # whatever the expression gives
    return expression.evaluate(vars(element))
