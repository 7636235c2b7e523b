"""Elements with their partners: how a turn's streams are joined on Spark, and what of that comes to a task.

There are two ways to join. Where every edge of the tree has the key that orders its left side, the streams are sorted
by it together and joined as they pass through a task (`SortedRows`): one shuffle, and no lists built by Spark; the rows
"mill, Kafka join" and "mill, files join" of bench_mill pay for it. Any other tree, and windows, are joined as
DataFrames, edge by edge. Both give the function the same calls in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from floodmark.errors import ElementInvalid
from floodmark.mill.brokers import OFFSET, PARTITION, VALUE
from floodmark.mill.codec import Codec
from floodmark.mill.declaration import Declaration
from floodmark.mill.injection import Position
from floodmark.mill.join_tree import Stream, name_of
from floodmark.spark.faults import ElementFault

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

Pairs: TypeAlias = "list[tuple[Any, list[Any]]]"
"""Left elements of one edge, each with its partners."""
Keys: TypeAlias = "Mapping[str, pa.Array]"
ELEMENT = "element"
NODE, KEY = "node", "k0"
"""Beside an element that is joined by merging: the number of its node in the tree, and the key of all of them."""


@dataclass(frozen=True)
class NodeShape:
    """A node of the tree as it stands in a row: how its elements are read, and the nodes joined to it.

    `edge` is the number of the edge that leads to it, as the signature counts them; an inner one needs a partner.
    """

    codec: Codec
    edge: int = -1
    branches: tuple[NodeShape, ...] = ()
    is_inner: bool = True

    @property
    def number(self) -> int:
        """That of the node: the root is 0."""
        return self.edge + 1

    def walk(self) -> Iterator[NodeShape]:
        """The node, and all below it."""
        yield self
        for branch in self.branches:
            yield from branch.walk()


def shape_of(declaration: Declaration, stream: Stream, edge: int = -1) -> NodeShape:
    """The tree as the rows have it."""
    numbers = {each: number for number, each in enumerate(declaration.tree.edges)}
    leaving = declaration.tree.edges_from(stream)
    branches = tuple(shape_of(declaration, each.right, numbers[each]) for each in leaving)
    is_inner = edge < 0 or declaration.tree.edges[edge].how == "inner"
    return NodeShape(declaration.codecs[stream], edge, branches, is_inner)


def joined_rows(declaration: Declaration, frames: Mapping[str, DataFrame]) -> DataFrame:
    """A turn's elements, by stream, as `merged_calls_in` or, of a tree with several keys, `calls_in` takes them."""
    from pyspark.sql import functions as F

    if declaration.has_one_key():
        return rows_by_key(declaration, frames)
    joined = with_partners(declaration, declaration.tree.root, frames)
    rows = joined.select(*(name for name in joined.columns if name == KEY), _record(joined).alias(ELEMENT))
    if declaration.tree.window is None:
        return rows
    return rows.groupBy(KEY).agg(F.sort_array(F.collect_list(ELEMENT)).alias(ELEMENT))


