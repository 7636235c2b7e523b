"""What a process function asks for and gives, read from its signature and compared with the join tree."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cached_property, partial
from inspect import Signature as PythonSignature
from typing import Any, NoReturn, TypeAlias, Union, get_args, get_origin, get_type_hints

from floodmark.errors import SignatureInvalid
from floodmark.mill.injection import Attempt, InjectedType, Injector
from floodmark.mill.join_tree import Edge, EndOfStream, JoinTree, Stream, StreamAlias, class_of, name_of, single_stream
from floodmark.spark.schemas import type_name

Process: TypeAlias = Callable[..., Any]
Hint: TypeAlias = Any
MANY = (Iterator, Iterable, Generator, list, Sequence)
NOTHING = (None, type(None), NoReturn, PythonSignature.empty)
"""What a function may return that is several elements, and none at all."""


@dataclass(frozen=True)
class MappedArgument:
    """An argument that gets joined elements: those of these edges of the tree, by their numbers."""

    name: str
    edges: tuple[int, ...]


@dataclass(frozen=True)
class InjectedArgument:
    """An argument that gets something by its type."""

    name: str
    type_hint: InjectedType


@dataclass(frozen=True, eq=False)
class Signature:
    """A function that fits its tree: the first argument is the master element, these are the others."""

    function: Process
    name: str
    arguments: tuple[MappedArgument | InjectedArgument, ...]
    returns: ReturnType
    has_window: bool

    @property
    def mapped_arguments(self) -> tuple[MappedArgument, ...]:
        """The arguments that get joined elements, in their order."""
        return tuple(argument for argument in self.arguments if isinstance(argument, MappedArgument))

    @property
    def injected_arguments(self) -> tuple[InjectedArgument, ...]:
        """Those that get something by their type."""
        return tuple(argument for argument in self.arguments if isinstance(argument, InjectedArgument))

    @property
    def injected_types(self) -> frozenset[InjectedType]:
        """The types that an injector has to provide."""
        return frozenset(argument.type_hint for argument in self.injected_arguments) - {Attempt}


def read_signature(function: Process, tree: JoinTree, injector: Injector) -> Signature:
    """Raises SignatureInvalid, naming the argument, for what the tree or the injector cannot give."""
    return SignatureReader(function, injector).signature_for(tree)


def stream_of(function: Process) -> JoinTree:
    """The stream that a function reads, from its first argument: for a mill that was given no other."""
    reader = SignatureReader(function, Injector())
    first, hint = reader.first()
    if hint is None:
        raise reader.error(first, "it has no type", "annotate it with the class of the stream, or give stream_cls=")
    if list_of(hint) is not None:
        raise reader.error(first, "a list needs a window", "give stream_cls=window(cls=…, window_expression=…)")
    return single_stream(hint)


class SignatureReader:
    """One function while its signature is read."""

    def __init__(self, function: Process, injector: Injector) -> None:
        self.function, self.injector = function, injector
        self.plain_function = _without_partial(function)
        self.name = getattr(self.plain_function, "__qualname__", type(self.plain_function).__name__)
        self.hints = self._hints()
        self.parameters = self._parameters()

    def signature_for(self, tree: JoinTree) -> Signature:
        """The function's arguments as the tree's nodes."""
        self._check_master(tree)
        arguments = [self._argument(parameter, tree) for parameter in self.parameters[1:]]
        returns = return_type_of(self.hints.get("return", inspect.Signature.empty), self.name)
        given = tuple(argument for argument in arguments if argument is not None)
        return Signature(self.function, self.name, given, returns, tree.window is not None)

    def first(self) -> tuple[str, Hint]:
        """The first argument's name and type."""
        return self.parameters[0].name, self.hints.get(self.parameters[0].name)

    def error(self, argument: str, reason: str, hint: str) -> SignatureInvalid:
        """An error about one argument."""
        return SignatureInvalid(self.name, argument=f"argument '{argument}'", reason=reason, hint=hint)

    def _check_master(self, tree: JoinTree) -> None:
        name, hint = self.first()
        if hint is None:
            return
        master, is_list = name_of(tree.root), list_of(hint) is not None
        if is_list and tree.window is None:
            raise self.error(name, f"it is a list, but {master} has no window", f"window(cls={master}, …) at the root")
        if not is_list and tree.window is not None:
            raise self.error(name, f"{master} has a window, so it gets a list", f"annotate it as List[{master}]")
        if not fits(list_of(hint) if is_list else hint, tree.root):
            reason = f"it is {type_name(hint)}, but the master stream is {master}"
            raise self.error(name, reason, f"annotate it as {f'List[{master}]' if is_list else master}")

    def _argument(self, parameter: inspect.Parameter, tree: JoinTree) -> MappedArgument | InjectedArgument | None:
        name, hint = parameter.name, self.hints.get(parameter.name)
        if hint is None:
            raise self.error(name, "it has no type", "annotate it: Mapping[Left, List[Right]], or a type to inject")
        if hint is Attempt or hint in self.injector:
            return self._injected_argument(name, hint)
        pair = mapping_of(hint)
        if pair is not None:
            return self._mapped_argument(name, pair, tree)
        if parameter.default is not inspect.Parameter.empty:
            return None
        raise self.error(name, *self._missing_provider(hint, tree))

    def _injected_argument(self, name: str, hint: InjectedType) -> InjectedArgument:
        if hint is not Attempt:
            self.injector.check(hint)
        return InjectedArgument(name, hint)

    def _mapped_argument(self, name: str, pair: tuple[Hint, Hint], tree: JoinTree) -> MappedArgument:
        left, right = pair
        edges = [n for n, edge in enumerate(tree.edges) if fits(left, edge.left) and fits(right, edge.right)]
        if not edges:
            raise self.error(name, _why_no_edge(left, right, tree), _edges_hint(tree.edges))
        return MappedArgument(name, tuple(edges))

    def _missing_provider(self, hint: object, tree: JoinTree) -> tuple[str, str]:
        if get_origin(hint) is dict and len(get_args(hint)) == 2:
            left, right = get_args(hint)
            return (
                "joined elements come in a mapping of their own",
                f"Mapping[{display_name(left)}, {display_name(right)}]",
            )
        if any(fits(hint, node) for node in tree.nodes[1:]):
            return (
                f"{display_name(hint)} is joined, so it comes in a mapping",
                f"Mapping[Left, List[{display_name(hint)}]]",
            )
        return f"nothing provides {display_name(hint)}", f"give WaterMill injector={{{display_name(hint)}: …}}"

    def _hints(self) -> dict[str, Hint]:
        is_plain = inspect.isroutine(self.plain_function) or isinstance(self.plain_function, type)
        try:
            return get_type_hints(self.plain_function if is_plain else type(self.plain_function).__call__)
        except NameError as error:
            raise SignatureInvalid(
                self.name,
                argument="annotations",
                reason=str(error),
                hint="define the classes it names at the top of a module",
            ) from error

    def _parameters(self) -> list[inspect.Parameter]:
        parameters = list(inspect.signature(self.function).parameters.values())
        for parameter in parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise self.error(parameter.name, "it takes any number of values", "name and annotate every argument")
            if parameter.kind is parameter.POSITIONAL_ONLY and parameter is not parameters[0]:
                raise self.error(parameter.name, "it can be given by its place only", "take the / out of the signature")
        if not parameters:
            raise SignatureInvalid(
                self.name, argument="arguments", reason="it has none", hint="the first one gets the master's element"
            )
        return parameters


