"""One pass over the keys of a stream, by which a turn is planned: ranges of neighbours, the first fault, the first end.

Each task surveys its rows as it reads their keys, and notes what it finds beside the last row of a batch, so the pass
that a scan needs is the one that fills the cache. The ranges of a task begin with single elements and double in size
after every few hundred, so what the driver holds grows with the logarithm of the stream.

A batch is surveyed as a whole (`WholeBatch`) if it holds one partition, no end, and keys that never go down; if not,
element by element. The rows of bench_mill over Kafka and files pay for the first way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from floodmark.errors import ElementInvalid, FloodmarkError, KeyDecreased
from floodmark.hwm import Span
from floodmark.mill.brokers import OFFSET, PARTITION, VALUE
from floodmark.mill.horizon import KeyRange, Keys
from floodmark.mill.inputs import IS_END, StreamInput, is_within
from floodmark.mill.keys import ARROW_TYPES, key_columns, keyed_batches, with_columns, with_keys
from floodmark.spark.faults import position_text

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession


NOTES = "_fm_notes"
PLACES = ("first", "next", "count", "run", "end", "rest", "fault")
TEXTS = ("text", "key", "before")
RANGES_OF_ONE_SIZE = 256


@dataclass(frozen=True)
class ScanResult:
    """What the pass met in one partition, in order; `end` is the offset of its first end message.

    `has_rest`: something follows the end. (Offsets cannot tell: transactions use some up.)
    """

    key_ranges: tuple[KeyRange, ...] = ()
    end: int | None = None
    has_rest: bool = False


def surveyed_messages(stream: StreamInput, spark: SparkSession, span: Span, *, ordered: bool) -> DataFrame:
    """Every message of a span with its keys, and what the survey of them found; a stream without order is not surveyed.

    `ordered`: keys shall never go down.
    """
    rows, codec, keys = stream.messages(spark, span), stream.codec, stream.keys_by_column
    if not keys or not stream.inlet.is_ordered:
        return with_keys(rows, codec, keys)
    types = stream.key_types

    def survey(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from KeySurvey(types, ordered).with_notes(keyed_batches(batches, codec, keys))

    return rows.mapInArrow(survey, with_columns(rows.schema, {**key_columns(keys), NOTES: notes_type(types)}))


def scan(stream: StreamInput, messages: DataFrame, *, ordered: bool = True) -> dict[int, ScanResult]:
    """What these messages, as `surveyed_messages` gives them, are, by partition.

    Raises KeyDecreased where `ordered` and keys go down, ElementInvalid for an element without a key.
    """
    from pyspark.sql import functions as F

    if not stream.keys:
        return ends_in(messages)
    surveyed = messages if NOTES in messages.columns else surveyed_in_order(stream, messages, ordered=ordered)
    notes = surveyed.where(F.col(NOTES).isNotNull()).select(F.inline(NOTES)).collect()
    return results_of(stream, [row.asDict() for row in notes], ordered=ordered)


def surveyed_in_order(stream: StreamInput, messages: DataFrame, *, ordered: bool) -> DataFrame:
    """The messages of a stream that has no order of its own, in that of its keys; their text only where one is null."""
    from pyspark.sql import functions as F

    names, types = list(stream.keys_by_column), stream.key_types
    is_bad = F.greatest(F.lit(False), *(F.col(name).isNull() for name in names)) & ~F.col(IS_END)
    rows = messages.select(PARTITION, OFFSET, IS_END, F.when(is_bad, F.col(VALUE)).alias(VALUE), *names).orderBy(*names)

    def survey(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from KeySurvey(types, ordered).with_notes(batches)

    return rows.mapInArrow(survey, with_columns(rows.schema, {NOTES: notes_type(types)}))


def results_of(
    stream: StreamInput, notes: Sequence[Mapping[str, Any]], *, ordered: bool = True
) -> dict[int, ScanResult]:
    """What all tasks noted, by partition. Raises for the first fault of one."""
    results = {}
    for partition in dict.fromkeys(note["partition"] for note in notes):
        own = [note for note in notes if note["partition"] == partition]
        results[partition] = _before_end(stream, own)
        _require_sound(stream, partition, results[partition], own, ordered=ordered)
    return results


def _before_end(stream: StreamInput, notes: Sequence[Mapping[str, Any]]) -> ScanResult:
    """The ranges of one partition up to its first end.

    Offsets tell their order, or, for a stream that was sorted by its keys, the keys do.
    """
    end = min((note["end"] for note in notes if note.get("end") is not None), default=None)
    ranges = [_key_range(note, len(stream.keys)) for note in notes if note.get("first") is not None]
    ranges.sort(key=lambda each: each.first if stream.inlet.is_ordered else (each.low, each.high))
    has_rest = end is not None and any((note.get("rest") or note.get("first") or -1) > end for note in notes)
    return ScanResult(tuple(each for each in ranges if end is None or each.first < end), end, has_rest)


def _key_range(note: Mapping[str, Any], keys: int) -> KeyRange:
    low, high = (tuple(note[f"{end}{place}"] for place in range(keys)) for end in ("low", "high"))
    return KeyRange(note["first"], note["next"], note["count"], low, high, note["run"])


def _require_sound(
    stream: StreamInput, partition: int, result: ScanResult, notes: Sequence[Mapping[str, Any]], *, ordered: bool
) -> None:
    """No fault before the end; and two tasks may each have seen an order that does not hold between them."""
    faults = [n for n in notes if n.get("fault") is not None and (result.end is None or n["fault"] < result.end)]
    if faults:
        raise _fault_error(stream, partition, min(faults, key=lambda note: int(note["fault"])))
    for before, after in pairwise(result.key_ranges) if ordered else ():
        require_order(stream, partition, after.first, before.high, after.low)


def require_order(stream: StreamInput, partition: int, offset: int, before: Keys, keys: Keys) -> None:
    """Raises KeyDecreased if a key is lower than the one before it."""
    for old, new in zip(before, keys, strict=True):
        if new < old:
            raise KeyDecreased(stream.name, position=position_text(partition, offset), key=repr(new), before=repr(old))


def _fault_error(stream: StreamInput, partition: int, fault: Mapping[str, Any]) -> FloodmarkError:
    """What is wrong with an element, in the words of whoever reads its text in full."""
    place = position_text(partition, fault["fault"])
    if fault.get("key") is not None:
        return KeyDecreased(stream.name, position=place, key=fault["key"], before=fault["before"])
    try:
        values = stream.codec.values_from_text(fault.get("text") or "null")
        for key in stream.keys:
            key.of(values)
    except ElementInvalid as error:
        return error.at(place)
    return ElementInvalid(stream.name, field="", reason="it has no key that could be compared", position=place)


def ends_in(messages: DataFrame) -> dict[int, ScanResult]:
    """The same for a stream without keys, where Spark alone can tell: one range before the first end."""
    extents = {row.partition: row for row in _extents(messages)}
    ends = {partition: row.end for partition, row in extents.items() if row.end is not None}
    followed = {partition: (0, end) for partition, end in ends.items() if extents[partition].beyond > end + 1}
    before = {row.partition: row for row in _extents(messages.where(is_within(followed)))} if followed else {}
    ranges = {each: _one_range(before.get(each) if each in followed else row) for each, row in extents.items()}
    return {each: ScanResult(ranges[each], ends.get(each), each in followed) for each in extents}


def _extents(messages: DataFrame) -> list[Row]:
    """By partition: from where to where elements stand, how many they are, the first end, what lies behind it all."""
    from pyspark.sql import functions as F

    is_end, offset = F.col(IS_END), F.col(OFFSET)
    element = F.when(~is_end, offset)
    columns = {"first": F.min(element), "last": F.max(element), "count": F.count(element)}
    columns |= {"end": F.min(F.when(is_end, offset)), "beyond": F.max(offset) + 1}
    return messages.groupBy(PARTITION).agg(*(column.alias(name) for name, column in columns.items())).collect()


def _one_range(extent: Row | None) -> tuple[KeyRange, ...]:
    if extent is None or not extent["count"]:
        return ()
    return (KeyRange(extent.first, extent.last + 1, extent["count"], (), ()),)


@dataclass
class OpenRange:
    """The range that a task is at."""

    first: int
    low: Keys
    high: Keys
    next: int
    count: int = 1
    run: int | None = None


@dataclass
class KeySurvey:
    """One task's pass, by the types of the keys; a partition that has ended is not looked at any further."""

    types: tuple[str, ...]
    ordered: bool
    size: int = 1
    """How many elements a range shall have before the next one begins."""
    partition: int | None = None
    open_range: OpenRange | None = None
    ranges_closed: int = 0
    is_over: bool = False
    has_rest: bool = False
    notes: list[dict[str, Any]] = field(default_factory=list)

    def with_notes(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches themselves; what was found in each, and in those before, stands beside its last row."""
        before: pa.RecordBatch | None = None
        for batch in filter(len, batches):
            if before is not None:
                yield self._with_notes(before)
            if not self.take_whole(batch):
                self.take_each(batch)
            before = batch
        self.close()
        if before is not None:
            yield self._with_notes(before)

    def _with_notes(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        notes, self.notes = self.notes, []
        column = [None] * (batch.num_rows - 1) + [notes or None]
        return batch.append_column(NOTES, pa.array(column, notes_type(self.types)))

    def take_whole(self, batch: pa.RecordBatch) -> bool:
        """Take a batch of elements that go on as they should, which nearly all do; False if it has to be looked at."""
        whole = whole_batch(batch, [batch.column(name) for name in self._key_names], ordered=self.ordered)
        if whole is None:
            return False
        self.enter(whole.partition)
        current = self.open_range
        if self.is_over or (self.ordered and current is not None and goes_down(current.high, whole.keys(0))):
            return False
        self.add(whole.offset(0), whole.keys(0))
        self.extend(whole)
        return True

    def extend(self, whole: WholeBatch) -> None:
        """What `add` would do with every element behind the first, a whole range at a time."""
        place = 1
        while place < whole.count and (current := self.open_range) is not None:
            end = whole.next_change(place + max(self.size - current.count, 0))
            if end > place:
                current.high, current.next = whole.keys(end - 1), whole.offset(end - 1) + 1
                current.count += end - place
                current.run = whole.last_run(place, end) or current.run
            if end < whole.count:
                self.add(whole.offset(end), whole.keys(end))
            place = end + 1

    def take_each(self, batch: pa.RecordBatch) -> None:
        names = [PARTITION, OFFSET, IS_END, VALUE, *self._key_names]
        columns = [batch.column(name).to_pylist() for name in names]
        for partition, offset, is_end, text, *keys in zip(*columns, strict=True):
            self.take(partition, offset, is_end, text, tuple(keys))

    def take(self, partition: int, offset: int, is_end: bool, text: str | None, keys: Keys) -> None:
        self.enter(partition)
        if self.is_over:
            self._note_rest(offset)
        elif is_end:
            self._stop(end=offset)
        elif None in keys:
            self._stop(fault=offset, text=text)
        else:
            self.add(offset, keys)

    def enter(self, partition: int) -> None:
        if partition != self.partition:
            self.close()
            self.partition, self.is_over, self.has_rest = partition, False, False

    def add(self, offset: int, keys: Keys) -> None:
        current = self.open_range
        if current is None:
            self.open_range = OpenRange(offset, keys, keys, offset + 1)
            return
        if self.ordered and goes_down(current.high, keys):
            new, old = next((n, o) for n, o in zip(keys, current.high, strict=True) if n < o)
            self._stop(fault=offset, key=repr(new), before=repr(old))
            return
        changes = keys[:1] != current.high[:1]
        if current.count >= self.size and keys != current.high:
            self.close()
            self.open_range = OpenRange(offset, keys, keys, offset + 1, run=offset if changes else None)
            return
        current.high, current.next, current.count = keys, offset + 1, current.count + 1
        current.run = offset if changes else current.run

    def close(self) -> None:
        """The range is whole; after many of one size they become larger."""
        current = self.open_range
        if current is None:
            return
        lows = {f"low{place}": key for place, key in enumerate(current.low)}
        highs = {f"high{place}": key for place, key in enumerate(current.high)}
        offsets = {"first": current.first, "next": current.next, "count": current.count, "run": current.run}
        self.notes.append({"partition": self.partition, **offsets, **lows, **highs})
        self.open_range, self.ranges_closed = None, self.ranges_closed + 1
        self.size *= 2 if self.ranges_closed % RANGES_OF_ONE_SIZE == 0 else 1

    def _note_rest(self, offset: int) -> None:
        """Once: there is more behind the end."""
        if not self.has_rest:
            self.notes.append({"partition": self.partition, "rest": offset})
        self.has_rest = True

    def _stop(self, **note: object) -> None:
        self.close()
        self.notes.append({"partition": self.partition, **note})
        self.is_over = True

    @property
    def _key_names(self) -> list[str]:
        return [f"k{place}" for place in range(len(self.types))]


def notes_type(types: Sequence[str]) -> pa.DataType:
    """Of the column that holds what a survey found, for keys of these types."""
    import pyarrow as pa

    places, texts = ((name, pa.int64()) for name in PLACES), ((name, pa.string()) for name in TEXTS)
    keys = [(f"{e}{p}", ARROW_TYPES[kind]()) for e in ("low", "high") for p, kind in enumerate(types)]
    return pa.list_(pa.struct([("partition", pa.int32()), *places, *texts, *keys]))


def goes_down(before: Keys, keys: Keys) -> bool:
    """Whether any key is lower than the one before it."""
    return any(new < old for old, new in zip(before, keys, strict=True))


@dataclass(frozen=True)
class WholeBatch:
    """Neighbouring elements; `changes` are the places at which any key is another one than before, `runs` key 0."""

    partition: int
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


def whole_batch(batch: pa.RecordBatch, columns: Sequence[pa.Array], *, ordered: bool) -> WholeBatch | None:
    """The batch as a whole; None where its elements have to be looked at one by one."""
    import numpy as np
    import pyarrow.compute as pc

    partitions, ends = batch.column(PARTITION), batch.column(IS_END)
    if not batch.num_rows or pc.any(ends).as_py() or any(column.null_count for column in columns):
        return None
    if pc.min_max(partitions).as_py() != {"min": partitions[0].as_py(), "max": partitions[0].as_py()}:
        return None
    keys: list[npt.NDArray[Any]] = [column.to_numpy(zero_copy_only=False) for column in columns]
    if ordered and any(bool(np.any(own[1:] < own[:-1])) for own in keys):
        return None
    differs = [np.flatnonzero(own[1:] != own[:-1]) + 1 for own in keys]
    none = np.empty(0, dtype=np.intp)
    changes = np.unique(np.concatenate(differs)) if differs else none
    offsets = batch.column(OFFSET).to_numpy()
    return WholeBatch(partitions[0].as_py(), offsets, columns, changes, differs[0] if differs else none)
