"""All that a mill is given, checked against itself once, before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from floodmark.errors import ConfigError
from floodmark.mill.codec import Codec, Deserializer, Serializer
from floodmark.mill.horizon import Branch, Node
from floodmark.mill.injection import InjectedType, Injector, Provider
from floodmark.mill.join_tree import Edge, JoinTree, Stream, Window, class_of, name_of, single_stream
from floodmark.mill.keys import Key, edge_keys, window_key
from floodmark.mill.signature import Process, Signature, read_signature, stream_of

Function = TypeVar("Function")


@dataclass(frozen=True, eq=False)
class Declaration:
    """A mill in words that fit together: streams and how they are read, keys, the function and its output."""

    tree: JoinTree
    signature: Signature
    injector: Injector
    codecs: Mapping[Stream, Codec]
    edge_keys: Mapping[Edge, tuple[Key, Key]]
    window_key: Key | None
    output: Codec | None

    def keys_of(self, stream: Stream) -> tuple[Key, ...]:
        """First the key that orders the stream, then one for each edge that leaves it; none where nothing orders it.

        A stream is ordered by what joins it to its parent; the master by its windows, or by its first edge.
        """
        leaving = [self.edge_keys[edge][0] for edge in self.tree.edges_from(stream)]
        own = [self.edge_keys[edge][1] for edge in self.tree.edges if edge.right == stream]
        by_window = stream == self.tree.root and not self.tree.has_function_windows
        window = [self.window_key] if by_window and self.window_key is not None else []
        return (*(own or window or leaving[:1]), *leaving)

    def node_of(self, stream: Stream) -> Node:
        """A stream and what is joined to it, as the horizon sees them."""
        branches = [
            Branch(self.node_of(edge.right), is_inner=edge.how == "inner", shares_key=self._is_ordered_by(edge))
            for edge in self.tree.edges_from(stream)
        ]
        return Node(name_of(stream), tuple(branches))

    def has_one_key(self) -> bool:
        """Whether every edge is joined by the key that orders its left side: then one sort serves them all."""
        edges = self.tree.edges
        kinds = {self.edge_keys[edge][0].kind for edge in edges}
        is_shared = all(map(self._is_ordered_by, edges))
        return bool(edges) and self.tree.window is None and len(kinds) == 1 and is_shared

    def _is_ordered_by(self, edge: Edge) -> bool:
        """Whether the left side of the edge is ordered by the key that it is joined by."""
        return self.keys_of(edge.left)[0].expression.fingerprint() == edge.left_expression.fingerprint()


def declare(
    process_func: Process,
    *,
    stream_cls: Stream | Window | None = None,
    join_tree: JoinTree | None = None,
    serializers: Mapping[Stream, Serializer] | None = None,
    deserializers: Mapping[Stream, Deserializer] | None = None,
    injector: Mapping[InjectedType, Provider] | None = None,
) -> Declaration:
    """What WaterMill's constructor is given. Raises a ConfigError that names the argument or the class at fault."""
    tree = _tree(process_func, stream_cls, join_tree)
    providers = Injector(dict(injector or {}))
    signature = read_signature(process_func, tree, providers)
    codecs = {node: Codec(node, _function_for(node, deserializers)) for node in tree.nodes}
    for codec in codecs.values():
        codec.check()
    _require_use(deserializers, tree.nodes, what="deserializers")
    keys = {edge: edge_keys(edge, codecs) for edge in tree.edges}
    output = _output(signature, serializers)
    return Declaration(tree, signature, providers, codecs, keys, _window_key(tree, codecs), output)


def _tree(process_func: Process, stream_cls: Stream | Window | None, join_tree: JoinTree | None) -> JoinTree:
    if stream_cls is not None and join_tree is not None:
        raise ConfigError("both stream_cls and join_tree are given.", hint="the tree has the master at its root")
    if join_tree is not None:
        return join_tree
    return single_stream(stream_cls) if stream_cls is not None else stream_of(process_func)


def _window_key(tree: JoinTree, codecs: Mapping[Stream, Codec]) -> Key | None:
    key = window_key(tree, codecs)
    if key is not None and tree.edges and not key.is_ordered and not tree.has_function_windows:
        raise ConfigError(
            f"the windows of {name_of(tree.root)} are joined, but {key.expression.describe()} has no known order.",
            hint="take windows by a number, text, a date or a time, or let function_call(…) tell them",
        )
    return key


def _output(signature: Signature, serializers: Mapping[Stream, Serializer] | None) -> Codec | None:
    stream = signature.returns.stream
    _require_use(serializers, () if stream is None else (stream,), what="serializers")
    if stream is None:
        return None
    codec = Codec(stream, serializer=_function_for(stream, serializers))
    codec.check_output()
    return codec


def _function_for(stream: Stream, functions: Mapping[Stream, Function] | None) -> Function | None:
    """For the stream itself, else for the class of its elements."""
    known = functions or {}
    return known.get(stream, known.get(class_of(stream)))


def _require_use(functions: Mapping[Stream, object] | None, streams: tuple[Stream, ...], *, what: str) -> None:
    """A function for a class that is never met is a mistake, most likely in the class."""
    known = {*streams, *map(class_of, streams)}
    for stream in functions or {}:
        if stream not in known:
            names = ", ".join(map(name_of, streams)) or "(none)"
            raise ConfigError(f"{what}: {name_of(stream)} is no stream of this mill.", hint=f"one of: {names}")
