"""One transactional producer: opening it fences its predecessor, and every transaction carries rows and ledger page."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from floodmark.patience import patiently
from floodmark.probes.kafka import is_between_leaders
from floodmark.sinks.kafka.ledger import Headers, LedgerPage, read_pages

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Consumer, Producer

    from floodmark.probes.kafka.client import KafkaOptions

CALL_SECONDS = 10.0
COMMIT_SECONDS = 20.0
PATIENCE_SECONDS = 120.0
PAUSE_SECONDS = 0.2
CLOSE_SECONDS = 5.0
QUEUE_SECONDS = 0.05
GRACE_SECONDS = 2.0
KEPT_SECONDS = 300.0
"""How long a session is of use that nobody used: brokers close connections that are idle for ten minutes."""
DEFAULTS: Mapping[str, object] = {
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 131_072,
    "compression.type": "none",  # anything else asks something of those who read: a plain kafka-python has no lz4
}
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class LedgerAddress:
    """Where a ledger and its rows are written: picklable, so that it can go to the executors."""

    options: KafkaOptions
    topic: str
    ledger: str
    transaction_seconds: float = 120.0

    def reader(self) -> Consumer:
        """Reads and names the ledger's group; it never joins it."""
        return self.options.consumer(**{"group.id": self.ledger})

    def producer(self, writer: int) -> Producer:
        """A producer that is ready for its first transaction; whoever had its id before can write no more."""
        from confluent_kafka import Producer

        own = {
            "transactional.id": f"{self.ledger}-{writer}",
            "transaction.timeout.ms": int(self.transaction_seconds * 1000),
        }
        options = self.options.librdkafka()
        producer = Producer({**{k: v for k, v in DEFAULTS.items() if k not in options}, **options, **own})
        retry_passing_errors(lambda: producer.init_transactions(CALL_SECONDS))
        return producer

    def take_over(self, writer: int) -> None:
        """Shut out whoever has this id, and give up what it left open."""
        self.producer(writer)


@dataclass
class TransactionalSession:
    """An open producer and the ledger beside it; `reopen` starts over after any error.

    Between two batches it may stay open: whoever took over its id meanwhile has shut it out, so that it can neither
    commit nor has to ask; `is_kept` tells that this may have happened long ago.
    """

    address: LedgerAddress
    writer: int
    page_numbers: Sequence[int]
    _reader: Any = None
    _producer: Any = None
    _in_transaction: bool = False
    _last_use: float = 0.0
    is_kept: bool = False

    def open(self) -> dict[int, LedgerPage]:
        """Fence and settle the predecessor first, and only then read how far it got; one that is kept has done so."""
        if self._producer is not None and time.monotonic() - self._last_use > KEPT_SECONDS:
            self.close()
        self.is_kept = self._producer is not None
        if not self.is_kept:
            self._reader = self.address.reader()  # connects meanwhile
            self._producer = self.address.producer(self.writer)
        return self.pages()

    def reopen(self) -> dict[int, LedgerPage]:
        self.close()
        return self.open()

    def pages(self) -> dict[int, LedgerPage]:
        return retry_passing_errors(lambda: read_pages(self._reader, self.address.topic, self.page_numbers))

    def begin(self) -> None:
        self._producer.begin_transaction()
        self._in_transaction = True

    def send(self, rows: pa.RecordBatch, stamp: Headers) -> None:
        """Hand the rows over; whether they arrived is known when the transaction is committed."""
        produce_all(self._producer, self.address.topic, rows, stamp)

    def commit(self, page: LedgerPage) -> None:
        """Rows and page become visible together, or not at all."""
        offsets = [page.offset(self.address.topic, partition) for partition in self.page_numbers]
        group = self._reader.consumer_group_metadata()
        # A producer that lost its coordinator may never find it again: its successor does, and knows what became of it.
        producer = self._producer
        call_within(CALL_SECONDS, lambda: producer.send_offsets_to_transaction(offsets, group, CALL_SECONDS))
        call_within(COMMIT_SECONDS, lambda: producer.commit_transaction(COMMIT_SECONDS))
        self._in_transaction, self._last_use = False, time.monotonic()

    def close(self) -> None:
        """An open transaction is given up, so that readers need not wait until the broker does it."""
        self.give_up()
        if self._reader is not None:
            self._reader.close()
        self._producer = self._reader = None

    def give_up(self) -> Exception | None:
        """Abort; where that fails, the next producer settles it, and the error says why better than the first one."""
        from confluent_kafka import KafkaException

        if not self._in_transaction:
            return None
        self._in_transaction = False
        try:
            self._producer.purge()
            self._producer.abort_transaction(CLOSE_SECONDS)
        except KafkaException as error:
            return error
        return None


