"""A batch of elements that is taken as a whole: one lane, no end among them, keys that never go down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodmark.mill.brokers import OFFSET, PARTITION
from floodmark.mill.element_columns import IS_END
from floodmark.mill.horizon import Keys

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


@dataclass(frozen=True)
class Stride:
    """Neighbouring elements; `changes` are the places at which any key is another one than before, `runs` key 0."""

    lane: int
    offsets: npt.NDArray[np.int64]
    columns: Sequence[pa.Array]
    changes: npt.NDArray[np.intp]
    runs: npt.NDArray[np.intp]

    @property
    def count(self) -> int:
        return len(self.offsets)

    def offset(self, place: int) -> int:
        return int(self.offsets[place])

    def keys(self, place: int) -> Keys:
        return tuple(column[place].as_py() for column in self.columns)

    def next_change(self, place: int) -> int:
        """The first change at or behind the place; the count if there is none."""
        found = int(self.changes.searchsorted(place))
        return int(self.changes[found]) if found < len(self.changes) else self.count

    def last_run(self, begin: int, end: int) -> int | None:
        """The offset of the last element between two places that has another key 0 than the one before it."""
        found = int(self.runs.searchsorted(end)) - 1
        return self.offset(int(self.runs[found])) if found >= 0 and self.runs[found] >= begin else None


def stride_of(batch: pa.RecordBatch, columns: Sequence[pa.Array], *, ordered: bool) -> Stride | None:
    """The batch as a stride; None where its elements have to be looked at one by one."""
    import numpy as np
    import pyarrow.compute as pc

    lanes, ends = batch.column(PARTITION), batch.column(IS_END)
    if not batch.num_rows or pc.any(ends).as_py() or any(column.null_count for column in columns):
        return None
    if pc.min_max(lanes).as_py() != {"min": lanes[0].as_py(), "max": lanes[0].as_py()}:
        return None
    keys: list[npt.NDArray[Any]] = [column.to_numpy(zero_copy_only=False) for column in columns]
    if ordered and any(bool(np.any(own[1:] < own[:-1])) for own in keys):
        return None
    differs = [np.flatnonzero(own[1:] != own[:-1]) + 1 for own in keys]
    none = np.empty(0, dtype=np.intp)
    changes = np.unique(np.concatenate(differs)) if differs else none
    offsets = batch.column(OFFSET).to_numpy()
    return Stride(lanes[0].as_py(), offsets, columns, changes, differs[0] if differs else none)
