"""A Kafka topic as a sink, exactly once: rows and the record of them are committed in the same transactions."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from floodmark.errors import (
    BatchChanged,
    ConfigError,
    SinkDisagrees,
    SinkFailed,
    SinkUndecided,
    SinkUnreachable,
    SourceUnreadable,
)
from floodmark.logs import get_logger
from floodmark.probes.kafka.client import KafkaOptions, driver_message
from floodmark.sinks.contract import Batch, BatchSize, Recorded, Session, require_own_number
from floodmark.sinks.kafka import ledger as ledgers
from floodmark.sinks.kafka.ledger import (
    LOOK_SECONDS,
    PROMPT_SECONDS,
    STABLE_SECONDS,
    CannotTell,
    Layout,
    LedgerPage,
    TargetTopic,
)
from floodmark.sinks.kafka.messages import MessageFormat, with_partitions
from floodmark.sinks.kafka.producer import (
    LedgerAddress,
    TransactionalSession,
    fence_page,
    is_passing,
    retry_passing_errors,
)
from floodmark.sinks.kafka.writer import DELIVERY_TYPE, Delivery, WritePlan, Writer, by_writer, deliver, in_parallel
from floodmark.sinks.small import SMALL_ROWS, rows_as_arrow
from floodmark.spark.faults import fault_in

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Consumer
    from pyspark.sql import DataFrame

    from floodmark.hwm import Json

log = get_logger(__name__)
FENCE_ROUNDS = 3
LONGEST_CHUNK_SECONDS = 420.0
"""Twice this, and some, is what brokers allow a transaction to take."""


@dataclass(frozen=True)
class Kafka:
    """Rows as messages of a topic; consumers need `isolation.level=read_committed` to see each of them once.

    `key` is a column or an expression: rows of one key go to one partition, the Java client's, in the source's order.
    `value` is "json" (all columns), "text:<expression>" or "bytes:<column>". `headers` maps names to expressions, or
    names a column of maps or of Spark's own header type; such a column is not part of the JSON. `partition` is an
    expression; where it is null, key or content decide. `create` is {"partitions": n, "replication": r}, for a topic
    that is missing.

    >>> Kafka("localhost:9092", topic="orders", key="id").describe()
    'kafka topic orders at localhost:9092'
    """

    bootstrap: str | Sequence[str]
    topic: str
    key: str | None = None
    value: str = "json"
    headers: Mapping[str, str] | str | None = None
    create: Mapping[str, int] | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    name: str = "kafka"
    chunk_rows: int = 100_000
    chunk_seconds: float = 60.0
    partition: str | None = None
    _only_looks: bool = field(default=False, repr=False, compare=False)
    _readers: dict[str, Consumer] = field(init=False, repr=False, compare=False, default_factory=dict)
    _sessions: dict[str, TransactionalSession] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._topic.check(self.name)
        self._format.check(self.name)
        if self.chunk_rows < 1:
            raise ConfigError(f"sink '{self.name}' has chunk_rows {self.chunk_rows}.", hint="1 or more")
        if not 0 < self.chunk_seconds <= LONGEST_CHUNK_SECONDS:
            raise ConfigError(
                f"sink '{self.name}' has chunk_seconds {self.chunk_seconds}.",
                hint=f"at most {LONGEST_CHUNK_SECONDS:.0f}: brokers end longer transactions",
            )

    def describe(self) -> str:
        return f"kafka topic {self.topic} at {self._client.servers}"

    def fingerprint(self) -> str:
        headers = self.headers if isinstance(self.headers, str) else dict(self.headers or {})
        parts = {"key": self.key, "value": self.value, "headers": headers, "partition": self.partition}
        return f"kafka {self.topic} ({', '.join(f'{name} {what}' for name, what in parts.items() if what)})"

    def expressions(self) -> Mapping[str, str]:
        kind, _, text = self.value.partition(":")
        headers = {} if isinstance(self.headers, str) else self.headers or {}
        made = {"key": self.key, "partition": self.partition, "value": text if kind == "text" else None}
        return {name: sql for name, sql in made.items() if sql} | {f"headers {name}": headers[name] for name in headers}

    def counts_every_row(self) -> bool:
        """The ledger has how many rows of the batch are out."""
        return True

    def needs_position(self) -> bool:
        """Only messages of one key, or of a chosen partition, have an order."""
        return self._format.has_order

    def freeze(self, session: Session) -> Mapping[str, Json]:
        with self._broker_errors():
            return self._layout(lambda: cores_of(session)).to_json()

    def freeze_at_once(self, session: Session, size: BatchSize) -> Mapping[str, Json] | None:
        """One writer for all partitions: its one transaction has every row and every page."""
        if not self._is_one_chunk(size):
            return None
        with self._broker_errors():
            return self._layout(lambda: 1, at_once=True).to_json()

    def recorded(self, ledger: str, session: Session) -> Recorded | None:
        with self._broker_errors():
            return ledgers.newest_batch(self._pages(ledger))

    def partial_batch(self, ledger: str, session: Session) -> int | None:
        with self._broker_errors():
            return ledgers.half_batch(self._pages(ledger))

    def end_transactions(self, ledger: str, session: Session) -> None:
        """A transaction that a killed run left open hides the ledger until the broker ends it, minutes later.

        Every id that a writer can have had is taken over, which ends it at once; nothing is done where nothing is open.
        """
        from confluent_kafka import KafkaException

        with self._broker_errors():
            count = self._topic.partitions()
            if not count:
                return
            try:
                self._read_pages(ledger, range(count), PROMPT_SECONDS)
            except KafkaException as error:
                if not is_passing(error):
                    raise
                log.info("taking over what a run that is gone left open", sink=self.name, topic=self.topic)
                in_parallel(self._address(ledger).take_over, range(count))

    def without_waiting(self) -> Kafka:
        return replace(self, _only_looks=True)

    def may_have_forgotten(self, ledger: str) -> bool:
        """Brokers forget a group after some days; a topic that was made anew begins at offset 0."""
        with self._broker_errors():
            return self._topic.had_records()

    def make_good(self, batch: Batch, session: Session) -> None:
        """The stamps in the topic tell how far each writer got, if its page is gone."""
        if self.name not in batch.frozen:
            return
        with self._broker_errors():
            pages = self._pages(batch.ledger(self.name))
            plan = self._plan(session, batch, pages)
            for writer in (each for each, rows in plan.rows_out.items() if rows):
                log.warning("the ledger forgot a batch; it is made good", sink=self.name, number=batch.number)
                Writer(plan, writer).make_good()

    def holds_rows(self, session: Session) -> bool:
        with self._broker_errors():
            return self._topic.holds_records()

    def write(self, rows: DataFrame, batch: Batch) -> int | None:
        with self._broker_errors():
            pages = self._pages(batch.ledger(self.name))
            newest = ledgers.newest_page(pages)
            if newest is not None and ledgers.is_whole(pages, batch.number):
                require_own_number(newest.recorded, batch, self.name)
                return ledgers.rows_of(pages, batch.number)
            plan = self._plan(lambda: rows.sparkSession, batch, pages)
        if plan.layout.at_once and (arrow := self._messages_at_once(rows, plan, batch)) is not None:
            return self._sum([self._send_at_once(arrow, plan, batch)], batch)
        if self._is_one_chunk(batch.size) and not plan.layout.at_once:
            return self._sum(self._deliver_here(rows, plan, batch), batch)
        batch.notes.ways[self.name] = "spark"
        deliveries = {each.writer: each for each in self._deliver(rows, plan, batch)}
        # A writer whose partitions get no rows may have no task, and yet has to turn its page.
        absent = [writer for writer in range(plan.layout.writers) if writer not in deliveries]
        with self._broker_errors():
            deliveries |= {each.writer: each for each in in_parallel(lambda w: Writer(plan, w).run(()), absent)}
        return self._sum(list(deliveries.values()), batch)

    def fence(self, ledger: str, number: int, session: Session) -> None:
        """Every id that a writer can have had is taken over, and each records the number on its page.

        Nobody can write to a topic that is missing, and its ledger cannot be either: then there is nothing to do.
        """
        with self._broker_errors():
            if self.create is None and self._topic.partitions() is None:
                log.info("no fence is needed: the topic is not there", sink=self.name, topic=self.topic, number=number)
                return
            count, address = self._topic.require(), self._address(ledger)
            self.end_transactions(ledger, session)
            # Twice where a writer turned the pages of others before it was shut out: now nobody is left who would.
            for _ in range(FENCE_ROUNDS):
                pages = self._pages(ledger)
                if ledgers.is_whole(pages, number):
                    return
                behind = [p for p in range(count) if p not in pages or pages[p].highest_done < number]
                in_parallel(lambda place: fence_page(address, place, number, count), behind)
            if not ledgers.is_whole(self._pages(ledger), number):
                raise SinkUnreachable(self.describe(), reason="writers come back faster than they are shut out")

    def _plan(self, session: Session, batch: Batch, pages: Mapping[int, LedgerPage]) -> WritePlan:
        """A batch that was not frozen gets a layout here: right once, but a lost ledger could not be made good."""
        frozen = batch.frozen.get(self.name)
        layout = Layout.from_json(frozen) if frozen else self._layout(lambda: cores_of(session))
        address = self._address(batch.ledger(self.name))
        plan = WritePlan(address, batch.number, batch.digest, layout, self.chunk_rows, self.chunk_seconds)
        try:
            return plan.with_rows_out(pages)
        except CannotTell as reason:
            raise SinkUndecided(batch.job, sink=self.name, number=batch.number, reason=str(reason)) from None

    def _layout(self, most_writers: Callable[[], int], *, at_once: bool = False) -> Layout:
        partitions = self._topic.require()  # before Spark is started: a topic that is missing is found at once
        writers, token = min(partitions, most_writers()), uuid.uuid4().hex[:12]
        return Layout(partitions, writers, self._topic.ends(), token, at_once)

    def _is_one_chunk(self, size: BatchSize) -> bool:
        """Whether a batch is known to be so small that each writer sends its part in one transaction."""
        return size.is_bound and size.rows is not None and size.rows <= min(SMALL_ROWS, self.chunk_rows)

    def _messages_at_once(self, rows: DataFrame, plan: WritePlan, batch: Batch) -> pa.Table | None:
        """The messages of the one writer; None where they turn out to be many, and a task has to send them."""
        with self._refusals(batch):
            return rows_as_arrow(self._format.route(rows, plan.layout), batch)

    def _send_at_once(self, arrow: pa.Table, plan: WritePlan, batch: Batch) -> Delivery:
        """By a producer that is kept for the next batch of a loop: to start one takes longer than to send."""
        ledger, batch.notes.ways[self.name] = plan.address.ledger, "arrow"
        session = self._sessions.pop(ledger, None) or TransactionalSession(plan.address, 0, ())
        messages = [with_partitions(each, plan.layout.partitions) for each in arrow.to_batches()]
        with self._broker_errors():
            delivery = Writer(plan, 0, kept=session).run(messages)
        self._sessions[ledger] = session
        return delivery

    def _deliver_here(self, rows: DataFrame, plan: WritePlan, batch: Batch) -> list[Delivery]:
        """The messages come to the driver, whose own producers send them: no task has to start one."""
        with self._refusals(batch):
            arrow = self._format.route(rows, plan.layout).toArrow()
        parts: dict[int, list[pa.RecordBatch]] = {writer: [] for writer in range(plan.layout.writers)}
        for writer, part in by_writer(arrow.to_batches(), plan.layout.partitions):
            parts[writer].append(part)
        batch.notes.ways[self.name] = "arrow"
        with self._broker_errors():
            return in_parallel(lambda writer: Writer(plan, writer).run(parts[writer]), parts)

    def _deliver(self, rows: DataFrame, plan: WritePlan, batch: Batch) -> list[Delivery]:
        """The one Spark job of a batch."""

        def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from deliver(plan, batches)

        messages = self._format.route(rows, plan.layout)
        with self._refusals(batch):
            return [Delivery.from_row(row) for row in messages.mapInArrow(write, DELIVERY_TYPE).collect()]

    @contextmanager
    def _refusals(self, batch: Batch) -> Iterator[None]:
        """What a plan or a writer of ours has raised on its way through Spark, as the error that it is."""
        try:
            yield
        except Exception as error:
            reason = fault_in(error, "sink")
            if reason is None:
                raise
            raise SinkFailed(batch.job, sink=self.name, reason=self._client.without_secrets(reason)) from None

    def _sum(self, deliveries: Sequence[Delivery], batch: Batch) -> int | None:
        for each in deliveries:
            if each.recorded is not None:
                require_own_number(each.recorded, batch, self.name)
                recorded = f"{each.recorded.digest}, in another attempt to begin it"
                facts = {"recorded": recorded, "intended": batch.digest}
                raise SinkDisagrees(batch.job, sink=self.name, number=batch.number, **facts)
            if each.difference is not None:
                raise BatchChanged(batch.job, sink=self.name, number=batch.number, difference=each.difference)
            if each.undecided is not None:
                raise SinkUndecided(batch.job, sink=self.name, number=batch.number, reason=each.undecided)
        counts = [each.rows for each in deliveries]
        return None if None in counts else sum(count for count in counts if count is not None)

    def _pages(self, ledger: str) -> dict[int, LedgerPage]:
        count = self._topic.partitions()
        if count and self._only_looks:
            return self._pages_at_once(ledger, range(count))
        return retry_passing_errors(lambda: self._read_pages(ledger, range(count))) if count else {}

    def _pages_at_once(self, ledger: str, partitions: range) -> dict[int, LedgerPage]:
        from confluent_kafka import KafkaException

        try:
            return self._read_pages(ledger, partitions, LOOK_SECONDS)
        except KafkaException as error:
            if not is_passing(error):
                raise
            reason = f"its ledger could not be read within {LOOK_SECONDS:.0f} s ({driver_message(error)})"
            raise SinkUnreachable(
                self.describe(),
                reason=f"{self._client.without_secrets(reason)}: a run is writing to it, or was killed while it did",
                hint="`floodmark run` ends what a killed run left open, and finishes its batch; else look again once "
                "the run that writes is done",
            ) from None

    def _read_pages(self, ledger: str, partitions: range, seconds: float = STABLE_SECONDS) -> dict[int, LedgerPage]:
        """The reader is kept, since to connect takes far longer than to ask; one that failed is given up."""
        reader = self._readers.pop(ledger, None) or self._address(ledger).reader()
        try:
            pages = ledgers.read_pages(reader, self.topic, partitions, seconds)
        except BaseException:
            reader.close()
            raise
        self._readers[ledger] = reader
        return pages

    def _address(self, ledger: str) -> LedgerAddress:
        return LedgerAddress(self._client, self.topic, ledger, 2 * self.chunk_seconds + 30)

    @cached_property
    def _client(self) -> KafkaOptions:
        return KafkaOptions(self.bootstrap, self.options)

    @cached_property
    def _topic(self) -> TargetTopic:
        return TargetTopic(self._client, self.topic, self.create)

    @cached_property
    def _format(self) -> MessageFormat:
        return MessageFormat(self.key, self.value, self.headers, self.partition)

    @contextmanager
    def _broker_errors(self) -> Iterator[None]:
        """What the driver says when the brokers do not answer, as an error of ours, without secrets."""
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as error:
            reason = self._client.without_secrets(driver_message(error))
            raise SinkUnreachable(self.describe(), reason=reason) from None
        except SourceUnreadable as error:
            raise SinkUnreachable(self.describe(), reason=error.reason) from None


def cores_of(session: Session) -> int:
    """How many tasks run side by side."""
    from floodmark.spark.session import cores  # heavy, and a writer's process imports this module too

    return cores(session())
