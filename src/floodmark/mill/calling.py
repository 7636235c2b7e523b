"""One call of the process function in a task, with everything that its signature asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from floodmark.mill.injection import Attempt, Injector
from floodmark.mill.pairing import Pairing
from floodmark.mill.signature import Injected, Signature

Pairs: TypeAlias = "Pairing[Any, Any]"
Call: TypeAlias = Callable[[object, Sequence[Pairs], Attempt], Iterator[object]]


@contextmanager
def caller(signature: Signature, injector: Injector) -> Iterator[Call]:
    """How a task calls the function: (master element or list, mappings in argument order, attempt) to its output.

    Opened once per task. The output is an iterator, with an EndOfStream last if the function ends the stream; what
    the function raises comes out of it.
    """
    with injector.opened(signature.wanted) as given:
        arguments, function, elements = signature.arguments, signature.function, signature.returns.elements

        def call(master: object, mappings: Sequence[Pairs], attempt: Attempt) -> Iterator[object]:
            mapped = iter(mappings)
            named: dict[str, object] = {}
            for argument in arguments:
                if not isinstance(argument, Injected):
                    named[argument.name] = next(mapped)
                elif argument.wanted is Attempt:
                    named[argument.name] = attempt
                else:
                    named[argument.name] = given[argument.wanted]
            return elements(function(master, **named))

        yield call
