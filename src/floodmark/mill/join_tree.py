"""Streams and how they are joined, as values: classes and aliases, windows, a tree with the master at its root."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from typing import Literal, TypeAlias, get_args

from floodmark.errors import ConfigError, JoinTreeInvalid
from floodmark.mill.expressions import Call, Expression

How = Literal["inner", "left"]
MARKER = "eos__"


@dataclass(frozen=True)
class StreamAlias:
    """One of several streams whose elements are of one class; stands wherever the class could stand."""

    origin_cls: type
    alias: str

    @property
    def __name__(self) -> str:
        return self.alias

    def __call__(self, *values: object, **named: object) -> object:
        """An element; being callable also lets an alias stand in a type hint."""
        return self.origin_cls(*values, **named)


Stream: TypeAlias = "type | StreamAlias"
"""A stream is named by the class of its elements, or by an alias where one class has several streams."""


@dataclass(frozen=True)
class EndOfStream:
    """Nothing follows. A process function that returns it, or yields it last, stops the mill; it is also written.

    >>> def ship(order: Order) -> Order | EndOfStream:
    ...     return order if order.id < 100 else EndOfStream()
    """

    eos__: bool = True


def type_alias(stream_type: type, alias: str) -> StreamAlias:
    """A second name for a class, for a topic or a node of a join tree of its own.

    >>> Refund = type_alias(Payment, "refunds")
    >>> tree = join_streams(Order, JoinWith(Refund, get_field("id"), get_field("order_id")))
    """
    if not alias:
        raise ConfigError(
            f"an alias of {stream_type.__name__} is empty.", hint="its positions are saved under its name"
        )
    require_dataclass(stream_type)
    return StreamAlias(stream_type, alias)


def class_of(stream: Stream) -> type:
    """The class of the stream's elements."""
    return stream.origin_cls if isinstance(stream, StreamAlias) else stream


def name_of(stream: Stream) -> str:
    """What the stream's position is saved under."""
    return stream.__name__


def require_dataclass(stream: object) -> None:
    """Raises ConfigError for what cannot be the element of a stream."""
    cls = stream.origin_cls if isinstance(stream, StreamAlias) else stream
    if isinstance(cls, type) and is_dataclass(cls):
        return
    name = cls.__name__ if isinstance(cls, type) else repr(cls)
    raise ConfigError(f"{name} is no dataclass.", hint="the elements of a stream are dataclasses: put @dataclass on it")


@dataclass(frozen=True)
class Window:
    """Neighbouring elements of one stream that are given to the process function together."""

    cls: Stream
    expression: Expression


@dataclass(frozen=True, eq=False)
class Edge:
    """Right elements belong to the left ones with an equal key."""

    left: Stream
    right: Stream
    left_expression: Expression
    right_expression: Expression
    how: How = "inner"

    def describe(self) -> str:
        """As a condition."""
        left = f"{name_of(self.left)}: {self.left_expression.describe()}"
        return f"{left} = {name_of(self.right)}: {self.right_expression.describe()} ({self.how})"


@dataclass(frozen=True, eq=False)
class JoinTree:
    """The streams that are read, and the edges between them; a single stream is a tree without edges.

    Edges stand in the order in which they were written, a parent's before its children's.
    """

    root: Stream
    edges: tuple[Edge, ...] = ()
    window: Expression | None = None

    @property
    def nodes(self) -> tuple[Stream, ...]:
        """Every stream once: the master first, and each after its parent."""
        return (self.root, *(edge.right for edge in self.edges))

    @property
    def has_function_windows(self) -> bool:
        """Whether a function gives the keys of the windows, perhaps by the clock."""
        return self.window is not None and any(isinstance(each, Call) for each in self.window.walk())

    def edges_from(self, stream: Stream) -> tuple[Edge, ...]:
        """The edges to what is joined to this stream."""
        return tuple(edge for edge in self.edges if edge.left == stream)

    def describe(self) -> str:
        """All of it in one line."""
        window = f" in windows of {self.window.describe()}" if self.window is not None else ""
        return "; ".join([f"{name_of(self.root)}{window}", *(edge.describe() for edge in self.edges)])


