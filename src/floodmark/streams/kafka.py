"""Streams that come from Kafka: `from_kafka` and `from_kafka_batched`, and how such a stream is run and stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark import stores
from floodmark.errors import ConfigError
from floodmark.hwm.parsing import seconds_in
from floodmark.logs import get_logger
from floodmark.machine import file_name
from floodmark.patience import StopRequest, stop_on
from floodmark.probes.kafka.client import KafkaOptions, option_text
from floodmark.probes.kafka.group import GroupOffsets
from floodmark.spark.session import spark_session
from floodmark.stores.contract import MarkStore
from floodmark.stores.opening import STREAMS_FOLDER, folder_beside
from floodmark.stores.project import open_default
from floodmark.stores.record import Receipt
from floodmark.streams.flow import Node, nodes_before
from floodmark.streams.healer import Healer
from floodmark.streams.healer.commit import TurnCommit
from floodmark.streams.healer.looking import MOST_AT_ONCE, MOST_IN_ORDER, Reset, TopicLook, reset_of
from floodmark.streams.healer.unsettled import UnsettledRecords
from floodmark.streams.operators import Heal, Operator
from floodmark.streams.policy import OnError, RetryBudget, on_error_of
from floodmark.streams.program import Program, compile_program
from floodmark.streams.running import Background, run_for_ever, run_once
from floodmark.streams.stream import Stream
from floodmark.streams.task.folder import StateFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = get_logger(__name__)
OURS = frozenset(
    {"bootstrap.servers", "metadata.broker.list", "group.id", "auto.offset.reset", "enable.auto.commit"}
    | {"enable.auto.offset.store", "auto.commit.interval.ms", "enable.partition.eof"}
)
"""Options of a consumer that are answered here; all others go to both clients."""


@dataclass(frozen=True)
class KafkaSettings:
    """What a user said about the source of a stream."""

    topics: tuple[str, ...]
    group: str
    options: KafkaOptions
    reset: Reset
    poll_seconds: float
    on_error: OnError
    debug: bool = False
    rows_at_once: int | None = None
    side_by_side: int | None = None
    flushes_at_end: bool = True

    @classmethod
    def of(
        cls,
        topics: str | Sequence[str],
        consumer_params: Mapping[str, object],
        poll_interval: str | float,
        on_error: str | OnError,
        *,
        debug: bool,
        rows_at_once: int | None = None,
        side_by_side: int | None = None,
    ) -> KafkaSettings:
        """From what a user gave. Raises ConfigError for what cannot be."""
        names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
        params = {str(name): option_text(value) for name, value in consumer_params.items()}
        group = params.get("group.id", "")
        if not names or not all(names) or not group:
            missing = "group.id" if names and all(names) else "topic"
            raise ConfigError(
                f"the stream has no {missing}.", hint="from_kafka(['orders'], {'group.id': 'billing', …})"
            )
        servers = params.get("bootstrap.servers") or params.get("metadata.broker.list", "")
        options = KafkaOptions(servers, {name: value for name, value in params.items() if name not in OURS})
        reset = reset_of(params.get("auto.offset.reset", "latest"))
        poll_seconds, policy = seconds_in(poll_interval, field="poll_interval"), on_error_of(on_error)
        return cls(names, group, options, reset, poll_seconds, policy, debug, rows_at_once, side_by_side)


class KafkaStream(Stream):
    """A stream whose elements are the records of topics; its mark moves only past those that were healed."""

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        start: bool = False,
        store: MarkStore | str | None = None,
        spark: SparkSession | None = None,
        state: str | Path | None = None,
    ) -> None:
        super().__init__()
        self.settings, self._starts, self._store = settings, start, store
        self._spark: SparkSession | Callable[[], SparkSession] | None = spark
        self._state = state
        self._stopping: StopRequest | None = None
        self._background = Background(settings.group, self._ready)

    @property
    def group(self) -> str:
        return self.settings.group

    @property
    def store(self) -> MarkStore:
        """Where its marks are."""
        if self._store is None:
            self._store = open_default()
        if isinstance(self._store, str):
            self._store = stores.open(self._store)
        return self._store

    @property
    def state(self) -> StateFolder:
        """Where the driver keeps what belongs to its marks; executors that share the folder note outcomes there."""
        return StateFolder(Path(self._state).absolute() if self._state else state_folder(self.store, self.group))

    def use(
        self, *, spark: SparkSession | Callable[[], SparkSession] | None = None, store: MarkStore | None = None
    ) -> None:
        """Take the session and the store of whoever runs it, where it was made without its own."""
        self._spark = self._spark or spark
        self._store = self._store or store

    def program(self) -> Program:
        """Its steps, made ready."""
        return compile_program(self.node)

    def run_once(self) -> Receipt:
        """Heal what is there now, with the retries that are due, and return. Raises RecordsFailed if it is stuck."""
        return run_once(self.healer())

    def run(self) -> None:
        """Heal what comes, for ever; Ctrl-C, SIGTERM or `stop` end it when the current turn is done."""
        with self._stopping_on_signals() as stopping:
            self._stopping = stopping
            run_for_ever(self.healer(), stopping, self.settings.poll_seconds)

    def start(self) -> None:
        """Run in the background; the program stays alive until Ctrl-C, `stop`, or a failure, which is its exit code."""
        self._background.start()

    def stop(self) -> None:
        """Let the current turn end, and what steps still hold go; returns when all is done."""
        if self._stopping is not None and not self._stopping.is_requested:
            self._stopping.request()
        self._background.stop()

    def require_exact(self, operator: Operator, upstreams: Sequence[Node]) -> None:
        """Raise ConfigError for a step whose memory could not be told after a restart, and for a second source."""
        before = list(nodes_before(upstreams))
        strange = next((each for each in before if not each.upstreams and each is not self.node), None)
        if strange is not None:
            raise ConfigError(
                f"{operator} joins two sources, and a stream has the marks of one.",
                hint="read both topics in one source: from_kafka(['first', 'second'], …)",
            )
        batch = next((each.operator for each in before if each.operator.spans_stream), None)
        if operator.remembers and batch is not None and not any(isinstance(each.operator, Heal) for each in before):
            raise ConfigError(
                f"{operator} stands behind {batch}, and after a restart it could not be told what it knew.",
                hint=f"put it before {batch}, or behind healing",
            )

    def on_sink(self) -> None:
        """A sink was added: with start=True this is when polling begins, or begins anew with the new steps."""
        if self._starts:
            self._background.start_soon()

    def _ready(self) -> Callable[[StopRequest], None]:
        healer = self.healer()
        return lambda stopping: run_for_ever(healer, stopping, self.settings.poll_seconds)

    def healer(self) -> Healer:
        """All that a turn needs, from the steps as they are now."""
        settings, program = self.settings, self.program()
        if not program.heals:
            log.warning("the stream has no healing step: its mark never moves", stream=self.group)
        at_once = MOST_IN_ORDER if program.tasks.spans_stream else MOST_AT_ONCE
        unsettled = UnsettledRecords(self.state, RetryBudget(settings.on_error))
        group = GroupOffsets(self.group, settings.options)
        return Healer(
            store=self.store,
            session=self._session,
            topic_look=TopicLook(self.group, settings.topics, settings.options, settings.reset, at_once),
            commit=TurnCommit(self.store, program, group, unsettled, prints_records=settings.debug),
            rows_at_once=settings.rows_at_once,
            side_by_side=settings.side_by_side,
            flushes_at_end=settings.flushes_at_end,
        )

    def _session(self) -> SparkSession:
        if self._spark is None:
            return spark_session()
        return self._spark() if callable(self._spark) else self._spark

    def _stopping_on_signals(self) -> AbstractContextManager[StopRequest]:
        """Signals reach only the main thread; elsewhere `stop` is how to ask."""
        if threading.current_thread() is threading.main_thread():
            return stop_on(signal.SIGINT, signal.SIGTERM)
        return nullcontext(StopRequest())


def from_kafka(
    topics: str | Sequence[str],
    consumer_params: Mapping[str, object],
    poll_interval: str | float = 0.1,
    start: bool = False,
    debug: bool = False,
    *,
    on_error: str | OnError = "stop",
    store: MarkStore | str | None = None,
    spark: SparkSession | None = None,
    state: str | Path | None = None,
) -> KafkaStream:
    """A stream of `(uuid, value)`, one for each record of the topics; `group.id` names its marks.

    `poll_interval` is the pause between empty polls. `start` begins polling when the first sink is attached. `debug`
    prints topic, partition and offset of every record. `on_error` is "stop", "dead_letter" or `retry(n, backoff)`.

    >>> settings = {"bootstrap.servers": "localhost:9092", "group.id": "billing"}
    >>> source = from_kafka("orders", settings, on_error="dead_letter")
    >>> bills = source.map(lambda row: (row[0], row[1].decode())).map(healing, stream=source)
    >>> bills.sink(print)  # then `source.run()`
    """
    settings = KafkaSettings.of(topics, consumer_params, poll_interval, on_error, debug=debug)
    return KafkaStream(settings, start=start, store=store, spark=spark, state=state)


def from_kafka_batched(
    topics: str | Sequence[str],
    consumer_params: Mapping[str, object],
    poll_interval: str | float = "1s",
    partitions: int = 5,
    start: bool = False,
    dask: bool = False,
    maxlen: int = 1000,
    *,
    debug: bool = False,
    on_error: str | OnError = "stop",
    store: MarkStore | str | None = None,
    spark: SparkSession | None = None,
    state: str | Path | None = None,
) -> KafkaStream:
    """As `from_kafka`, in lists of at most `maxlen` records of one partition; `partitions` are read side by side.

    `dask` is for those who come from water-healer: lists are healed on Spark, always.

    >>> settings = {"bootstrap.servers": "localhost:9092", "group.id": "billing"}
    >>> source = from_kafka_batched("orders", settings, maxlen=500)
    >>> source.map(lambda rows: [(uuid, value.decode()) for uuid, value in rows]).sink(healing_batch, stream=source)
    """
    for name, number in (("partitions", partitions), ("maxlen", maxlen)):
        if number < 1:
            raise ConfigError(f"{name} is {number}.", hint="a number of 1 or more")
    settings = KafkaSettings.of(
        topics,
        consumer_params,
        poll_interval,
        on_error,
        debug=debug,
        rows_at_once=maxlen,
        side_by_side=partitions,
    )
    return KafkaStream(settings, start=start, store=store, spark=spark, state=state)


def state_folder(store: MarkStore, stream: str) -> Path:
    """A folder that the next run finds again: beside the marks, or hidden in the working folder."""
    return folder_beside(store) / STREAMS_FOLDER / file_name(stream)
