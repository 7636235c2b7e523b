"""Windows whose key a function of the user's gives, perhaps by the clock: decided once, in the driver, in the order of
arrival. Also how the elements of a turn get the number of their window in place of their key."""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeAlias

from floodmark.errors import ConfigError, ElementInvalid
from floodmark.logs import get_logger
from floodmark.mill.brokers import OFFSET, PARTITION, Arrivals, Followable, Message
from floodmark.mill.declaration import Declaration
from floodmark.mill.join_tree import MARKER, name_of
from floodmark.mill.keys import Key
from floodmark.spark.faults import position_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

log = get_logger(__name__)
FOLLOWING_SECONDS = 0.5
"""How long to wait for an element where no `poll_timeout` says it."""
OffsetRanges: TypeAlias = "dict[int, tuple[int, int]]"
"""The elements of one window: in each partition the first offset and the one behind the last."""


@dataclass
class TimedWindows:
    """The windows of one stream that are not given out yet; the last of them is open.

    What is lost with the process are only windows that nobody was given: their elements are behind the mark, and the
    function is asked again. Windows that are given out stand in the intent. A thread may ask about elements as they
    arrive (`ArrivalFollower`), beside the turns.
    """

    key: Key
    poll_seconds: float | None = None
    now: Callable[[], float] = time.monotonic
    taken_upto: dict[int, int] = field(default_factory=dict)
    """By partition, the offset behind the last element that the function was asked about."""
    windows: list[OffsetRanges] = field(default_factory=list)
    last_key: object = None
    last_asked: float = field(init=False)
    is_followed: bool = False
    """Whether somebody takes elements as they arrive: then a turn has nothing to do until a window closes."""
    ends: dict[int, int] = field(default_factory=dict)
    known_ends: set[int] = field(default_factory=set)
    """By partition, the end messages that were met as they arrived; and the partitions whose end a look has met."""
    seen_upto: dict[str, dict[int, int]] = field(default_factory=dict)
    """By stream and partition, how far the looks reached by which joined windows were cut: what is in a window has all
    its partners before these offsets."""
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def __post_init__(self) -> None:
        self.last_asked = self.now()

    def begin_at(self, firsts: Mapping[int, int]) -> None:
        """The mark stands here: what lies before it was given out, by this process or by another."""
        with self.lock:
            is_open_and_empty = self.windows[-1:] == [{}]
            self.windows = [rest for window in self.windows if (rest := _behind_mark(window, firsts))]
            self.windows += [{}] if is_open_and_empty else []
            for partition, first in firsts.items():
                self.taken_upto[partition] = max(self.taken_upto.get(partition, first), first)
            self.ends = {each: end for each, end in self.ends.items() if end >= firsts.get(each, 0)}

    def forget(self) -> None:
        """Every element is to be asked about anew."""
        with self.lock:
            self.taken_upto, self.windows, self.last_key, self.ends, self.seen_upto = {}, [], None, {}, {}

    def note_seen(self, looked_at: Mapping[str, OffsetRanges]) -> None:
        """A look reached this far, and windows are cut by it."""
        self.seen_upto = {name: {n: upto for n, (_, upto) in own.items()} for name, own in looked_at.items()}

    def take(self, rows: Iterable[Message]) -> None:
        """New elements, each with partition, offset and text; none is asked about twice.

        Raises ElementInvalid if one has no key.
        """
        for partition, offset, text in rows:
            with self.lock:
                if offset >= self.taken_upto.get(partition, 0):
                    self._take_one(partition, offset, text)

    def _take_one(self, partition: int, offset: int, text: str | None) -> None:
        key = self._key(partition, offset, text)
        if not self.windows or key != self.last_key:
            self._open(key)
        first, _ = self.windows[-1].get(partition, (offset, offset))
        self.windows[-1][partition] = (first, offset + 1)
        self.taken_upto[partition], self.last_asked = offset + 1, self.now()

    def take_end(self, partition: int, offset: int) -> None:
        """An end message was met: what follows it is not asked about before the mark is behind it."""
        with self.lock:
            self.ends[partition] = offset

    def next_offsets(self) -> dict[int, int]:
        """By partition that has not ended, the offset of the next element to ask about."""
        with self.lock:
            return {each: offset for each, offset in self.taken_upto.items() if each not in self.ends}

    def lack_any(self, ends: Mapping[int, int]) -> bool:
        """Whether elements below these offsets may not have been asked about."""
        with self.lock:
            return any(upto > self.taken_upto.get(partition, 0) for partition, upto in ends.items())

    def poll(self) -> None:
        """Nothing came for a while: ask whether the open window is over."""
        with self.lock:
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

    def has_news(self) -> bool:
        """Whether a turn has something to give out, or an end to find."""
        with self.lock:
            return bool(self.closed_windows(has_ended=False) or self.ends.keys() - self.known_ends)

    def closed_windows(self, *, has_ended: bool, seen_upto: Mapping[int, int] | None = None) -> list[OffsetRanges]:
        """The windows that are over, and before these offsets: all of them where the stream has ended."""
        with self.lock:
            over = [window for window in (self.windows if has_ended else self.windows[:-1]) if window]
        return over if seen_upto is None else list(takewhile(lambda window: _is_before(window, seen_upto), over))

    def _open(self, key: object) -> None:
        self.windows = [window for window in self.windows if window]
        self.windows.append({})
        self.last_key = key

    def _key(self, partition: int, offset: int, text: str | None) -> object:
        try:
            return self.key.of(self.key.codec.values_from_text(text or "null"))
        except ElementInvalid as error:
            raise error.at(position_text(partition, offset)) from error


class ArrivalFollower:
    """Asks a window function about every element when it arrives, in a thread beside the turns of a run."""

    def __init__(self, windows: TimedWindows, source: Followable) -> None:
        self.windows, self.source, self._stop = windows, source, threading.Event()
        self._seconds = windows.poll_seconds or FOLLOWING_SECONDS
        self._thread = threading.Thread(target=self._follow, name="window arrivals", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _follow(self) -> None:
        """What goes wrong here goes wrong in the next turn too, which asks about what this has not, and says it."""
        try:
            with closing(self.source.follow()) as arrivals:
                self.windows.is_followed = True
                while not self._stop.is_set():
                    self._take_arrivals(arrivals)
        except Exception as error:  # noqa: BLE001 (the broker's, or the user's own function's)
            log.warning("elements are asked about at each turn, not as they arrive", error=str(error))
        finally:
            self.windows.is_followed = False

    def _take_arrivals(self, arrivals: Arrivals) -> None:
        offsets = self.windows.next_offsets()
        if not offsets:  # before the first look, or behind all ends
            self._stop.wait(self._seconds)
        for partition, offset, text in arrivals.next_after(offsets, self._seconds) if offsets else ():
            if text is not None and is_end_text(text):
                self.windows.take_end(partition, offset)
            elif partition not in self.windows.ends:
                self.windows.take([(partition, offset, text)])
        self.windows.poll()


def is_end_text(text: str) -> bool:
    """Whether a message is the end of its partition; cheap for those that do not even hold the word."""
    if MARKER not in text:
        return False
    try:
        message = json.loads(text)
    except ValueError:
        return False
    return isinstance(message, dict) and message.get(MARKER) is True


def _is_before(window: OffsetRanges, ends: Mapping[int, int]) -> bool:
    return all(upto <= ends.get(partition, 0) for partition, (_, upto) in window.items())


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
