"""A writer, on an executor: its rows in one fixed order, chunk by chunk, each chunk with its ledger page.

The driver makes the plan before the first writer begins; it also runs writers itself, for those that got no rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

from floodmark.hwm import is_same_batch
from floodmark.probes.kafka.client import driver_message
from floodmark.sinks.contract import Recorded
from floodmark.sinks.kafka.ledger import (
    CannotTell,
    Layout,
    LedgerPage,
    highest_stamps,
    newest_page,
    records_since,
    stamp,
)
from floodmark.sinks.kafka.messages import RowsHash, with_partitions
from floodmark.sinks.kafka.producer import LedgerAddress, TransactionalSession, is_fenced
from floodmark.spark.faults import fault_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Row

PARALLEL_WRITERS = 8
ATTEMPTS = 4
CHUNK_BYTES = 64 * 1024 * 1024
RECORDED_TYPE = "number: long, digest: string, is_fence: boolean"
DELIVERY_TYPE = f"writer int, rows long, recorded struct<{RECORDED_TYPE}>, undecided string, difference string"
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class WritePlan:
    """One batch for one topic, the same for all its writers.

    `rows_out` has, for writers without a page in the ledger, how many of their rows are out.
    """

    address: LedgerAddress
    number: int
    digest: str
    layout: Layout
    chunk_rows: int
    chunk_seconds: float
    rows_out: Mapping[int, int] = field(default_factory=dict)

    def label(self, writer: int) -> str:
        """What stamps in the topic call this writer's part of the batch."""
        return f"{self.address.ledger}:{self.number}:{writer}"

    def with_rows_out(self, pages: Mapping[int, LedgerPage]) -> WritePlan:
        """With what the topic itself tells about writers that have no page: a new ledger, or one that was lost.

        Asked before any writer begins: afterwards their open transactions would hide each other. Raises CannotTell.
        """
        layout, options, topic = self.layout, self.address.options, self.address.topic
        unknown = [w for w in range(layout.writers) if any(p not in pages for p in layout.pages_of(w))]
        since = dict(enumerate(layout.ends))
        ends = records_since(options, topic, since) if unknown else {}
        if not ends:
            return replace(self, rows_out=dict.fromkeys(unknown, 0))
        in_parallel(self.address.take_over, range(layout.writers))  # what one left open would hide all that follows
        stamps = highest_stamps(options, topic, since, ends)
        return replace(self, rows_out={writer: stamps.get(self.label(writer), 0) for writer in unknown})


@dataclass(frozen=True)
class Delivery:
    """A writer's answer: its rows that are out now.

    Or what else is recorded there, at its number or above; or why it cannot tell; or how the rows that are out differ
    from those that it was to skip.
    """

    writer: int
    rows: int | None = None
    recorded: Recorded | None = None
    undecided: str | None = None
    difference: str | None = None

    def to_arrow(self) -> pa.RecordBatch:
        """What a task gives back to the driver; its types are those of DELIVERY_TYPE."""
        import pyarrow as pa

        recorded = pa.struct([("number", pa.int64()), ("digest", pa.string()), ("is_fence", pa.bool_())])
        types = {"writer": pa.int32(), "rows": pa.int64(), "recorded": recorded}
        types |= {"undecided": pa.string(), "difference": pa.string()}
        return pa.RecordBatch.from_pylist([asdict(self)], schema=pa.schema(list(types.items())))

    @classmethod
    def from_row(cls, row: Row) -> Delivery:
        """What a task gave back."""
        answer = row.asDict(recursive=True)
        recorded = answer.pop("recorded")
        return cls(**answer, recorded=Recorded(**recorded) if recorded else None)


def deliver(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task: all rows of one writer, or of several one after the other where Spark put them together."""
    from confluent_kafka import KafkaException

    for writer, own in groupby(by_writer(batches, plan.layout.partitions), key=itemgetter(0)):
        try:
            yield Writer(plan, writer).run(part for _, part in own).to_arrow()
        except KafkaException as error:
            raise RuntimeError(fault_text("sink", driver_message(error))) from None


def by_writer(batches: Iterable[pa.RecordBatch], partitions: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows come sorted by writer; a batch is cut where the writer changes, and every row gets its partition."""
    import numpy as np

    for batch in (with_partitions(each, partitions) for each in batches):
        owners = batch.column("writer").to_numpy()
        cuts = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), batch.num_rows]
        for begin, end in pairwise(cuts):
            if end > begin:
                yield int(owners[begin]), batch.slice(begin, end - begin)


