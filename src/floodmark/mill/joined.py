"""Joined rows as they come to a task, column by column: elements, and which elements of other streams are theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from floodmark.errors import ElementInvalid
from floodmark.mill.brokers import OFFSET, PARTITION, VALUE
from floodmark.mill.codec import Codec
from floodmark.mill.injection import Position
from floodmark.mill.mishaps import mishap

if TYPE_CHECKING:
    import pyarrow as pa

Pairs: TypeAlias = "list[tuple[Any, list[Any]]]"
"""Left elements of one edge, each with its partners."""


@dataclass(frozen=True)
class Joined:
    """A node of the tree as it stands in a row: how its elements are read, and the nodes joined to it.

    `edge` is the number of the edge that leads to it, as the signature counts them; an inner one needs a partner.
    """

    codec: Codec
    edge: int = -1
    branches: tuple[Joined, ...] = ()
    is_inner: bool = True

    @property
    def number(self) -> int:
        """That of the node: the root is 0."""
        return self.edge + 1

    def walk(self) -> Iterator[Joined]:
        """The node, and all below it."""
        yield self
        for branch in self.branches:
            yield from branch.walk()


@dataclass(frozen=True)
class Sheaf:
    """Elements of one node in their order, where they stand, and for each branch what is joined to them."""

    node: Joined
    elements: list[Any]
    partitions: pa.Array
    offsets: pa.Array
    partners: tuple[Bundle, ...]

    def position(self, place: int) -> Position:
        return Position(self.partitions[place].as_py(), self.offsets[place].as_py())

    def gather(self, begin: int, end: int, by_edge: list[Pairs]) -> None:
        """Add the pairs of the elements between two places, and of their partners."""
        for bundle in self.partners:
            bounds, sheaf = bundle.bounds, bundle.sheaf
            pairs, partners = by_edge[sheaf.node.edge], sheaf.elements
            for place in range(begin, end):
                pairs.append((self.elements[place], partners[bounds[place] : bounds[place + 1]]))
            if sheaf.partners:
                sheaf.gather(bounds[begin], bounds[end], by_edge)

    def each_with_partners(self) -> Iterator[list[Pairs]]:
        """For every element its pairs, by the number of the edge, where all edges leave this node."""
        lists = [bundle.lists() for bundle in self.partners]
        for element, *partners in zip(self.elements, *lists, strict=True):
            yield [[(element, own)] for own in partners]


@dataclass(frozen=True)
class Bundle:
    """Lists of elements: the one at a place begins where its bound says and ends before the next bound."""

    bounds: Sequence[int]
    sheaf: Sheaf

    def lists(self) -> list[list[Any]]:
        elements = self.sheaf.elements
        return [elements[begin:end] for begin, end in pairwise(self.bounds)]

    def is_flat(self) -> bool:
        """Whether every list has one element, and no partner has partners of its own."""
        return isinstance(self.bounds, range) and not any(bundle.sheaf.partners for bundle in self.sheaf.partners)


def sheaf_in(column: pa.StructArray, node: Joined) -> Sheaf:
    """The elements of a column of records, with their partners. Raises a mishap where one cannot be read."""
    partners = tuple(bundle_in(column.field(f"b{place}"), branch) for place, branch in enumerate(node.branches))
    return sheaf_of(node, column.field(PARTITION), column.field(OFFSET), column.field(VALUE), partners)


def bundle_in(column: pa.ListArray, node: Joined) -> Bundle:
    """The same for a column of lists of records."""
    import numpy as np
    import pyarrow.compute as pc

    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    bounds = np.concatenate(([0], np.cumsum(lengths))).tolist()
    return Bundle(bounds, sheaf_in(column.flatten(), node))


def sheaf_of(
    node: Joined, partitions: pa.Array, offsets: pa.Array, values: pa.Array, partners: tuple[Bundle, ...]
) -> Sheaf:
    """Elements that stand here, with their partners. Raises a mishap where one cannot be read."""
    texts = [text or "null" for text in values.to_pylist()]
    try:
        elements = node.codec.from_texts(texts)
    except (ElementInvalid, ValueError):
        places = zip(partitions.to_pylist(), offsets.to_pylist(), strict=True)
        elements = [decoded_one(node.codec, text, *place) for text, place in zip(texts, places, strict=True)]
    return Sheaf(node, elements, partitions, offsets, partners)


def decoded_one(codec: Codec, text: str, partition: int, offset: int) -> object:
    """One element. Raises a mishap with its position."""
    try:
        return codec.from_text(text)
    except ElementInvalid as error:
        raise mishap(error, partition, offset) from None
