"""Streams that are joined by one key: sorted by it they go through a task together, and are joined as they pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from floodmark.errors import ElementInvalid
from floodmark.mill.brokers import OFFSET, PARTITION, VALUE
from floodmark.mill.codec import Codec
from floodmark.mill.injection import Position
from floodmark.spark.faults import ElementFault

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


# Joined rows as they come to a task, column by column: elements, and which elements of other streams are theirs.
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
    """The elements of a column of records, with their partners. Raises an ElementFault where one cannot be read."""
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
    """Elements that stand here, with their partners. Raises an ElementFault where one cannot be read."""
    texts = [text or "null" for text in values.to_pylist()]
    try:
        elements = node.codec.from_texts(texts)
    except (ElementInvalid, ValueError):
        places = zip(partitions.to_pylist(), offsets.to_pylist(), strict=True)
        elements = [decoded_one(node.codec, text, *place) for text, place in zip(texts, places, strict=True)]
    return Sheaf(node, elements, partitions, offsets, partners)


def decoded_one(codec: Codec, text: str, partition: int, offset: int) -> object:
    """One element. Raises an ElementFault with its position."""
    try:
        return codec.from_text(text)
    except ElementInvalid as error:
        raise ElementFault.invalid(error, partition, offset) from None


NODE, KEY = "node", "k0"
"""Beside an element: the number of its node in the tree, and the key that all of them are joined by."""


def merged(batches: Iterable[pa.RecordBatch], root: Joined) -> Iterator[tuple[pa.Array, Bundle]]:
    """The masters of each batch, with their key and their partners. Rows come in the order of key, node and offset."""
    for rows in whole_keys(batches):
        heap = Heap.of(rows, root)
        masters = heap.rows_of(root, heap.given(root))
        yield rows.column(KEY).take(masters), heap.bundle(root, masters)


def whole_keys(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, cut only between two keys: what may go on in the next batch waits for it."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    for batch in filter(len, batches):
        changes = changes_in(batch.column(KEY))
        starts_anew = bool(waiting) and waiting[-1].column(KEY)[-1] != batch.column(KEY)[0]
        if not len(changes) and not starts_anew:
            waiting.append(batch)
            continue
        cut = int(changes[-1]) if len(changes) else 0
        yield pa.concat_batches([*waiting, batch.slice(0, cut)])
        waiting = [batch.slice(cut)]
    if waiting:
        yield pa.concat_batches(waiting)


def changes_in(keys: pa.Array) -> npt.NDArray[np.intp]:
    """The places at which another key begins."""
    import numpy as np

    values = keys.to_numpy(zero_copy_only=False)
    return np.flatnonzero(values[1:] != values[:-1]) + 1


@dataclass(frozen=True)
class Heap:
    """Rows of whole keys: the number of its key for each, and for every node its rows, and how many each key has."""

    rows: pa.RecordBatch
    keys: npt.NDArray[np.intp]
    own: dict[int, npt.NDArray[np.intp]]
    counts: dict[int, npt.NDArray[np.intp]]

    @classmethod
    def of(cls, rows: pa.RecordBatch, root: Joined) -> Heap:
        import numpy as np

        begins = np.zeros(rows.num_rows, dtype=np.intp)
        begins[changes_in(rows.column(KEY))] = 1
        keys, nodes = np.cumsum(begins), rows.column(NODE).to_numpy()
        own = {node.number: np.flatnonzero(nodes == node.number) for node in root.walk()}
        count = int(keys[-1]) + 1 if len(keys) else 0
        return cls(rows, keys, own, {n: np.bincount(keys[mine], minlength=count) for n, mine in own.items()})

    def given(self, node: Joined) -> npt.NDArray[Any]:
        """How many elements of the node each key has that have all the partners they need."""
        counts = self.counts[node.number]
        for branch in node.branches:
            if branch.is_inner:
                counts = counts * (self.given(branch) > 0)
        return counts

    def rows_of(self, node: Joined, counts: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
        """The rows of a node whose keys have any."""
        mine = self.own[node.number]
        return mine[counts[self.keys[mine]] > 0]

    def bundle(self, node: Joined, rows: npt.NDArray[np.intp]) -> Bundle:
        """These rows as elements, one for each call."""
        return Bundle(range(len(rows) + 1), self.sheaf(node, rows))

    def sheaf(self, node: Joined, rows: npt.NDArray[np.intp]) -> Sheaf:
        taken = self.rows.take(rows)
        partners = tuple(self.partners(branch, self.keys[rows]) for branch in node.branches)
        return sheaf_of(node, taken.column(PARTITION), taken.column(OFFSET), taken.column(VALUE), partners)

    def partners(self, node: Joined, keys: npt.NDArray[np.intp]) -> Bundle:
        """All elements of the node with these keys, key by key: elements with one key have partners of their own."""
        import numpy as np

        counts = self.given(node)
        mine = self.rows_of(node, counts)
        firsts, many = np.cumsum(counts) - counts, counts[keys]
        bounds = np.concatenate(([0], np.cumsum(many)))
        places = np.repeat(firsts[keys] - bounds[:-1], many) + np.arange(bounds[-1])
        return Bundle(bounds.tolist(), self.sheaf(node, mine[places]))