def _without_partial(function: Process) -> Process:
    """The function as it was written; what a partial gives it already has a default there."""
    return _without_partial(function.func) if isinstance(function, partial) else function


def fits(hint: Hint, stream: Stream) -> bool:
    """Whether a hint means this stream: by its alias, or by the class of its elements."""
    return hint == stream or (isinstance(hint, type) and hint is class_of(stream))


def list_of(hint: object) -> Hint | None:
    """X for List[X], list[X] or Sequence[X]."""
    return get_args(hint)[0] if get_origin(hint) in (list, Sequence) and get_args(hint) else None


def mapping_of(hint: object) -> tuple[Hint, Hint] | None:
    """(L, R) for Mapping[L, List[R]]."""
    args = get_args(hint)
    if get_origin(hint) is not Mapping or len(args) != 2:
        return None
    right = list_of(args[1])
    return (args[0], right if right is not None else args[1])


def display_name(hint: Hint) -> str:
    """A stream or a type, as it is written."""
    return hint.alias if isinstance(hint, StreamAlias) else type_name(hint)


def _why_no_edge(left: Hint, right: Hint, tree: JoinTree) -> str:
    if any(fits(right, edge.left) and fits(left, edge.right) for edge in tree.edges):
        return f"{display_name(left)} is joined to {display_name(right)}, not the other way round"
    for hint in (left, right):
        if not any(fits(hint, node) for node in tree.nodes):
            return f"{display_name(hint)} is not in the join tree"
    return f"{display_name(right)} is not joined to {display_name(left)}"


