"""What a sink or a source can do is known by the names of its methods: a name must not mean two things."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, cast
from unittest.mock import Mock

import pytest

from floodmark import sinks, sources
from floodmark.sinks import contract as sink_contract
from floodmark.sinks.contract import Atomic, answering_at_once, is_atomic, without_own, written_columns
from floodmark.sources import contract as source_contract
from floodmark.testing.doubles import ListSink, RowsSource

SINKS = [ListSink, *(getattr(sinks, name) for name in dir(sinks))]
SOURCES = [RowsSource, *(getattr(sources, name) for name in dir(sources) if name != "Cursor")]


def capabilities(module: ModuleType) -> list[type]:
    """The protocols of a contract that are asked for by isinstance."""
    found = [each for each in vars(module).values() if isinstance(each, type)]
    return [each for each in found if getattr(each, "_is_runtime_protocol", False)]


def parameters(method: Callable[..., object]) -> list[str]:
    return [name for name in inspect.signature(method).parameters if name != "self"]


@pytest.mark.parametrize(
    ("kind", "capability"),
    [(kind, each) for kind in SINKS for each in capabilities(sink_contract)]
    + [(kind, each) for kind in SOURCES for each in capabilities(source_contract)],
    ids=lambda each: each.__name__,
)
def test_a_method_with_the_name_of_a_capability_is_that_capability(kind: type, capability: type) -> None:
    """isinstance compares names alone, and the step would call another method than it means."""
    methods = [name for name, each in vars(capability).items() if inspect.isfunction(each) and not name.startswith("_")]
    own = [name for name in methods if inspect.isfunction(getattr(kind, name, None))]
    assert {name: parameters(getattr(kind, name)) for name in own} == {
        name: parameters(getattr(capability, name)) for name in own
    }


@dataclass(frozen=True)
class TwofoldSink(Atomic):
    """A sink that may have a second commit, and waits unless it is told not to."""

    twice: bool = False
    waits: bool = True

    def commits_twice(self) -> bool:
        return self.twice

    def without_waiting(self) -> TwofoldSink:
        return replace(self, waits=False)


def test_a_sink_that_commits_twice_is_not_atomic() -> None:
    """The first commit may be out and the second not: a repeat must find the same rows."""
    atomic = (ListSink("lake"), TwofoldSink(), TwofoldSink(twice=True), object())
    assert [is_atomic(sink) for sink in atomic] == [isinstance(atomic[0], Atomic), True, False, False]


def test_who_only_looks_waits_for_no_sink() -> None:
    """One that never waits is asked as it is."""
    plain = ListSink("lake")
    assert answering_at_once(plain) is plain
    assert answering_at_once(cast("Any", TwofoldSink())) == TwofoldSink(waits=False)


def test_a_target_gets_no_column_of_ours() -> None:
    """Those that only serve on the way to it."""
    rows = Mock(columns=["id", "_fm_position", "_fm_offset", "fm_own"])
    assert written_columns(rows) == ["id", "fm_own"]
    without_own(rows)
    rows.drop.assert_called_once_with("_fm_position", "_fm_offset")
