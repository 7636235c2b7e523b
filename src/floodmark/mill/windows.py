"""Windows whose key a function of the user's gives, perhaps by the clock: decided once, in the driver, in the order of
arrival. Also how the elements of a turn get the number of their window in place of their key."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from floodmark.errors import ConfigError, ElementInvalid
from floodmark.mill.brokers import OFFSET, PARTITION
from floodmark.mill.declaration import Declaration
from floodmark.mill.join_tree import name_of
from floodmark.mill.keys import Key
from floodmark.spark.faults import position_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

OffsetRanges: TypeAlias = "dict[int, tuple[int, int]]"
"""The elements of one window: in each partition the first offset and the one behind the last."""


@dataclass
class TimedWindows:
    """The windows of one stream that are not given out yet; the last of them is open.

    What is lost with the process are only windows that nobody was given: their elements are behind the mark, and the
    function is asked again. Windows that are given out stand in the intent.
    """

    key: Key
    poll_seconds: float | None = None
    now: Callable[[], float] = time.monotonic
    taken_upto: dict[int, int] = field(default_factory=dict)
    """By partition, the offset behind the last element that the function was asked about."""
    windows: list[OffsetRanges] = field(default_factory=list)
    last_key: object = None
    last_asked: float = field(init=False)

    def __post_init__(self) -> None:
        self.last_asked = self.now()

    def begin_at(self, firsts: Mapping[int, int]) -> None:
        """The mark stands here: what lies before it was given out, by this process or by another."""
        is_open_and_empty = self.windows[-1:] == [{}]
        self.windows = [rest for window in self.windows if (rest := _behind_mark(window, firsts))]
        self.windows += [{}] if is_open_and_empty else []
        for partition, first in firsts.items():
            self.taken_upto[partition] = max(self.taken_upto.get(partition, first), first)

    def forget(self) -> None:
        """Every element is to be asked about anew."""
        self.taken_upto, self.windows, self.last_key = {}, [], None

    def take(self, rows: Iterable[tuple[int, int, str | None]]) -> None:
        """New elements, each with partition, offset and text. Raises ElementInvalid if one has no key."""
        for partition, offset, text in rows:
            key = self._key(partition, offset, text)
            if not self.windows or key != self.last_key:
                self._open(key)
            first, _ = self.windows[-1].get(partition, (offset, offset))
            self.windows[-1][partition] = (first, offset + 1)
            self.taken_upto[partition], self.last_asked = offset + 1, self.now()

    def poll(self) -> None:
        """Nothing came for a while: ask whether the open window is over."""
        if not self.is_due():
            return
        self.last_asked = self.now()
        key = self.key.of(None)
        if self.windows and key != self.last_key:
            self._open(key)
        self.last_key = key

    def is_due(self) -> bool:
        """Whether an idle stream has to be asked again."""
        return self.poll_seconds is not None and self.now() - self.last_asked >= self.poll_seconds

    def closed_windows(self, *, has_ended: bool) -> list[OffsetRanges]:
        """The windows that are over: all of them where the stream has ended."""
        over = self.windows if has_ended else self.windows[:-1]
        return [window for window in over if window]

    def _open(self, key: object) -> None:
        self.windows = [window for window in self.windows if window]
        self.windows.append({})
        self.last_key = key

    def _key(self, partition: int, offset: int, text: str | None) -> object:
        try:
            return self.key.of(self.key.codec.values_from_text(text or "null"))
        except ElementInvalid as error:
            raise error.at(position_text(partition, offset)) from error


def timed_windows(declaration: Declaration, poll_seconds: float | None) -> TimedWindows | None:
    """The windows of a mill, if a function gives their keys.

    Raises ConfigError where `poll_timeout` is given and nobody could be asked on an idle poll.
    """
    key = declaration.window_key
    if poll_seconds is not None and declaration.tree.edges:
        raise _not_polled(declaration, "it is joined, and a window waits for the partners of its elements")
    if key is None or not declaration.tree.has_function_windows:
        if poll_seconds is not None and key is not None:
            raise _not_polled(declaration, "windows by fields have nothing to say about an idle poll")
        return None
    if poll_seconds is not None:
        _require_an_answer(declaration, key)
    return TimedWindows(key, poll_seconds)


def _require_an_answer(declaration: Declaration, key: Key) -> None:
    try:
        key.of(None)
    except ElementInvalid as error:
        raise _not_polled(declaration, f"its window expression fails on None: {error.reason}") from error


def _not_polled(declaration: Declaration, reason: str) -> ConfigError:
    return ConfigError(
        f"poll_timeout does not go with {name_of(declaration.tree.root)}: {reason}.",
        hint="give a single stream with window_expression=function_call(…) that takes None, or leave poll_timeout out",
    )


def _behind_mark(window: OffsetRanges, firsts: Mapping[int, int]) -> OffsetRanges:
    """What of a window is still to be given out."""
    begins = {partition: max(first, firsts.get(partition, first)) for partition, (first, _) in window.items()}
    return {partition: (begins[partition], upto) for partition, (_, upto) in window.items() if begins[partition] < upto}


def windows_to_json(windows: Iterable[OffsetRanges]) -> list[Any]:
    """Windows as an intent holds them."""
    return [[[partition, first, upto] for partition, (first, upto) in window.items()] for window in windows]


def with_window_numbers(rows: DataFrame, windows: Sequence[Any]) -> DataFrame:
    """The elements of windows, as an intent holds them, with the window's number as their key."""
    from pyspark.sql.types import LongType, StructField, StructType

    numbers = numbers_by_partition(windows)

    def number(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from (with_numbers(batch, numbers) for batch in batches)

    schema = StructType([*rows.schema.fields, StructField("k0", LongType())])
    return rows.mapInArrow(number, schema).where("k0 is not null")


def numbers_by_partition(windows: Iterable[Any]) -> dict[int, list[tuple[int, int, int]]]:
    """For each partition: first offset, offset behind the last, and number of every window, in order."""
    found: dict[int, list[tuple[int, int, int]]] = {}
    for number, window in enumerate(windows):
        for partition, first, upto in window:
            found.setdefault(partition, []).append((first, upto, number))
    return {partition: sorted(ranges) for partition, ranges in found.items()}


def with_numbers(batch: pa.RecordBatch, windows: Mapping[int, Sequence[tuple[int, int, int]]]) -> pa.RecordBatch:
    """One batch; what belongs to no window has no number."""
    import pyarrow as pa

    starts = {partition: [first for first, _, _ in ranges] for partition, ranges in windows.items()}
    numbers: list[int | None] = []
    for partition, offset in zip(batch.column(PARTITION).to_pylist(), batch.column(OFFSET).to_pylist(), strict=True):
        place = bisect_right(starts.get(partition, []), offset) - 1
        _, upto, number = windows[partition][place] if place >= 0 else (0, 0, None)
        numbers.append(number if offset < upto else None)
    return batch.append_column("k0", pa.array(numbers, pa.int64()))


def with_run_numbers(rows: DataFrame) -> DataFrame:
    """The rows with the number of their run of equal keys, along a partition, in place of their key."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    along = Window.partitionBy(PARTITION).orderBy(OFFSET)
    begins = F.coalesce(F.col("k0") != F.lag("k0").over(along), F.lit(False))
    flagged = rows.withColumn("_fm_begins", begins.cast("bigint"))
    return flagged.withColumn("k0", F.sum("_fm_begins").over(along)).drop("_fm_begins")
