"""A writer, on an executor: its rows in one fixed order, chunk by chunk, each chunk with its ledger page."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

from floodmark.probes.kafka.client import told
from floodmark.sinks.kafka.ledger import CannotTell, Layout, Page, highest_stamps, records_since, stamp
from floodmark.sinks.kafka.messages import with_partitions
from floodmark.sinks.kafka.producer import Place, Session, is_fenced
from floodmark.spark.faults import BEGIN, END

if TYPE_CHECKING:
    import pyarrow as pa


# What all writers of one batch are told, settled on the driver before the first of them begins.
Answer = TypeVar("Answer")
AT_ONCE = 8


@dataclass(frozen=True)
class Order:
    """One batch for one topic. `out` has, for writers without a page in the ledger, the rows that are out."""

    place: Place
    number: int
    digest: str
    layout: Layout
    chunk_rows: int
    chunk_seconds: float
    out: Mapping[int, int] = field(default_factory=dict)

    def label(self, writer: int) -> str:
        """What stamps in the topic call this writer's part of the batch."""
        return f"{self.place.ledger}:{self.number}:{writer}"

    def settled(self, pages: Mapping[int, Page]) -> Order:
        """With what the topic itself tells about writers that have no page: a new ledger, or one that was lost.

        Asked before any writer begins: afterwards their open transactions would hide each other. Raises CannotTell.
        """
        layout, options, topic = self.layout, self.place.options, self.place.topic
        unknown = [w for w in range(layout.writers) if any(p not in pages for p in layout.pages_of(w))]
        since = dict(enumerate(layout.ends))
        left = records_since(options, topic, since) if unknown else {}
        if not left:
            return replace(self, out=dict.fromkeys(unknown, 0))
        at_once(self.place.take_over, range(layout.writers))  # what any of them left open would hide all that follows
        stamps = highest_stamps(options, topic, since, left)
        return replace(self, out={writer: stamps.get(self.label(writer), 0) for writer in unknown})


def at_once(act: Callable[[int], Answer], writers: Iterable[int]) -> list[Answer]:
    """A few at a time: each of them waits for the broker most of the time."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(act, writers))


ATTEMPTS = 4
CHUNK_BYTES = 64 * 1024 * 1024
RESULT = "writer int, rows long, recorded string, lost string"


@dataclass(frozen=True)
class Delivered:
    """A writer's answer: its rows that are out now; or the other digest it found; or why it cannot tell."""

    writer: int
    rows: int | None = None
    recorded: str | None = None
    lost: str | None = None


class Reached(Exception):
    """Nothing is left to do: this batch, or a later one, is recorded."""

    def __init__(self, delivered: Delivered) -> None:
        super().__init__()
        self.delivered = delivered