def _edges_hint(edges: Sequence[Edge]) -> str:
    if not edges:
        return "give join_tree=join_streams(…): without it nothing is joined"
    return "the tree has: " + ", ".join(f"Mapping[{name_of(e.left)}, List[{name_of(e.right)}]]" for e in edges)


@dataclass(frozen=True)
class ReturnType:
    """The output stream, if there is one, and whether a call gives several elements."""

    stream: Stream | None
    is_many: bool = False

    @cached_property
    def cls(self) -> type | None:
        """What comes back is nearly always one of these, and needs no further look."""
        return class_of(self.stream) if self.stream is not None else None

    def elements(self, returned: object) -> Iterator[object]:
        """What one call gave, an EndOfStream last if it ends the stream.

        Raises TypeError for what the signature did not say, and for anything after the end.
        """
        ended = False
        for element in self._each(returned):
            if ended:
                raise TypeError(f"it gave {element!r} after EndOfStream")
            ended = isinstance(element, EndOfStream)
            if not ended:
                self._require_expected(element)
            yield element

    def _each(self, returned: object) -> Iterable[object]:
        if returned is None:
            return ()
        is_several = isinstance(returned, Iterator) or (self.is_many and isinstance(returned, Iterable))
        return (one for one in returned if one is not None) if is_several else (returned,)  # type: ignore[attr-defined]

    def _require_expected(self, element: object) -> None:
        if self.stream is None:
            raise TypeError(f"it gave {element!r}, but its signature returns nothing")
        if not isinstance(element, class_of(self.stream)):
            raise TypeError(f"it gave {element!r}, but its signature returns {name_of(self.stream)}")


def return_type_of(hint: object, function: str) -> ReturnType:
    """The return type of a process function. Raises SignatureInvalid for what cannot be sent to one stream."""
    if get_origin(hint) in MANY:
        return ReturnType(_stream(get_args(hint)[0], function), is_many=True)
    many = [arg for arg in _alternatives(hint) if get_origin(arg) in MANY]
    if many:
        return ReturnType(_stream(get_args(many[0])[0], function), is_many=True)
    return ReturnType(_stream(hint, function))


def _stream(hint: object, function: str) -> Stream | None:
    streams = [each for each in _alternatives(hint) if each not in NOTHING and each is not EndOfStream]
    for each in streams:
        if not isinstance(each, StreamAlias) and not (isinstance(each, type) and is_dataclass(each)):
            raise _return_error(
                function, f"{type_name(each)} is no dataclass", "return an element, or several by Iterator[…]"
            )
    if len(streams) > 1:
        names = ", ".join(map(name_of, streams))
        raise _return_error(
            function, f"{names} are several streams", "a mill has one output: make a mill for each of them"
        )
    return streams[0] if streams else None


def _alternatives(hint: object) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _return_error(function: str, reason: str, hint: str) -> SignatureInvalid:
    return SignatureInvalid(function, argument="return type", reason=reason, hint=hint)
