"""Streams that are joined by one key: sorted by it they go through a task together, and are joined as they pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodmark.mill.brokers import OFFSET, PARTITION, VALUE
from floodmark.mill.sheaves import Bundle, Joined, Sheaf, sheaf_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

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
