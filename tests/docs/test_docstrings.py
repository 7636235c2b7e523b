"""Every public name says what it is, and shows how it is used, in an example that runs."""

from __future__ import annotations

import doctest
import inspect
import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

import floodmark as fm
from floodmark.hwm.mark import _kinds as kinds
from floodmark.stores.opening import LOADERS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

PACKAGES = (
    "floodmark", "floodmark.hwm", "floodmark.rules", "floodmark.sinks", "floodmark.sources", "floodmark.stores",
    "floodmark.streams", "floodmark.medallion", "floodmark.mill", "floodmark.health", "floodmark.lineage",
    "floodmark.jobs", "floodmark.step", "floodmark.web", "floodmark.testing",
)  # fmt: skip
BEYOND = ("floodmark.jobs.display:Preview",)
"""What users hold in their hands, and never import."""
WITH_SPARK = re.compile(r"^\s*(>>>|\.\.\.).*\bspark\b(?!=|_)", re.MULTILINE)


@dataclass
class Order:
    """What a user's stream is made of."""

    id: int
    day: date


@dataclass
class Payment:
    """What is joined to it."""

    order_id: int


@dataclass
class Shipment:
    """What comes out."""

    order_id: int


def ship(order: Order) -> Shipment:
    return Shipment(order.id)


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


def names_with_docstrings() -> list[str]:
    """Every class and function of the public packages, each once: a type variable or a constant has no docstring."""
    places = [f"{package}:{name}" for package in PACKAGES for name in import_module(package).__all__]
    by_thing = {id(thing): place for place in reversed(places) if is_documentable(thing := named(place))}
    return [place for place in places if place in by_thing.values()]


def example_of(place: str) -> str:
    return inspect.getdoc(named(place)) or ""


TIMES = {"date": date, "datetime": datetime, "timedelta": timedelta, "timezone": timezone}
COMMON = {"fm": fm, **TIMES, "Order": Order, "Payment": Payment, "Shipment": Shipment, "ship": ship}
NAMES = (*names_with_docstrings(), *BEYOND)
ON_SPARK = [place for place in NAMES if WITH_SPARK.search(example_of(place))]


def outcome(place: str, **known: object) -> tuple[bool, str]:
    """Whether the docstring has an example, and what went wrong in it.

    It knows the public names of its package, `fm`, the classes of datetime, an empty `folder`, and a mill's own
    classes and function: those of a user.
    """
    home = import_module(place.partition(":")[0])
    names = {name: getattr(home, name) for name in getattr(home, "__all__", dir(home))}
    test = doctest.DocTestParser().get_doctest(example_of(place), names | COMMON | known, place, None, 0)
    complaints: list[str] = []
    doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS).run(test, out=complaints.append)
    return bool(test.examples), "".join(complaints)


@pytest.fixture
def _own_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an example registers is forgotten after it."""
    monkeypatch.setattr("floodmark.hwm.mark._kinds", dict(kinds))
    monkeypatch.setattr("floodmark.stores.opening.LOADERS", dict(LOADERS))


@pytest.mark.usefixtures("_own_kinds")
@pytest.mark.parametrize("place", [place for place in NAMES if place not in ON_SPARK])
def test_every_public_name_shows_an_example_that_runs(place: str, tmp_path: Path) -> None:
    """In its docstring, as `help(fm.sinks.Delta)` prints it."""
    assert outcome(place, folder=str(tmp_path)) == (True, "")


@pytest.mark.parametrize("place", ON_SPARK)
def test_an_example_that_names_a_session_runs_in_one(place: str, tmp_path: Path, spark: SparkSession) -> None:
    """It is called `spark` there, as in a notebook."""
    assert outcome(place, folder=str(tmp_path), spark=spark) == (True, "")
