"""Every public name says what it is, and those that people write down show how, in examples that run."""

from __future__ import annotations

import doctest
import inspect
from datetime import timedelta
from importlib import import_module

import pytest

import floodmark as fm

PACKAGES = (
    "floodmark", "floodmark.hwm", "floodmark.rules", "floodmark.sinks", "floodmark.sources", "floodmark.stores",
    "floodmark.streams", "floodmark.medallion", "floodmark.mill", "floodmark.health", "floodmark.lineage",
    "floodmark.jobs", "floodmark.step", "floodmark.web", "floodmark.testing",
)  # fmt: skip
MARKS = [n for n in fm.hwm.__all__ if n.endswith("HWM") and not inspect.isabstract(getattr(fm.hwm, n))]
WRITTEN = (
    *(f"floodmark.sinks:{name}" for name in fm.sinks.__all__),
    *(f"floodmark.sources:{name}" for name in fm.sources.__all__),
    *(f"floodmark.rules:{name}" for name in fm.rules.__all__ if name.islower() and name != "validate_data_quality"),
    *(f"floodmark.hwm:{name}" for name in MARKS),
    "floodmark.hwm:deserialize", "floodmark.stores:open", "floodmark.streams:retry", "floodmark:heal",
    "floodmark.medallion:Lookup", "floodmark:Job", "floodmark.jobs:Retries", "floodmark.jobs.display:Preview",
)  # fmt: skip
"""What stands in a job: sources, sinks, rules, marks, stores."""


def named(place: str) -> object:
    home, _, name = place.partition(":")
    return getattr(import_module(home), name)


def is_documentable(thing: object) -> bool:
    """A class or a function: a constant's docstring is a comment of the source, which Python does not keep."""
    return inspect.isclass(thing) or inspect.isfunction(thing)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_has_a_docstring_of_its_own(package: str) -> None:
    """What a base class says of itself does not count."""
    home = import_module(package)
    things = {name: getattr(home, name) for name in home.__all__}
    assert [name for name, thing in things.items() if is_documentable(thing) and not thing.__doc__] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_function_says_the_types_it_takes_and_gives(package: str) -> None:
    """In its signature, where editors and `help` find them."""
    home = import_module(package)
    functions = [thing for name in home.__all__ if inspect.isfunction(thing := getattr(home, name))]
    bare = [f for f in functions if inspect.signature(f).return_annotation is inspect.Signature.empty]
    assert bare == []


@pytest.mark.parametrize("place", WRITTEN)
def test_what_stands_in_a_job_shows_an_example_that_runs(place: str) -> None:
    """In its docstring, as `help(fm.sinks.Delta)` prints it."""
    thing = named(place)
    name, docstring = place.partition(":")[2], inspect.getdoc(thing) or ""
    known = {"fm": fm, "timedelta": timedelta, name: thing, getattr(thing, "__name__", name): thing}
    test = doctest.DocTestParser().get_doctest(docstring, known, place, None, 0)
    results = doctest.DocTestRunner(verbose=False).run(test)
    assert (bool(test.examples), results.failed) == (True, 0)
