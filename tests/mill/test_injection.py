"""Injection by type: instances are sent to the tasks, factories are called in each of them, once."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from floodmark.errors import ConfigError
from floodmark.mill import Attempt
from floodmark.mill.declaration import declare
from floodmark.mill.injection import Injector, Pairing, Position
from floodmark.mill.process import caller
from floodmark.mill.process import merged_edges as merged
from tests.mill.cases import Joined, L

ATTEMPT = Attempt(7, Position(0, 3))


@dataclass
class Connection:
    """Open until it is closed."""

    log: list[str] = field(default_factory=list)

    def close(self) -> None:
        self.log.append("closed")


class Managed(Connection):
    """Something for `with`."""

    def __enter__(self) -> object:
        self.log.append("entered")
        return self

    def __exit__(self, *_: object) -> None:
        self.log.append("left")


def note(left: L, connection: Connection, attempt: Attempt) -> Joined:
    connection.log.append(f"{left.name} at {attempt.position}")
    return Joined(attempt.batch, list(connection.log))


def test_a_factory_is_called_once_per_task_and_what_it_made_is_closed() -> None:
    """A connection cannot travel, so each task makes its own."""
    made: list[Connection] = []
    declared = declare(note, injector={Connection: lambda: made.append(Connection()) or made[-1]})
    with caller(declared.signature, declared.injector) as call:
        outputs = [call(L(1, "a"), [], ATTEMPT), call(L(2, "b"), [], ATTEMPT)]
    assert outputs[1] == Joined(7, ["a at partition 0, offset 3", "b at partition 0, offset 3"])
    assert [connection.log[-1] for connection in made] == ["closed"]


def test_what_can_be_entered_is_entered_and_left() -> None:
    """Also when the function raises."""
    injector = Injector({Managed: Managed})
    with injector.open(frozenset({Managed})) as given:
        managed: Any = given[Managed]
    assert managed.log == ["entered", "left"]


def test_an_instance_is_given_as_it_is() -> None:
    """And is not closed: it belongs to whoever made it."""
    connection = Connection()
    with Injector({Connection: connection}).open(frozenset({Connection})) as given:
        assert given == {Connection: connection}
    assert connection.log == []


def log_all(left: L, log: Callable[[str], None], rates: Mapping[str, float]) -> None: ...


def test_hints_that_are_no_classes_are_providers_keys_too() -> None:
    """A function, or a mapping that joins nothing, is asked for by its hint."""
    rates = {"EUR": 1.0}
    declared = declare(log_all, injector={Callable[[str], None]: print, Mapping[str, float]: rates})
    with declared.injector.open(declared.signature.injected_types) as given:
        assert given == {Callable[[str], None]: print, Mapping[str, float]: rates}


def of_database(left: L, database: sqlite3.Connection) -> None: ...


def test_what_cannot_be_sent_is_refused_with_the_way_out() -> None:
    """Rather than by a stack of pickle's in the first task."""
    database = sqlite3.connect(":memory:")
    with pytest.raises(ConfigError, match=r"Connection cannot be sent to Spark's tasks.*lambda: connect"):
        declare(of_database, injector={sqlite3.Connection: database})
    database.close()


@pytest.mark.parametrize("provider", [5, None, threading.TIMEOUT_MAX])
def test_a_provider_of_something_else_is_refused(provider: object) -> None:
    """It is neither what was asked for, nor makes one."""
    with pytest.raises(ConfigError, match="provider of Connection is"):
        declare(note, injector={Connection: provider})


@dataclass
class Mutable:
    """Equal by value, and unhashable."""

    k: int


@dataclass(frozen=True)
class Frozen:
    """Equal by value, and hashable."""

    k: int


def test_equal_duplicates_keep_their_own_partners() -> None:
    """Two elements that look the same are two elements."""
    first, second = Mutable(1), Mutable(1)
    pairing = Pairing([(first, ["a"]), (second, ["b"])])
    assert (pairing[first], pairing[second]) == (["a"], ["b"])


@pytest.mark.parametrize("cls", [Mutable, Frozen])
def test_an_equal_element_finds_the_first(cls: type[Mutable | Frozen]) -> None:
    """A copy is not identical, and still an answer is expected."""
    pairing = Pairing([(cls(1), ["a"]), (cls(1), ["b"]), (cls(2), [])])
    assert pairing[cls(1)] == ["a"]
    assert pairing[cls(2)] == []
    assert cls(2) in pairing
    assert cls(3) not in pairing


def test_it_is_a_mapping_like_any_other() -> None:
    """Iteration and length are those of the left elements, in order, twins included."""
    pairing = Pairing([(Mutable(1), ["a"]), (Mutable(1), ["b"])])
    assert list(pairing) == [Mutable(1), Mutable(1)]
    assert len(pairing) == 2
    assert list(pairing.values()) == [["a"], ["b"]]


def test_an_element_of_another_call_is_named() -> None:
    """The usual mistake is a lookup by the wrong element."""
    with pytest.raises(KeyError, match=r"Mutable\(k=9\) was not given to this call"):
        Pairing([(Mutable(1), ["a"])])[Mutable(9)]


def test_partners_from_several_edges_follow_each_other() -> None:
    """A class that stands for several nodes gets them all, in the order of the tree."""
    first, second = Mutable(1), Mutable(1)
    assert merged([[(first, ["a"]), (second, ["b"])], [(first, ["c"]), (second, [])]]) == [
        (first, ["a", "c"]),
        (second, ["b"]),
    ]
