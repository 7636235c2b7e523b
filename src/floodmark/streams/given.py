"""What a user gave to a step, looked at when the step is added and not when the first element comes."""

from __future__ import annotations

import inspect

from floodmark.errors import ConfigError
from floodmark.streams import nodes


def plain_call(call: nodes.Call, step: str) -> nodes.Call:
    """The call, if it is one of a plain function."""
    if inspect.iscoroutinefunction(call.func):
        raise ConfigError(
            f"{step} was given the coroutine {call}, which nothing would await.",
            hint="gather elements with partition(n) and use foreach_async",
        )
    if not callable(call.func):
        raise ConfigError(f"{step} needs a function, not {type(call.func).__name__}.", hint="pass a callable")
    return call


def size(step: str, n: int) -> int:
    """The number, if elements can be counted by it."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise ConfigError(f"{step} needs a whole number from 1 on, not {n!r}.", hint="such as 5")
    return n
