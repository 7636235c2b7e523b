"""The order of tasks: who waits for whom, and which part of a workflow is meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from floodmark.errors import ConfigError

Needs = Mapping[str, tuple[str, ...]]
"""By task: the tasks it depends on."""


def require_an_order(needs: Needs, where: str) -> tuple[str, ...]:
    """All tasks, each after those it depends on. Raises ConfigError for a name nobody has, or a loop."""
    for task, upstream in needs.items():
        for name in upstream:
            if name not in needs:
                known = ", ".join(needs)
                raise ConfigError(
                    f"{where}: task '{task}' depends on '{name}', which is not there.", hint=f"one of: {known}"
                )
    try:
        return tuple(TopologicalSorter(needs).static_order())
    except CycleError as error:
        loop = " → ".join(error.args[1])
        raise ConfigError(f"{where}: tasks wait for each other: {loop}.", hint="take one of them out") from None


def upstream_of(needs: Needs, task: str) -> frozenset[str]:
    """Everything the task depends on, and what that depends on."""
    return _reached(needs, task)


def downstream_of(needs: Needs, task: str) -> frozenset[str]:
    """Everything that depends on the task, directly or not."""
    return _reached(_turned_around(needs), task)


def _turned_around(needs: Needs) -> Needs:
    return {task: tuple(other for other, upstream in needs.items() if task in upstream) for task in needs}


def _reached(edges: Needs, start: str) -> frozenset[str]:
    found: set[str] = set()
    waiting: Iterable[str] = edges[start]
    while ahead := [task for task in waiting if task not in found]:
        found.update(ahead)
        waiting = [further for task in ahead for further in edges[task]]
    return frozenset(found)
