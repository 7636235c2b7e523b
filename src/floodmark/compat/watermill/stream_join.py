"""Expressions, windows, aliases and join trees by watermill's names, and what they are in `floodmark.mill`."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from floodmark.compat.watermill.message_brokers import StreamsShift
from floodmark.errors import ConfigError
from floodmark.mill import expressions, join_tree
from floodmark.mill.expressions import Call, function_call
from floodmark.mill.join_tree import How, Stream

const_expression, get_field = expressions.const_expression, expressions.get_field
AliasType, type_alias = join_tree.StreamAlias, join_tree.type_alias
StreamType = TypeVar("StreamType")
JoinedStreamType = TypeVar("JoinedStreamType")
ResultStreamType = TypeVar("ResultStreamType")
WindowFunction = Callable[[Any], Any]


class _AnyExpression(ABCMeta):
    """Whatever `get_field` and its like give is an instance of the door's class."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, expressions.Expression)


class Expression(Call, metaclass=_AnyExpression):
    """An expression, made of any function of an element's dict."""

    def __init__(self, expression_func: Callable[[Any], Any]) -> None:
        super().__init__(expression_func)


@dataclass(frozen=True)
class Window:
    """A stream in windows: elements for which the function gives an equal value one after the other."""

    cls: Stream
    window_func: WindowFunction


def window(cls: Stream, window_expression: WindowFunction) -> Window:
    """Windows by an expression."""
    return Window(cls, window_expression)


@dataclass
class JoinTreeNode:
    """A stream in a tree; the root may have a window."""

    user_type: Stream
    window_func: WindowFunction | None = None


@dataclass
class JoinTreePair:
    """Right elements belong to the left ones with an equal value. (Comparing expressions gives another expression.)"""

    left_node: JoinTreeNode
    right_node: JoinTreeNode
    left_expression: expressions.Expression = field(compare=False)
    right_expression: expressions.Expression = field(compare=False)


@dataclass
class JoinTree:
    """Streams that are joined, pair by pair."""

    root_node: JoinTreeNode
    pairs: list[JoinTreePair] = field(default_factory=list)


@dataclass(eq=False)
class JoinWith:
    """One stream, or a tree of them, to be joined."""

    with_type: Stream | JoinTree
    left_expression: expressions.Expression
    right_expression: expressions.Expression


def join_streams(left_stream_type: Stream | Window, *joins: JoinWith) -> JoinTree:
    """The master stream, and what is joined to it."""
    root = _node(left_stream_type)
    if not joins:
        raise ConfigError("join_streams joins nothing.", hint="for one stream give stream_cls= to WaterMill")
    return JoinTree(root, [pair for join in joins for pair in _pairs(root, join)])


def _node(stream: Stream | Window) -> JoinTreeNode:
    return JoinTreeNode(stream.cls, stream.window_func) if isinstance(stream, Window) else JoinTreeNode(stream)


def _pairs(root: JoinTreeNode, join: JoinWith) -> Iterator[JoinTreePair]:
    """What is joined below comes first, as in the original."""
    below = join.with_type if isinstance(join.with_type, JoinTree) else JoinTree(JoinTreeNode(join.with_type))
    yield from below.pairs
    right = JoinTreeNode(below.root_node.user_type)
    yield JoinTreePair(root, right, join.left_expression, join.right_expression)


def get_tree_pairs(tree: JoinTree, node: JoinTreeNode) -> list[JoinTreePair]:
    """The pairs that have this node on their left."""
    return [pair for pair in tree.pairs if pair.left_node == node]


def compare_streams(left: Any, right: Any) -> StreamsShift:  # noqa: ANN401 (keys of any kind)
    """How a left key stands to a right one."""
    if left == right:
        return StreamsShift.Equal
    return StreamsShift.Less if left < right else StreamsShift.Greater


def tree_of(stream_cls: Stream | Window | None, tree: JoinTree | None) -> JoinTree:
    """What a mill was given, as a tree. Raises ConfigError if that is neither, or both."""
    if stream_cls is not None and tree is None:
        return JoinTree(_node(stream_cls))
    if tree is not None and stream_cls is None:
        return tree
    raise ConfigError("a mill has either a stream_cls or a join_tree.", hint="give WaterMill one of them")


def mill_tree(tree: JoinTree) -> join_tree.JoinTree:
    """The tree in Floodmark's own words.

    In a window an element without partners stays, so its joins are left ones; what lies behind the end of a stream
    that it is joined to is left out by `DoorStep`.
    """
    root, function = tree.root_node, tree.root_node.window_func
    joins = _joins(tree, root, "inner" if function is None else "left")
    master = root.user_type if function is None else join_tree.window(root.user_type, _expression(function))
    return join_tree.join_streams(master, *joins) if joins else join_tree.single_stream(master)


def _expression(function: WindowFunction) -> expressions.Expression:
    return function if isinstance(function, expressions.Expression) else function_call(function)


def _joins(tree: JoinTree, node: JoinTreeNode, how: How) -> list[join_tree.JoinWith]:
    return [
        join_tree.JoinWith(_branch(tree, pair.right_node, how), pair.left_expression, pair.right_expression, how)
        for pair in get_tree_pairs(tree, node)
    ]


def _branch(tree: JoinTree, node: JoinTreeNode, how: How) -> Stream | join_tree.JoinTree:
    below = _joins(tree, node, how)
    return join_tree.join_streams(node.user_type, *below) if below else node.user_type
