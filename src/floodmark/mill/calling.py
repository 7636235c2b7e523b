"""One call of the process function in a task, with everything that its signature asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from floodmark.mill.injection import Attempt, Injector
from floodmark.mill.pairing import Pairing
from floodmark.mill.signature import Injected, Signature

Pairs: TypeAlias = "list[tuple[Any, list[Any]]]"
"""Left elements of one edge, each with its partners."""
Call: TypeAlias = "Callable[[object, Sequence[Pairs], Attempt], Iterator[object]]"


@contextmanager
def caller(signature: Signature, injector: Injector) -> Iterator[Call]:
    """How a task calls the function: (master element or list, pairs by number of the edge, attempt) to its output.

    Opened once per task. The output is an iterator, with an EndOfStream last if the function ends the stream; what
    the function raises comes out of it.
    """
    with injector.opened(signature.wanted) as given:
        arguments, function, elements = signature.arguments, signature.function, signature.returns.elements

        def call(master: object, pairs: Sequence[Pairs], attempt: Attempt) -> Iterator[object]:
            named: dict[str, object] = {}
            for argument in arguments:
                if not isinstance(argument, Injected):
                    named[argument.name] = Pairing(merged([pairs[edge] for edge in argument.edges]))
                elif argument.wanted is Attempt:
                    named[argument.name] = attempt
                else:
                    named[argument.name] = given[argument.wanted]
            return elements(function(master, **named))

        yield call


def merged(edges: Sequence[Pairs]) -> Pairs:
    """Several edges as one: an element's partners follow each other in the order of the edges."""
    if len(edges) == 1:
        return edges[0]
    found: dict[int, tuple[Any, list[Any]]] = {}
    for pairs in edges:
        for left, rights in pairs:
            found.setdefault(id(left), (left, []))[1].extend(rights)
    return list(found.values())
