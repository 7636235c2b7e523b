"""A task's pass over the keys of a stream: pieces of neighbours, the first fault, the first end.

The pieces of a task begin with single elements and double in size after every few hundred, so what the driver holds
grows with the logarithm of the stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from floodmark.mill.brokers import OFFSET, PARTITION, VALUE
from floodmark.mill.columns import ARROW_TYPES, IS_END
from floodmark.mill.horizon import Keys

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


# A batch of elements that is taken as a whole: one lane, no end among them, keys that never go down.
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


PIECES_OF_ONE_SIZE = 256
PLACES = ("first", "next", "count", "run", "end", "rest", "fault")
TEXTS = ("text", "key", "before")
NOTES = "_fm_notes"


@dataclass
class Growing:
    """The piece that a task is at."""

    first: int
    low: Keys
    high: Keys
    next: int = 0
    count: int = 0
    run: int | None = None


@dataclass
class Survey:
    """One task's pass; a lane that has ended is not looked at any further."""

    types: tuple[str, ...]
    ordered: bool
    lane: int | None = None
    piece: Growing | None = None
    size: int = 1
    made: int = 0
    is_over: bool = False
    has_rest: bool = False
    out: list[dict[str, Any]] = field(default_factory=list)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not self.take_whole(batch):
                self.take_each(batch)
            yield self.told()
        self.close()
        yield self.told()

    def noted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches themselves, with what was found on their last rows: so one pass both reads keys and tells."""
        before: pa.RecordBatch | None = None
        for batch in filter(len, batches):
            if before is not None:
                yield self.with_notes(before)
            if not self.take_whole(batch):
                self.take_each(batch)
            before = batch
        self.close()
        if before is not None:
            yield self.with_notes(before)

    def with_notes(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        rows, self.out = self.out, []
        notes = [None] * (batch.num_rows - 1) + [rows or None]
        return batch.append_column(NOTES, pa.array(notes, self.notes_type()))

    def notes_type(self) -> pa.DataType:
        """Of the column that holds what was found."""
        import pyarrow as pa

        return pa.list_(pa.struct(list(self.schema())))

    def take_whole(self, batch: pa.RecordBatch) -> bool:
        """Take a batch of elements that go on as they should, which nearly all do; False if it has to be looked at."""
        stride = stride_of(batch, [batch.column(name) for name in self.key_names], ordered=self.ordered)
        if stride is None:
            return False
        self.enter(stride.lane)
        if self.is_over or (self.ordered and self.piece is not None and goes_down(self.piece.high, stride.keys(0))):
            return False
        self.add(stride.offset(0), stride.keys(0))
        self.extend(stride)
        return True

    def take_each(self, batch: pa.RecordBatch) -> None:
        names = [PARTITION, OFFSET, IS_END, VALUE, *self.key_names]
        columns = [batch.column(name).to_pylist() for name in names]
        for lane, offset, is_end, text, *keys in zip(*columns, strict=True):
            self.take(lane, offset, is_end, text, tuple(keys))

    def take(self, lane: int, offset: int, is_end: bool, text: str | None, keys: Keys) -> None:
        self.enter(lane)
        if self.is_over:
            self.note_rest(offset)
            return
        if is_end:
            self.stop(end=offset)
        elif None in keys:
            self.stop(fault=offset, text=text)
        else:
            self.add(offset, keys)

    def enter(self, lane: int) -> None:
        if lane != self.lane:
            self.close()
            self.lane, self.is_over, self.has_rest = lane, False, False

    def add(self, offset: int, keys: Keys) -> None:
        piece = self.piece
        if piece is None:
            self.piece = Growing(offset, keys, keys, offset + 1, 1)
            return
        if self.ordered and goes_down(piece.high, keys):
            new, old = next((n, o) for n, o in zip(keys, piece.high, strict=True) if n < o)
            self.stop(fault=offset, key=repr(new), before=repr(old))
            return
        changes = keys[:1] != piece.high[:1]
        if piece.count >= self.size and keys != piece.high:
            self.close()
            self.piece = Growing(offset, keys, keys, offset + 1, 1, offset if changes else None)
            return
        piece.high, piece.next, piece.count = keys, offset + 1, piece.count + 1
        piece.run = offset if changes else piece.run

    def extend(self, stride: Stride) -> None:
        """What `add` would do with every element of the stride behind its first, a whole piece at a time."""
        place = 1
        while place < stride.count and self.piece is not None:
            end = stride.next_change(place + max(self.size - self.piece.count, 0))
            self.grow(self.piece, stride, place, end)
            if end < stride.count:
                self.add(stride.offset(end), stride.keys(end))
            place = end + 1

    def grow(self, piece: Growing, stride: Stride, begin: int, end: int) -> None:
        if end > begin:
            piece.high, piece.next = stride.keys(end - 1), stride.offset(end - 1) + 1
            piece.count += end - begin
            piece.run = stride.last_run(begin, end) or piece.run

    def close(self) -> None:
        """The piece is whole; after many of one size they become larger."""
        piece = self.piece
        if piece is None:
            return
        lows = {f"low{place}": key for place, key in enumerate(piece.low)}
        highs = {f"high{place}": key for place, key in enumerate(piece.high)}
        plain = {"first": piece.first, "next": piece.next, "count": piece.count, "run": piece.run}
        self.out.append({"partition": self.lane, **plain, **lows, **highs})
        self.piece, self.made = None, self.made + 1
        self.size *= 2 if self.made % PIECES_OF_ONE_SIZE == 0 else 1

    def note_rest(self, offset: int) -> None:
        """Once: there is more behind the end."""
        if not self.has_rest:
            self.out.append({"partition": self.lane, "rest": offset})
        self.has_rest = True

    def stop(self, **found: object) -> None:
        self.close()
        self.out.append({"partition": self.lane, **found})
        self.is_over = True

    @property
    def key_names(self) -> list[str]:
        return [f"k{place}" for place in range(len(self.types))]

    def told(self) -> pa.RecordBatch:
        import pyarrow as pa

        rows, self.out = self.out, []
        return pa.RecordBatch.from_pylist(rows, schema=self.schema())

    def schema(self) -> pa.Schema:
        import pyarrow as pa

        places, texts = ((name, pa.int64()) for name in PLACES), ((name, pa.string()) for name in TEXTS)
        keys = [(f"{e}{p}", ARROW_TYPES[kind]()) for e in ("low", "high") for p, kind in enumerate(self.types)]
        return pa.schema([("partition", pa.int32()), *places, *texts, *keys])


def goes_down(before: Keys, keys: Keys) -> bool:
    """Whether any key is lower than the one before it."""
    return any(new < old for old, new in zip(before, keys, strict=True))