def rows_by_key(declaration: Declaration, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The elements of all streams, those of a key together, in the order of key, stream and offset."""
    from pyspark.sql import functions as F

    is_float = declaration.edge_keys[declaration.tree.edges[0]][0].kind == "float"
    key = F.col(KEY) + F.lit(0.0) if is_float else F.col(KEY)  # -0.0 and 0.0 are one key
    streams = [
        frames[name_of(stream)].select(F.lit(number).alias(NODE), key.alias(KEY), PARTITION, OFFSET, VALUE)
        for number, stream in enumerate(declaration.tree.nodes)
    ]
    rows = reduce(lambda one, other: one.unionByName(other), streams)
    return rows.repartition(KEY).sortWithinPartitions(KEY, NODE, PARTITION, OFFSET)


def with_partners(declaration: Declaration, stream: Stream, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The elements of a stream, each with a list of partners for every edge that leaves it."""
    from pyspark.sql import functions as F

    rows = frames[name_of(stream)]
    for place, edge in enumerate(declaration.tree.edges_from(stream)):
        partners = grouped_by_key(with_partners(declaration, edge.right, frames), f"b{place}")
        rows = rows.join(partners, rows[f"k{place + 1}"] == partners["partner"], edge.how).drop("partner")
        if edge.how == "left":
            no_partners = F.array().cast(rows.schema[f"b{place}"].dataType)
            rows = rows.withColumn(f"b{place}", F.coalesce(F.col(f"b{place}"), no_partners))
    return rows


def grouped_by_key(rows: DataFrame, name: str) -> DataFrame:
    """All elements of a key in one list, in the order of the stream."""
    from pyspark.sql import functions as F

    records = F.sort_array(F.collect_list(_record(rows))).alias(name)
    return rows.groupBy(F.col(KEY).alias("partner")).agg(records)


def _record(rows: DataFrame) -> Column:
    """An element with its partners, without its keys."""
    from pyspark.sql import functions as F

    return F.struct(*(name for name in rows.columns if not name.startswith("k")))


def calls_in(
    batches: Iterable[pa.RecordBatch], root: NodeShape, *, has_window: bool
) -> Iterator[tuple[Keys, ElementLists]]:
    """In a task: by batch the elements of each call, one by one or those of a window, and the keys beside them."""
    for batch in batches:
        column = batch.column(ELEMENT)
        keys = {name: batch.column(name) for name in batch.schema.names if name != ELEMENT}
        yield keys, lists_in(column, root) if has_window else one_by_one(elements_in(column, root))


def merged_calls_in(batches: Iterable[pa.RecordBatch], root: NodeShape) -> Iterator[tuple[Keys, ElementLists]]:
    """The same, from rows of all streams in the order of key, node and offset."""
    for batch in whole_keys(batches):
        rows = SortedRows.of(batch, root)
        masters = rows.rows_of(root)
        yield {KEY: batch.column(KEY).take(masters)}, one_by_one(rows.elements(root, masters))


@dataclass(frozen=True)
class JoinedElements:
    """Elements of one node in their order, where they stand, and for each branch what is joined to them."""

    node: NodeShape
    elements: list[Any]
    partitions: pa.Array
    offsets: pa.Array
    partners: tuple[ElementLists, ...]

    def position(self, place: int) -> Position:
        return Position(self.partitions[place].as_py(), self.offsets[place].as_py())

    def gather(self, begin: int, end: int, by_edge: list[Pairs]) -> None:
        """Add the pairs of the elements between two places, and of their partners."""
        for lists in self.partners:
            bounds, joined = lists.bounds, lists.members
            pairs, partners = by_edge[joined.node.edge], joined.elements
            for place in range(begin, end):
                pairs.append((self.elements[place], partners[bounds[place] : bounds[place + 1]]))
            if joined.partners:
                joined.gather(bounds[begin], bounds[end], by_edge)

    def each_with_partners(self) -> Iterator[list[Pairs]]:
        """For every element its pairs, by the number of the edge, where all edges leave this node."""
        partners = [own.lists() for own in self.partners]
        for element, *lists in zip(self.elements, *partners, strict=True):
            yield [[(element, own)] for own in lists]


@dataclass(frozen=True)
class ElementLists:
    """Lists of elements: the one at a place begins where its bound says and ends before the next bound."""

    bounds: Sequence[int]
    members: JoinedElements

    def lists(self) -> list[list[Any]]:
        elements = self.members.elements
        return [elements[begin:end] for begin, end in pairwise(self.bounds)]

    def is_flat(self) -> bool:
        """Whether every list has one element, and no partner has partners of its own."""
        return isinstance(self.bounds, range) and not any(lists.members.partners for lists in self.members.partners)


def one_by_one(joined: JoinedElements) -> ElementLists:
    """Each element in a list of its own."""
    return ElementLists(range(len(joined.elements) + 1), joined)


def elements_in(column: pa.StructArray, node: NodeShape) -> JoinedElements:
    """The elements of a column of records, with their partners. Raises an ElementFault where one cannot be read."""
    partners = tuple(lists_in(column.field(f"b{place}"), branch) for place, branch in enumerate(node.branches))
    return read_elements(node, column.field(PARTITION), column.field(OFFSET), column.field(VALUE), partners)


def lists_in(column: pa.ListArray, node: NodeShape) -> ElementLists:
    """The same for a column of lists of records."""
    import numpy as np
    import pyarrow.compute as pc

    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    bounds = np.concatenate(([0], np.cumsum(lengths))).tolist()
    return ElementLists(bounds, elements_in(column.flatten(), node))


def read_elements(
    node: NodeShape, partitions: pa.Array, offsets: pa.Array, values: pa.Array, partners: tuple[ElementLists, ...]
) -> JoinedElements:
    """Elements that stand here, with their partners. Raises an ElementFault where one cannot be read."""
    texts = [text or "null" for text in values.to_pylist()]
    try:
        elements = node.codec.from_texts(texts)
    except (ElementInvalid, ValueError):
        places = zip(partitions.to_pylist(), offsets.to_pylist(), strict=True)
        elements = [read_element(node.codec, text, *place) for text, place in zip(texts, places, strict=True)]
    return JoinedElements(node, elements, partitions, offsets, partners)


def read_element(codec: Codec, text: str, partition: int, offset: int) -> object:
    """One element. Raises an ElementFault with its position."""
    try:
        return codec.from_text(text)
    except ElementInvalid as error:
        raise ElementFault.invalid(error, partition, offset) from None


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
class SortedRows:
    """Rows of whole keys: the number of its key for each, and for every node its rows, and how many each key has."""

    batch: pa.RecordBatch
    keys: npt.NDArray[np.intp]
    by_node: dict[int, npt.NDArray[np.intp]]
    counts: dict[int, npt.NDArray[np.intp]]

    @classmethod
    def of(cls, batch: pa.RecordBatch, root: NodeShape) -> SortedRows:
        import numpy as np

        begins = np.zeros(batch.num_rows, dtype=np.intp)
        begins[changes_in(batch.column(KEY))] = 1
        keys, nodes = np.cumsum(begins), batch.column(NODE).to_numpy()
        by_node = {node.number: np.flatnonzero(nodes == node.number) for node in root.walk()}
        count = int(keys[-1]) + 1 if len(keys) else 0
        counts = {number: np.bincount(keys[rows], minlength=count) for number, rows in by_node.items()}
        return cls(batch, keys, by_node, counts)

    def complete_counts(self, node: NodeShape) -> npt.NDArray[Any]:
        """How many elements of the node each key has that have all the partners they need."""
        counts = self.counts[node.number]
        for branch in node.branches:
            if branch.is_inner:
                counts = counts * (self.complete_counts(branch) > 0)
        return counts

    def rows_of(self, node: NodeShape) -> npt.NDArray[np.intp]:
        """The rows of a node that have all the partners they need."""
        rows = self.by_node[node.number]
        return rows[self.complete_counts(node)[self.keys[rows]] > 0]

    def elements(self, node: NodeShape, rows: npt.NDArray[np.intp]) -> JoinedElements:
        """These rows as elements, with their partners."""
        batch = self.batch.take(rows)
        partners = tuple(self.partners(branch, self.keys[rows]) for branch in node.branches)
        return read_elements(node, batch.column(PARTITION), batch.column(OFFSET), batch.column(VALUE), partners)

    def partners(self, node: NodeShape, keys: npt.NDArray[np.intp]) -> ElementLists:
        """All elements of the node with these keys, key by key: elements with one key have partners of their own."""
        import numpy as np

        counts = self.complete_counts(node)
        firsts, many = np.cumsum(counts) - counts, counts[keys]
        bounds = np.concatenate(([0], np.cumsum(many)))
        places = np.repeat(firsts[keys] - bounds[:-1], many) + np.arange(bounds[-1])
        return ElementLists(bounds.tolist(), self.elements(node, self.rows_of(node)[places]))
