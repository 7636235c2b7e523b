"""A process function's signature against its tree: what fits, and errors that name the argument and say why."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn, Optional, Union  # as the seed's users write it

import pytest

from floodmark.errors import ConfigError, SignatureInvalid
from floodmark.mill import Attempt, EndOfStream, JoinWith, get_field, join_streams, type_alias, window
from floodmark.mill.declaration import declare
from floodmark.mill.injection import Injector, Position
from floodmark.mill.join_tree import JoinTree, single_stream
from floodmark.mill.signature import InjectedArgument, MappedArgument, read_signature, stream_of
from tests.mill.cases import Joined, L, R, S

K = get_field("k")
ALONE = single_stream(L)
PAIR = join_streams(L, JoinWith(R, K, K))
CHAIN = join_streams(L, JoinWith(join_streams(R, JoinWith(S, K, K)), K, K))
WINDOWED = join_streams(window(cls=L, window_expression=K // 30), JoinWith(R, K, K))
FIRST, SECOND, THIRD = (type_alias(L, name) for name in ("first", "second", "third"))
ALIASED = join_streams(FIRST, JoinWith(SECOND, K, K), JoinWith(THIRD, K, K))


class Database:
    """Something that a function needs besides elements."""


def chained(left: L, rights: Mapping[L, list[R]], others: Mapping[R, list[S]]) -> Joined: ...
def injected(left: L, database: Database, rights: Mapping[L, list[R]], attempt: Attempt) -> Joined: ...
def windowed(lefts: list[L], rights: Mapping[L, list[R]]) -> Joined: ...
def aliased(left: L, rights: Mapping[L, list[L]]) -> Joined: ...
def third_only(left: FIRST, rights: Mapping[FIRST, list[THIRD]]) -> Joined: ...  # type: ignore[valid-type]  # an alias
def defaulted(left: L, limit: int = 5) -> Joined: ...


@pytest.mark.parametrize(
    ("function", "tree", "arguments"),
    [
        (chained, CHAIN, (MappedArgument("rights", (0,)), MappedArgument("others", (1,)))),
        (
            injected,
            PAIR,
            (
                InjectedArgument("database", Database),
                MappedArgument("rights", (0,)),
                InjectedArgument("attempt", Attempt),
            ),
        ),
        (windowed, WINDOWED, (MappedArgument("rights", (0,)),)),
        (aliased, ALIASED, (MappedArgument("rights", (0, 1)),)),
        (third_only, ALIASED, (MappedArgument("rights", (1,)),)),
        (defaulted, ALONE, ()),
    ],
    ids=["chain", "injected", "window", "class of aliases", "alias", "default"],
)
def test_arguments_are_distinguished_by_their_types(
    function: Callable[..., Any], tree: JoinTree, arguments: tuple[object, ...]
) -> None:
    """Mappings are edges of the tree; anything else is injected, wherever it stands."""
    signature = read_signature(function, tree, Injector({Database: Database()}))
    assert signature.arguments == arguments


def nothing(left: L): ...  # type: ignore[no-untyped-def]  # noqa: ANN201  # as users write it
def none(left: L) -> None: ...
def no_return(left: L) -> NoReturn: ...  # type: ignore[misc,empty-body]  # the seed's way to say: no output
def one(left: L) -> Joined: ...
def optional(left: L) -> Optional[Joined]: ...  # noqa: UP045  # the same
def or_none(left: L) -> Joined | None: ...
def or_end(left: L) -> Joined | EndOfStream: ...
def union(left: L) -> Union[Joined, EndOfStream, None]: ...  # noqa: UP007  # the same
def only_end(left: L) -> EndOfStream | None: ...
def iterator(left: L) -> Iterator[Joined]: ...
def generator(left: L) -> Generator[Joined | EndOfStream, None, None]: ...


@pytest.mark.parametrize(
    ("function", "stream", "is_many"),
    [
        (nothing, None, False),
        (none, None, False),
        (no_return, None, False),
        (one, Joined, False),
        (optional, Joined, False),
        (or_none, Joined, False),
        (or_end, Joined, False),
        (union, Joined, False),
        (only_end, None, False),
        (iterator, Joined, True),
        (generator, Joined, True),
    ],
)
def test_the_return_type_is_the_output(function: Callable[..., Any], stream: type | None, is_many: bool) -> None:
    """Every way to say one element, none, many, or the end."""
    returns = read_signature(function, ALONE, Injector()).returns
    assert (returns.stream, returns.is_many) == (stream, is_many)


def test_the_first_argument_names_the_stream_of_a_mill_that_was_given_none() -> None:
    """The shortest declaration is the function itself."""
    assert stream_of(one).nodes == (L,)
    with pytest.raises(SignatureInvalid, match="'lefts': a list needs a window"):
        stream_of(windowed)
    with pytest.raises(SignatureInvalid, match="'left': it has no type"):
        stream_of(lambda left: None)


def of_list(left: list[L]) -> None: ...
def of_one(left: L, rights: Mapping[L, list[R]]) -> None: ...
def of_other(left: S) -> None: ...
def reversed_pair(left: L, rights: Mapping[R, list[L]]) -> None: ...
def not_in_tree(left: L, rights: Mapping[L, list[S]]) -> None: ...
def not_this_edge(left: L, others: Mapping[L, list[S]], rights: Mapping[L, list[R]]) -> None: ...
def as_dict(left: L, rights: dict[L, list[R]]) -> None: ...
def bare(left: L, right: R) -> None: ...
def unprovided(left: L, database: Database) -> None: ...
def untyped(left: L, database) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001  # the fault
def any_number(left: L, *others: R) -> None: ...
def by_place(left: L, database: Database, /) -> None: ...
def no_arguments() -> None: ...
def of_int(left: L) -> int: ...
def of_two(left: L) -> Joined | S: ...


@pytest.mark.parametrize(
    ("function", "tree", "argument", "reason"),
    [
        (of_list, ALONE, "argument 'left'", "L has no window"),
        (of_one, WINDOWED, "argument 'left'", "L has a window, so it gets a list"),
        (of_other, ALONE, "argument 'left'", "it is S, but the master stream is L"),
        (reversed_pair, PAIR, "argument 'rights'", "R is joined to L, not the other way round"),
        (not_in_tree, PAIR, "argument 'rights'", "S is not in the join tree"),
        (not_this_edge, CHAIN, "argument 'others'", "S is not joined to L"),
        (as_dict, PAIR, "argument 'rights'", "in a mapping of their own"),
        (bare, PAIR, "argument 'right'", "R is joined, so it comes in a mapping"),
        (of_one, ALONE, "argument 'rights'", "R is not in the join tree"),
        (unprovided, ALONE, "argument 'database'", "nothing provides Database"),
        (untyped, ALONE, "argument 'database'", "it has no type"),
        (any_number, PAIR, "argument 'others'", "any number of values"),
        (by_place, ALONE, "argument 'database'", "by its place only"),
        (no_arguments, ALONE, "arguments", "it has none"),
        (of_int, ALONE, "return type", "int is no dataclass"),
        (of_two, ALONE, "return type", "Joined, S are several streams"),
    ],
)
def test_what_does_not_fit_is_an_error_that_names_the_argument(
    function: Callable[..., Any], tree: JoinTree, argument: str, reason: str
) -> None:
    """At construction, before anything is read."""
    with pytest.raises(SignatureInvalid, match=reason) as caught:
        read_signature(function, tree, Injector())
    assert (caught.value.function, caught.value.argument) == (function.__qualname__, argument)


class Callme:
    """An object that is called."""

    def __call__(self, left: L) -> Joined: ...

    def method(self, left: L) -> Joined: ...


@pytest.mark.parametrize("function", [Callme(), Callme().method, partial(defaulted, limit=3)])
def test_whatever_can_be_called_can_be_a_process_function(function: Callable[..., Any]) -> None:
    """Objects, their methods, and functions with some arguments already given."""
    declared = declare(function, stream_cls=L)
    assert declared.output is not None
    assert declared.output.cls is Joined


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stream_cls": L, "join_tree": PAIR}, "both stream_cls and join_tree"),
        ({"deserializers": {S: dict}}, "deserializers: S is no stream of this mill.*L"),
        ({"serializers": {S: dict}}, "serializers: S is no stream of this mill.*Joined"),
        (
            {"join_tree": join_streams(L, JoinWith(R, K, get_field("nmae")))},
            r"R has no field 'nmae'.*mean name\?",
        ),
        ({"join_tree": join_streams(L, JoinWith(R, K, get_field("name")))}, "int keys on the left, text keys on the"),
        (
            {"join_tree": join_streams(L, JoinWith(R, K + "a", K))},
            r"\(k \+ 'a'\) on L: '\+' does not go with int and str",
        ),
        ({"join_tree": join_streams(L, JoinWith(R, K["x"], K))}, r"k\['x'\] on L: k has no parts"),
    ],
    ids=["both", "deserializer", "serializer", "field", "kinds", "operator", "part"],
)
def test_a_declaration_is_held_against_itself(options: Mapping[str, Any], message: str) -> None:
    """What could never work is said at once."""
    with pytest.raises(ConfigError, match=message):
        declare(one, **options)


def test_what_a_call_gives_is_held_against_the_return_type() -> None:
    """An element of another class would end up in a stream of Joined."""
    returns = read_signature(generator, ALONE, Injector()).returns
    ends, row = EndOfStream(), Joined(1, [])
    assert list(returns.elements(iter([row, None, ends]))) == [row, ends]
    assert list(returns.elements(iter([]))) == []
    assert list(returns.elements(None)) == []
    with pytest.raises(TypeError, match="after EndOfStream"):
        list(returns.elements(iter([ends, row])))
    with pytest.raises(TypeError, match="its signature returns Joined"):
        list(returns.elements(L(1, "a")))
    with pytest.raises(TypeError, match="its signature returns nothing"):
        list(read_signature(none, ALONE, Injector()).returns.elements(row))


def test_a_position_is_shown_in_words() -> None:
    """It stands in errors."""
    assert str(Position(2, 17)) == "partition 2, offset 17"
