"""One call of the process function in a task, with everything that its signature asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from floodmark.mill.injection import Attempt, Injector
from floodmark.mill.pairing import Pairing
from floodmark.mill.sheaves import Pairs
from floodmark.mill.signature import Injected, Signature

Call: TypeAlias = "Callable[[object, Sequence[Pairs], Attempt], object]"


@contextmanager
def caller(signature: Signature, injector: Injector) -> Iterator[Call]:
    """How a task calls the function: (master element or list, pairs by number of the edge, attempt) to what it returns.

    Opened once per task.
    """
    with injector.opened(signature.wanted) as given:
        function = signature.function
        injected = {each.name: each.wanted for each in signature.arguments if isinstance(each, Injected)}
        fixed = {name: given[wanted] for name, wanted in injected.items() if wanted is not Attempt}
        attempts = [name for name, wanted in injected.items() if wanted is Attempt]
        mapped = [(each.name, each.edges) for each in signature.mapped]

        def call(master: object, pairs: Sequence[Pairs], attempt: Attempt) -> object:
            named = dict(fixed)
            for name, edges in mapped:
                named[name] = Pairing(pairs[edges[0]] if len(edges) == 1 else merged([pairs[e] for e in edges]))
            for name in attempts:
                named[name] = attempt
            return function(master, **named)

        def call_alone(master: object, *_: object) -> object:
            return function(master, **fixed)

        yield call if mapped or attempts else call_alone


def merged(edges: Sequence[Pairs]) -> Pairs:
    """Several edges as one: an element's partners follow each other in the order of the edges."""
    found: dict[int, tuple[Any, list[Any]]] = {}
    for pairs in edges:
        for left, rights in pairs:
            found.setdefault(id(left), (left, []))[1].extend(rights)
    return list(found.values())
