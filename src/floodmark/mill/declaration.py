"""All that a mill is told, checked against itself once, before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from floodmark.errors import ConfigError
from floodmark.mill.codec import Codec, Deserializer, Serializer
from floodmark.mill.injection import Injector, Provider, Wanted
from floodmark.mill.join_tree import Edge, JoinTree, Stream, Window, class_of, name_of, single_stream
from floodmark.mill.keys import Key, edge_keys, window_key
from floodmark.mill.signature import Process, Signature, read_signature, stream_of

Given = TypeVar("Given")


@dataclass(frozen=True, eq=False)
class Declaration:
    """A mill in words that fit together: streams and how they are read, keys, the function and its output."""

    tree: JoinTree
    signature: Signature
    injector: Injector
    codecs: Mapping[Stream, Codec]
    keys: Mapping[Edge, tuple[Key, Key]]
    window_key: Key | None
    output: Codec | None


def declare(
    process_func: Process,
    *,
    stream_cls: Stream | Window | None = None,
    join_tree: JoinTree | None = None,
    serializers: Mapping[Stream, Serializer] | None = None,
    deserializers: Mapping[Stream, Deserializer] | None = None,
    injector: Mapping[Wanted, Provider] | None = None,
) -> Declaration:
    """What WaterMill's constructor is given. Raises a ConfigError that names the argument or the class at fault."""
    tree = _tree(process_func, stream_cls, join_tree)
    providers = Injector(dict(injector or {}))
    signature = read_signature(process_func, tree, providers)
    codecs = {node: Codec(node, _given(deserializers, node)) for node in tree.nodes}
    for codec in codecs.values():
        codec.check()
    _require_used(deserializers, tree.nodes, what="deserializers")
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
    if key is not None and tree.edges and not key.ordered and not tree.has_told_windows:
        raise ConfigError(
            f"the windows of {name_of(tree.root)} are joined, but {key.expression.describe()} has no known order.",
            hint="take windows by a number, text, a date or a time, or let function_call(…) tell them",
        )
    return key


def _output(signature: Signature, serializers: Mapping[Stream, Serializer] | None) -> Codec | None:
    stream = signature.returns.stream
    _require_used(serializers, () if stream is None else (stream,), what="serializers")
    if stream is None:
        return None
    codec = Codec(stream, serializer=_given(serializers, stream))
    codec.check_output()
    return codec


def _given(functions: Mapping[Stream, Given] | None, stream: Stream) -> Given | None:
    """For the stream itself, else for the class of its elements."""
    known = functions or {}
    return known.get(stream, known.get(class_of(stream)))


def _require_used(functions: Mapping[Stream, object] | None, streams: tuple[Stream, ...], *, what: str) -> None:
    """A function for a class that is never met is a mistake, most likely in the class."""
    known = {*streams, *map(class_of, streams)}
    for stream in functions or {}:
        if stream not in known:
            names = ", ".join(map(name_of, streams)) or "(none)"
            raise ConfigError(f"{what}: {name_of(stream)} is no stream of this mill.", hint=f"one of: {names}")
