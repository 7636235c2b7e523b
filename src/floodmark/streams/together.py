"""Calls on many items at once, in threads or as coroutines, bounded, with the results in the items' order."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

CAUGHT = (Exception, SystemExit)  # sys.exit() in a user's function fails its record, not the worker


@dataclass(frozen=True)
class Raised:
    """What stands in the place of a result when the call raised."""

    error: BaseException


def call_one(call: Callable[[object], object], item: object) -> object:
    """The result of the call, or the exception as a value."""
    try:
        return call(item)
    except CAUGHT as error:
        return Raised(error)


def call_together(call: Callable[[object], object], items: Sequence[object], *, at_once: int) -> list[object]:
    """The results in order, with at most `at_once` calls under way; a call may be a function or a coroutine."""
    if not items:
        return []
    # A thread of its own for the loop: the caller may run inside one already, as every notebook does.
    with ThreadPoolExecutor(min(at_once, len(items))) as workers, ThreadPoolExecutor(1) as looping:
        return looping.submit(asyncio.run, _gather(call, items, at_once, workers)).result()


async def _gather(
    call: Callable[[object], object], items: Sequence[object], at_once: int, workers: ThreadPoolExecutor
) -> list[object]:
    turn = asyncio.Semaphore(at_once)

    async def one(item: object) -> object:
        async with turn:
            result = await asyncio.get_running_loop().run_in_executor(workers, call_one, call, item)
            return await _awaited(result) if inspect.isawaitable(result) else result

    return list(await asyncio.gather(*(one(item) for item in items)))


async def _awaited(coroutine: object) -> object:
    try:
        return await coroutine  # type: ignore[misc]  # seen to be awaitable by the caller
    except CAUGHT as error:
        return Raised(error)
