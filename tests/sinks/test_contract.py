"""What a sink or a source can do is known by the names of its methods: a name must not mean two things."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType

import pytest

from floodmark import sinks, sources
from floodmark.sinks import contract as sink_contract
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
