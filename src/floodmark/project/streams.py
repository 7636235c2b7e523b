"""A stream of a program as a project knows jobs: run, planned and watched under the name of its consumer group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from floodmark import sources
from floodmark.errors import ConfigError
from floodmark.jobs.job import Plan, Retries
from floodmark.step.work import display_marks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.step.work import RunRequest
    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import Receipt
    from floodmark.streams.kafka import KafkaStream


@dataclass(frozen=True)
class StreamJob:
    """A stream with the store and the session of its project. Its steps are Python: what they fill is not known."""

    stream: KafkaStream

    every: str | None = None
    retries: Retries = field(default_factory=Retries)
    transform: None = None
    rules: tuple[()] = ()
    sinks: tuple[()] = ()
    tags: tuple[()] = ()
    dead_letters: None = None
    quarantine: None = None
    spool: None = None
    on_schema_change: str = "ignore"

    @property
    def name(self) -> str:
        return self.stream.group

    @property
    def sources(self) -> tuple[sources.Kafka, ...]:
        """The topics, for whoever asks what is read."""
        settings = self.stream.settings
        return (sources.Kafka(settings.options.servers, topic=settings.topics),)

    def run_request(
        self, request: RunRequest, spark: Callable[[], SparkSession] | None = None, store: MarkStore | None = None
    ) -> Receipt:
        """Heal what is there now."""
        self._refuse_options(request)
        self.stream.use(spark=spark, store=store)
        return self.stream.run_once()

    def plan_request(
        self, request: RunRequest, spark: Callable[[], SparkSession] | None = None, store: MarkStore | None = None
    ) -> Plan:
        """What the next turn would read; nothing is touched."""
        self._refuse_options(request)
        self.stream.use(spark=spark, store=store)
        healer = self.stream.healer()
        record = healer.read()
        look, before = healer.look(record), display_marks(record.marks)
        open_turn = record.intent.number if record.intent else None
        messages = sum(upto - start for start, upto in look.outlook.reads.values())
        after = display_marks({topic: span.upto for topic, span in look.outlook.spans().items()}) or before
        has_work = bool(messages) or open_turn is not None
        return Plan(
            self.name, before, after, messages, look.held_back, look.outlook.held_reason, open_turn, has_work=has_work
        )

    def plan(self, spark: Any = None, store: MarkStore | None = None, **options: Any) -> Plan:  # noqa: ANN401 - as Job's
        """As `plan_request`."""
        from floodmark.step.work import RunRequest

        return self.plan_request(RunRequest(**options), spark, store)

    def step(self, *_arguments: object, **_options: object) -> NoReturn:
        """A stream has no batches that a person could move."""
        raise ConfigError(
            f"'{self.name}' is a stream: its records are healed one by one.",
            hint="floodmark marks show and deadletters are about it too",
        )

    set_mark = reset = accept_sinks = backfill = reconcile = rollback = step

    def _refuse_options(self, request: RunRequest) -> None:
        if request.start is not None or request.full_refresh or request.finish or request.abandon:
            raise ConfigError(
                f"stream '{self.name}' takes no --from, --full-refresh, --finish or --abandon.",
                hint="select the jobs that they are meant for",
            )