def fence_page(address: LedgerAddress, place: int, number: int, partitions: int) -> None:
    """Close the number to the writer of this id: it is taken over first, and only then its page is read and turned.

    A writer that comes back in between shuts this one out, and is shut out by the next try; one that comes later
    reads the fence on its first page.
    """
    retry_passing_errors(lambda: _fence_page(address, place, number, partitions), also=is_over_for_its_producer)


def _fence_page(address: LedgerAddress, place: int, number: int, partitions: int) -> None:
    session = TransactionalSession(address, place, [place])
    try:
        page = session.open().get(place)
        if page is None or page.highest_done < number:
            session.begin()
            session.commit(LedgerPage.fence(number, partitions, over=page))
    finally:
        session.close()


def produce_all(producer: Producer, topic: str, rows: pa.RecordBatch, stamp: Headers) -> None:
    """One message per row with the user's headers; on the last one, ours stand before them."""
    columns = [rows.column(name).to_pylist() for name in ("partition", "key", "value")]
    headers_of = rows.column("headers").to_pylist() if "headers" in rows.schema.names else [None] * rows.num_rows
    headers_of[-1] = [*({"key": key, "value": value} for key, value in stamp), *(headers_of[-1] or ())]
    produce = producer.produce
    for partition, key, value, headers in zip(*columns, headers_of, strict=True):
        while True:
            try:
                if headers:
                    produce(topic, value, key, partition, headers=[(each["key"], each["value"]) for each in headers])
                else:  # to name the headers, even as None, doubles what the call takes
                    produce(topic, value, key, partition)
                break
            except BufferError:  # the local queue is full: let some of it go first
                producer.poll(QUEUE_SECONDS)
    producer.poll(0)


def retry_passing_errors(call: Callable[[], Answer], also: Callable[[Exception], bool] | None = None) -> Answer:
    """The call's answer; coordinators that move, load or still settle another transaction are asked again."""

    def passes(error: Exception) -> bool:
        return is_passing(error) or (also is not None and also(error))

    return patiently(call, seconds=PATIENCE_SECONDS, passing=passes, pause_seconds=PAUSE_SECONDS)


def call_within(seconds: float, call: Callable[[], object]) -> None:
    """The call, or a timeout: seen after a broker's restart, the driver may stay in it far beyond its own timeout."""
    from confluent_kafka import KafkaError, KafkaException

    outcome: list[BaseException | None] = []

    def act() -> None:
        try:
            call()
            outcome.append(None)
        except BaseException as error:  # noqa: BLE001 (handed to the caller)
            outcome.append(error)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(seconds + GRACE_SECONDS)
    if not outcome:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    if outcome[0] is not None:
        raise outcome[0]


def is_passing(error: Exception) -> bool:
    """Whether the same call may succeed a little later."""
    from confluent_kafka import KafkaError, KafkaException

    if not isinstance(error, KafkaException):
        return False
    problem = error.args[0]
    passing = {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.CONCURRENT_TRANSACTIONS}
    passing |= {KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError._TIMED_OUT, KafkaError._TRANSPORT}
    passing |= {KafkaError.UNSTABLE_OFFSET_COMMIT}
    if problem.fatal() or problem.txn_requires_abort():
        return False
    return bool(problem.retriable() or problem.code() in passing or is_between_leaders(error))


def is_fenced(error: Exception) -> bool:
    """Whether another producer took over this one's id."""
    from confluent_kafka import KafkaError, KafkaException

    fences = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
    return isinstance(error, KafkaException) and error.args[0].code() in fences


def is_over_for_its_producer(error: Exception) -> bool:
    """Whether a new producer may do what this one cannot any more."""
    from confluent_kafka import KafkaException

    return is_fenced(error) or (isinstance(error, KafkaException) and bool(error.args[0].txn_requires_abort()))
