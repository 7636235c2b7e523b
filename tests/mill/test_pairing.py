"""The mapping of a process function: by the element given, whether or not it can be hashed."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from floodmark.mill.injection import Pairing
from floodmark.mill.process import merged_edges as merged


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
    """The usual mistake is a lookup by the unfit element."""
    with pytest.raises(KeyError, match=r"Mutable\(k=9\) was not given to this call"):
        Pairing([(Mutable(1), ["a"])])[Mutable(9)]


def test_partners_from_several_edges_follow_each_other() -> None:
    """A class that stands for several nodes gets them all, in the order of the tree."""
    first, second = Mutable(1), Mutable(1)
    assert merged([[(first, ["a"]), (second, ["b"])], [(first, ["c"]), (second, [])]]) == [
        (first, ["a", "c"]),
        (second, ["b"]),
    ]