def in_parallel(act: Callable[[int], Answer], writers: Iterable[int]) -> list[Answer]:
    """For a few writers at a time: each of them waits for the broker most of the time."""
    with ThreadPoolExecutor(PARALLEL_WRITERS) as pool:
        return list(pool.map(act, writers))


class DeliveryKnown(Exception):
    """Nothing is left to do, or nothing may be done: this batch, a later one or another is recorded."""

    def __init__(self, delivery: Delivery) -> None:
        super().__init__()
        self.delivery = delivery


class RowsDiffer(Exception):
    """The rows that are out are not those that the batch begins with now."""


@dataclass
class Writer:
    """One run of one writer. Progress is counted in rows of its fixed order, so chunks may end anywhere.

    `rows_out` are committed; `chunk` holds the parts that were sent since, kept until their transaction is committed.
    `rows_hash` is of both; `hash_out`, of those that an earlier attempt had committed, is what it has to be there.
    `trouble` has spoiled the open transaction: nothing more is sent in it, and it is done anew when the chunk ends.
    A session that is `kept` stays open for the next batch, unless something went wrong.
    """

    plan: WritePlan
    number: int
    kept: TransactionalSession | None = None
    session: TransactionalSession = field(init=False)
    rows_out: int = 0
    batch_before: int = 0
    chunk: list[pa.RecordBatch] = field(default_factory=list)
    chunk_since: float = 0.0
    trouble: Exception | None = None
    rows_hash: RowsHash = field(default_factory=RowsHash)
    hash_out: str | None = None

    def __post_init__(self) -> None:
        pages = self.plan.layout.pages_of(self.number)
        self.session = self.kept or TransactionalSession(self.plan.address, self.number, pages)
        self.session.page_numbers = pages

    def run(self, batches: Iterable[pa.RecordBatch]) -> Delivery:
        """Skip what is out already, send the rest. Fenced: the successor's result counts, if it has one."""
        delivery = None
        try:
            delivery = self._deliver(batches)
        finally:
            if self.kept is None or delivery is None or delivery.rows is None:
                self.session.close()
        return delivery

    def _deliver(self, batches: Iterable[pa.RecordBatch]) -> Delivery:
        from confluent_kafka import KafkaException

        try:
            self._take_over(batches)
            self._send_all(batches)
            return Delivery(self.number, self.rows_out)
        except DeliveryKnown as known:
            return known.delivery
        except CannotTell as reason:
            return Delivery(self.number, undecided=str(reason))
        except RowsDiffer as difference:
            return Delivery(self.number, difference=str(difference))
        except KafkaException as error:
            return self._delivery_of_successor(error)

    def make_good(self) -> None:
        """Write the page that is missing, with the rows that the topic itself shows; the rest is sent later.

        Of a batch that goes out at once there is no rest.
        """
        try:
            self.rows_out = self._rows_out_by(self.session.open())
            self.session.begin()
            page = self._page(done=self.plan.layout.at_once)
            self.session.commit(replace(page, rows_hash=None))  # nobody has seen these rows here
        except DeliveryKnown:
            return
        finally:
            self.session.close()

    def _take_over(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Shut the predecessor out and learn how far it got; where that is to the end, the rows still have to be its.

        The rows of a batch are spread over its writers by what they are: were they others now, one that this writer
        has sent could be with another one, and be sent again. One that went out at once is out whatever they are now.
        """
        try:
            self.rows_out = self._rows_out_by(self.session.open())
        except DeliveryKnown as known:
            if self.hash_out is not None and not self.plan.layout.at_once:
                self.rows_out = known.delivery.rows or 0
                for rest in self._behind_those_out(batches):
                    raise RowsDiffer(f"{self.rows_out} rows are out, and {rest.num_rows} or more follow now") from None
            raise

    def _send_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        is_out = self.plan.layout.at_once and self.rows_out  # and the ledger has forgotten it
        for batch in () if is_out else self._behind_those_out(batches):
            fresh = batch
            while fresh.num_rows:
                part = fresh if self.plan.layout.at_once else fresh.slice(0, self.plan.chunk_rows - rows_in(self.chunk))
                fresh = fresh.slice(part.num_rows)
                self._add(part)
        self._commit(done=True)

    def _behind_those_out(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that are to be sent, once those before them are seen to be the ones that are out."""
        to_skip = self.rows_out
        for batch in batches:
            skipped = batch.slice(0, min(to_skip, batch.num_rows))
            if to_skip:
                self.rows_hash.add(skipped)
                to_skip -= skipped.num_rows
                self._require_same_rows(to_skip)
            if skipped.num_rows < batch.num_rows:
                yield batch.slice(skipped.num_rows)
        if to_skip:
            raise RowsDiffer(f"{self.rows_out} rows are out, and there are only {self.rows_out - to_skip} now")

    def _require_same_rows(self, to_skip: int) -> None:
        """A page of an earlier version has no hash, nor has a ledger that was made good from stamps."""
        if to_skip == 0 and self.hash_out is not None and self.rows_hash.hexdigest() != self.hash_out:
            raise RowsDiffer(f"{self.rows_out} rows are out, and the first {self.rows_out} of now are not the same")

    def _add(self, part: pa.RecordBatch) -> None:
        """Sent at once, so that the broker works while Spark prepares the next rows."""
        if not self.chunk:
            self._try(self._begin)
        self.chunk.append(part)
        self.rows_hash.add(part)
        self._try(lambda: self._send(part, self.rows_out + rows_in(self.chunk)))
        is_slow = time.monotonic() - self.chunk_since > self.plan.chunk_seconds
        is_big = sum(each.nbytes for each in self.chunk) >= CHUNK_BYTES
        is_full = rows_in(self.chunk) >= self.plan.chunk_rows or is_big or is_slow
        if is_full and not self.plan.layout.at_once:
            self._commit(done=False)

    def _begin(self) -> None:
        """A transaction with everything that is in the chunk so far."""
        self.chunk_since = time.monotonic()
        self.session.begin()
        for place, part in enumerate(self.chunk, start=1):
            self._send(part, self.rows_out + rows_in(self.chunk[:place]))

    def _send(self, part: pa.RecordBatch, rows_out: int) -> None:
        """The last row says how many are out if it is: a transaction holds whole parts."""
        self.session.send(part, stamp(self.plan.label(self.number), rows_out))

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
        self.rows_out, self.chunk = page.rows, []

    def _start_over(self, page: LedgerPage) -> None:
        """A new producer settles what became of the transaction; only if it was aborted, it is sent again."""
        self.trouble = None
        rows_out = self._rows_out_by(self.session.reopen())
        if rows_out < page.rows or not self.chunk:
            self._try(self._begin)
            self._try(lambda: self.session.commit(page))

    def _try(self, act: Callable[[], None]) -> None:
        """Do it, unless this transaction is spoiled already; a writer that was fenced has to stop.

        One whose session was kept may have been fenced by a run that is over: it starts over, and sees what that did.
        """
        from confluent_kafka import KafkaException

        if self.trouble is not None:
            return
        try:
            act()
        except KafkaException as error:
            self.trouble = self.session.give_up() or error
            if is_fenced(self.trouble) and not self.session.is_kept:
                raise self.trouble from error

    def _page(self, *, done: bool) -> LedgerPage:
        plan, layout = self.plan, self.plan.layout
        rows = self.rows_out + rows_in(self.chunk)
        spread = (layout.partitions, layout.writers)
        page = LedgerPage(plan.number, rows, done, *spread, self.batch_before, plan.digest, layout.token)
        return replace(page, rows_hash=self.rows_hash.hexdigest())

    def _rows_out_by(self, pages: Mapping[int, LedgerPage]) -> int:
        """How many rows of this batch are out. Raises DeliveryKnown if no more are needed, or CannotTell."""
        self.batch_before = max((page.highest_done for page in pages.values()), default=self.batch_before)
        newest = newest_page(pages)
        if newest is not None and newest.number >= self.plan.number:
            return self._rows_out_on(newest)
        if len(pages) == len(self.session.page_numbers):
            return 0
        if self.number not in self.plan.rows_out:
            raise CannotTell("its ledger went away while the batch was written")
        return self.plan.rows_out[self.number]

    def _rows_out_on(self, page: LedgerPage) -> int:
        """The same by the page of this batch, or of a later one."""
        plan = self.plan
        is_other = not is_same_batch(page.digest, plan.digest)
        is_other = is_other or not (page.done or page.token == plan.layout.token)
        if page.number > plan.number or page.is_fence or is_other:
            raise DeliveryKnown(Delivery(self.number, recorded=page.recorded))
        self.hash_out = page.rows_hash
        if page.done:
            raise DeliveryKnown(Delivery(self.number, page.rows))
        return page.rows

    def _delivery_of_successor(self, error: Exception) -> Delivery:
        """Another attempt took over: if it has finished, so have we."""
        if not is_fenced(error):
            raise error
        try:
            self._rows_out_by(self.session.pages())
        except DeliveryKnown as known:
            return known.delivery
        raise error


def rows_in(chunk: Iterable[pa.RecordBatch]) -> int:
    """How many rows a chunk has so far."""
    return sum(part.num_rows for part in chunk)