@dataclass
class Writer:
    """One run of one writer. Progress is counted in rows of its fixed order, so chunks may end anywhere."""

    order: Order
    number: int
    session: Session = field(init=False)
    reached: int = 0
    before: int = 0
    chunk: list[pa.RecordBatch] = field(default_factory=list)
    begun: float = 0.0
    trouble: Exception | None = None

    def __post_init__(self) -> None:
        self.session = Session(self.order.place, self.number, self.order.layout.pages_of(self.number))

    def run(self, batches: Iterable[pa.RecordBatch]) -> Delivered:
        """Skip what is out already, send the rest. Fenced: the successor's result counts, if it has one."""
        from confluent_kafka import KafkaException

        try:
            self.reached = self._place_in(self.session.open())
            self._send_all(batches)
            return Delivered(self.number, self.reached)
        except Reached as reached:
            return reached.delivered
        except CannotTell as reason:
            return Delivered(self.number, lost=str(reason))
        except KafkaException as error:
            return self._answer_of_successor(error)
        finally:
            self.session.close()

    def _send_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        skipped = self.reached
        for batch in batches:
            fresh = batch.slice(min(skipped, batch.num_rows))
            skipped -= batch.num_rows - fresh.num_rows
            while fresh.num_rows:
                part = fresh.slice(0, self.order.chunk_rows - rows_in(self.chunk))
                fresh = fresh.slice(part.num_rows)
                self._add(part)
        self._commit(done=True)

    def _add(self, part: pa.RecordBatch) -> None:
        """Sent at once, so that the broker works while Spark prepares the next rows; kept until it is committed."""
        if not self.chunk:
            self._try(self._begin)
        self.chunk.append(part)
        self._try(lambda: self._send(part, self.reached + rows_in(self.chunk)))
        slow = time.monotonic() - self.begun > self.order.chunk_seconds
        big = sum(each.nbytes for each in self.chunk) >= CHUNK_BYTES
        if rows_in(self.chunk) >= self.order.chunk_rows or big or slow:
            self._commit(done=False)

    def _begin(self) -> None:
        """A transaction with everything that is in the chunk so far."""
        self.begun = time.monotonic()
        self.session.begin()
        for place, part in enumerate(self.chunk, start=1):
            self._send(part, self.reached + rows_in(self.chunk[:place]))

    def _send(self, part: pa.RecordBatch, reached: int) -> None:
        """The last row says how many are out if it is: a transaction holds whole parts."""
        self.session.send(part, stamp(self.order.label(self.number), reached))

    def _commit(self, *, done: bool) -> None:
        page = self._page(done=done)
        if not self.chunk:
            self._try(self._begin)
        self._try(lambda: self.session.commit(page))
        for _ in range(ATTEMPTS):
            if self.trouble is None:
                break
            self._start_over(page)
        if self.trouble is not None:
            raise self.trouble
        self.reached, self.chunk = page.rows, []

    def _start_over(self, page: Page) -> None:
        """A new producer settles what became of the transaction; only if it was aborted, it is sent again."""
        self.trouble = None
        found = self._place_in(self.session.reopen())
        if found < page.rows or not self.chunk:
            self._try(self._begin)
            self._try(lambda: self.session.commit(page))

    def _try(self, act: Callable[[], None]) -> None:
        """Do it, unless this transaction is spoiled already; being fenced cannot be mended here."""
        from confluent_kafka import KafkaException

        if self.trouble is not None:
            return
        try:
            act()
        except KafkaException as error:
            self.trouble = self.session.give_up() or error
            if is_fenced(self.trouble):
                raise self.trouble from error

    def _page(self, *, done: bool) -> Page:
        order, rows = self.order, self.reached + rows_in(self.chunk)
        layout = order.layout
        spread = (layout.partitions, layout.writers)
        return Page(order.number, rows, done, *spread, self.before, order.digest, layout.token)

    def _place_in(self, pages: Mapping[int, Page]) -> int:
        """How many rows of this batch are out. Raises Reached if no more are needed, or CannotTell."""
        order = self.order
        self.before = max((page.finished for page in pages.values()), default=self.before)
        newest = max(pages.values(), key=lambda page: (page.number, page.done), default=None)
        if newest is not None and newest.number >= order.number:
            return self._rows_of(newest)
        if len(pages) == len(self.session.page_numbers):
            return 0
        if self.number not in order.out:
            raise CannotTell("its ledger went away while the batch was written")
        return order.out[self.number]

    def _rows_of(self, page: Page) -> int:
        order = self.order
        if page.number > order.number:
            raise Reached(Delivered(self.number))
        another = page.digest is not None and page.digest != order.digest
        if another or not (page.done or page.token == order.layout.token):
            raise Reached(Delivered(self.number, recorded=page.digest or "nothing"))
        if page.done:
            raise Reached(Delivered(self.number, page.rows))
        return page.rows

    def _answer_of_successor(self, error: Exception) -> Delivered:
        """Another attempt took over: if it has finished, so have we."""
        if not is_fenced(error):
            raise error
        try:
            self._place_in(self.session.pages())
        except Reached as reached:
            return reached.delivered
        raise error


def rows_in(chunk: Iterable[pa.RecordBatch]) -> int:
    """How many rows a chunk has so far."""
    return sum(part.num_rows for part in chunk)


def deliver(order: Order, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task: all rows of one writer, or of several one after the other where Spark put them together."""
    from confluent_kafka import KafkaException

    for writer, own in groupby(_by_writer(batches, order.layout.partitions), key=itemgetter(0)):
        try:
            yield answer(Writer(order, writer).run(part for _, part in own))
        except KafkaException as error:
            raise RuntimeError(f"{BEGIN} {told(error)} {END}") from None


def answer(delivered: Delivered) -> pa.RecordBatch:
    """What a task gives back to the driver; its types are those of RESULT."""
    import pyarrow as pa

    types = {"writer": pa.int32(), "rows": pa.int64(), "recorded": pa.string(), "lost": pa.string()}
    return pa.RecordBatch.from_pylist([asdict(delivered)], schema=pa.schema(list(types.items())))


def _by_writer(batches: Iterable[pa.RecordBatch], partitions: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows come sorted by writer; a batch is cut where the writer changes, and every row gets its partition."""
    import numpy as np

    for batch in (with_partitions(each, partitions) for each in batches):
        owners = batch.column("writer").to_numpy()
        cuts = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), batch.num_rows]
        for begin, end in pairwise(cuts):
            if end > begin:
                yield int(owners[begin]), batch.slice(begin, end - begin)