@dataclass(frozen=True, eq=False)
class JoinWith:
    """One stream, or a tree of them, to be joined. `how="left"`: a left element without a partner is given too.

    >>> tree = join_streams(Order, JoinWith(Payment, get_field("id"), get_field("order_id"), how="left"))
    """

    with_type: Stream | JoinTree
    left_expression: Expression
    right_expression: Expression
    how: How = "inner"

    def __post_init__(self) -> None:
        if self.how not in get_args(How):
            raise ConfigError(f"how={self.how!r} is no way to join.", hint=f"one of: {', '.join(get_args(How))}")
        for side in ("left_expression", "right_expression"):
            require_expression(getattr(self, side), what=f"{side} of JoinWith")


def window(cls: Stream, window_expression: Expression) -> Window:
    """Elements of `cls` in runs of neighbours for which the expression has an equal value.

    >>> tree = join_streams(
    ...     window(Order, get_field("day")), JoinWith(Payment, get_field("id"), get_field("order_id"))
    ... )
    """
    require_dataclass(cls)
    require_expression(window_expression, what="window_expression")
    return Window(cls, window_expression)


def join_streams(left_stream_type: Stream | Window, *joins: JoinWith) -> JoinTree:
    """The master stream, and what is joined to it; raises JoinTreeInvalid for what is no tree.

    >>> tree = join_streams(Order, JoinWith(Payment, get_field("id"), get_field("order_id")))
    """
    alone = single_stream(left_stream_type)
    if not joins:
        raise JoinTreeInvalid(name_of(alone.root), reason="nothing is joined to it", hint="for one stream: stream_cls=")
    tree = JoinTree(alone.root, tuple(edge for join in joins for edge in _edges(alone.root, join)), alone.window)
    _require_no_repetition(tree)
    return tree


def single_stream(stream_cls: Stream | Window) -> JoinTree:
    """One stream, or windows of one, as a tree."""
    if isinstance(stream_cls, Window):
        return JoinTree(stream_cls.cls, window=stream_cls.expression)
    require_dataclass(stream_cls)
    return JoinTree(stream_cls)


def require_expression(value: object, *, what: str) -> None:
    """Raises ConfigError for a field's name, or a function, where an expression is needed."""
    if not isinstance(value, Expression):
        meant = f"get_field({value!r})" if isinstance(value, str) else "function_call(…) or const_expression(…)"
        raise ConfigError(f"{what} is {type(value).__name__}, not an expression.", hint=f"write {meant}")


def _edges(left: Stream, join: JoinWith) -> Iterator[Edge]:
    chain = join.with_type if isinstance(join.with_type, JoinTree) else single_stream(join.with_type)
    if chain.window is not None:
        name = name_of(chain.root)
        raise JoinTreeInvalid(name, reason="only the master can have a window", hint=f"join {name} without one")
    yield Edge(left, chain.root, join.left_expression, join.right_expression, join.how)
    yield from chain.edges


def _require_no_repetition(tree: JoinTree) -> None:
    """Chains were checked when they were made, so what comes back here is the root, or stands in two branches."""
    seen: dict[str, Stream] = {name_of(tree.root): tree.root}
    for edge in tree.edges:
        name = name_of(edge.right)
        if name in seen:
            raise JoinTreeInvalid(name, reason=_repetition(edge, seen[name], tree), hint=_alias_hint(edge.right))
        seen[name] = edge.right


def _repetition(edge: Edge, other: Stream, tree: JoinTree) -> str:
    if class_of(other) is not class_of(edge.right):
        return "two classes have this name, under which positions are saved"
    if other == tree.root:
        return f"it is joined below itself, to {name_of(edge.left)}: a loop"
    return "it stands in the tree twice"


def _alias_hint(stream: Stream) -> str:
    name = class_of(stream).__name__
    return f"give each node a class of its own, or an alias: type_alias({name}, 'next-{name}')"
