"""A job as its user writes it: a plain, importable value that can be planned, run, reset and tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from floodmark import stores
from floodmark.errors import SinkBehind, SinkShared
from floodmark.hwm import HWM, Json
from floodmark.jobs.borrowed_events import with_borrowed_events
from floodmark.jobs.display import Preview, job_html, job_text, plan_html, plan_text
from floodmark.jobs.parts import require_name, require_names, require_parts
from floodmark.jobs.planned_rows import PlannedRows, looked_at, planned_intent, preview
from floodmark.jobs.running import Chunks, noting_failure, run_to_the_end
from floodmark.locations import quote
from floodmark.rules import NotNull, Rule, RuleSet
from floodmark.sinks import Delta
from floodmark.sinks.contract import Session, Sink
from floodmark.sinks.refusals import Demanding
from floodmark.sinks.restatement import Restatement
from floodmark.sources.contract import Source
from floodmark.spark.session import session_of
from floodmark.step import Function, Identity, RunRequest, Sql, Step, Transform, Work
from floodmark.step.engine import LastSeen
from floodmark.step.intents import named_as_begun
from floodmark.step.listeners import RunListener
from floodmark.step.looking import Outlook, marks_after, read_ledgers
from floodmark.step.run import accept_sinks, reset_marks, set_mark
from floodmark.step.work import OnSchemaChange, TransformMaker, display_marks, with_stored_rows, without_repeats
from floodmark.stores.contract import MarkStore
from floodmark.stores.opening import DEFAULT_STORE, folder_beside, spool_folder
from floodmark.stores.record import Intent, JobRecord, Receipt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.jobs.reconcile import By, ReconcileResult


Part = TypeVar("Part")


@dataclass(frozen=True)
class Retries:
    """How often a loop tries again before it gives up on a batch, and how long it waits the first time.

    >>> Retries(attempts=3, backoff_seconds=2.0).attempts
    3
    """

    attempts: int = 1
    backoff_seconds: float = 2.0


@dataclass(frozen=True, repr=False)
class Job:
    """Read what lies above the mark of `source`, transform it, write it to every sink in order, raise the mark.

    `transform` is SQL over `source`, or a function from DataFrame to DataFrame. Without `dead_letters` (a folder for
    a Delta table; True: one beside the marks) a record that cannot be parsed fails the run. A run reads one batch, of
    `max_rows` at most; with `chunk_rows` it reads batches of so many rows, each with a mark of its own, until it has
    caught up.

    >>> Job(
    ...     name="orders",
    ...     source=fm.sources.Files("/incoming", schema="id long, amount double"),
    ...     sinks=[fm.sinks.Delta("/lake/orders", mode="merge", key="id")],
    ... )
    Job(orders: Files /incoming → delta table /lake/orders)
    """

    name: str
    source: Source | Sequence[Source]
    sinks: Sequence[Sink]
    transform: str | Callable[..., DataFrame] | Transform | None = None
    rules: Sequence[Rule] = ()
    dead_letters: str | bool | None = None
    on_schema_change: OnSchemaChange = "fail"
    max_rows: int | None = None
    chunk_rows: int | None = None
    every: str | None = None
    retries: Retries = Retries()
    spool: str | None = None
    quarantine: str | None = None
    tags: Sequence[str] = ()
    last_seen: LastSeen = field(default_factory=LastSeen, compare=False, repr=False)
    listeners: Sequence[RunListener] = field(default=(), compare=False, repr=False)
    """Told of each batch that the job writes, also for a backfill, a repair or a replay."""

    def __post_init__(self) -> None:
        require_name("job", self.name)
        require_parts(self)
        require_names(self.name, "sink", [sink.name for sink in self.sinks])
        require_names(self.name, "source", [source.name for source in self.sources])
        RuleSet(tuple(self.rules))

    def __repr__(self) -> str:
        return job_text(self)

    def _repr_html_(self) -> str:
        return job_html(self)

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(self.source) if isinstance(self.source, Sequence) else (self.source,)

    def run(
        self,
        spark: SparkSession | Session | None = None,
        store: MarkStore | None = None,
        *,
        start: str | None = None,
        full_refresh: bool = False,
        max_rows: int | None = None,
        finish: bool = False,
        abandon: bool = False,
        waits_for_settling: bool = True,
    ) -> Receipt:
        """Do all there is to do now: finish an open batch, then read what is new. Raises FloodmarkError."""
        return self.run_request(
            RunRequest(start, full_refresh, max_rows, finish, abandon, waits_for_settling), spark, store
        )

    def run_request(
        self, request: RunRequest, spark: SparkSession | Session | None = None, store: MarkStore | None = None
    ) -> Receipt:
        """As `run`, with all that is asked of it in one piece."""
        limit = request.max_rows or self.max_rows
        step = self.step(spark, store, replace(request, max_rows=limit))
        with noting_failure(step):
            return Chunks(step, self.chunk_rows, limit).run() if self.chunk_rows else run_to_the_end(step)

    def plan(
        self,
        spark: SparkSession | Session | None = None,
        store: MarkStore | None = None,
        *,
        start: str | None = None,
        full_refresh: bool = False,
        max_rows: int | None = None,
    ) -> Plan:
        """What the next run would do; touches nothing."""
        return self.plan_request(RunRequest(start, full_refresh, max_rows), spark, store)

    def plan_request(
        self,
        request: RunRequest,
        spark: SparkSession | Session | None = None,
        store: MarkStore | None = None,
    ) -> Plan:
        """As `plan`, with all that is asked of it in one piece."""
        limits = [limit for limit in (request.max_rows or self.max_rows, self.chunk_rows) if limit]
        request = replace(request, max_rows=min(limits, default=None), waits_for_settling=False)
        return plan(self.step(spark, store, request))

    def preview(
        self, rows: int = 10, spark: SparkSession | Session | None = None, store: MarkStore | None = None
    ) -> Preview:
        """Some rows that the next run would write, after transform and rules; nothing is written, and nothing held."""
        limits = [limit for limit in (self.max_rows, self.chunk_rows) if limit]
        request = RunRequest(max_rows=min(limits, default=None))
        return preview(self.step(spark, store, request), rows)

    def reset(self, spark: SparkSession | Session | None = None, store: MarkStore | None = None) -> None:
        """Forget the marks: the next run delivers everything again."""
        reset_marks(self.step(spark, store, RunRequest()))

    def set_mark(
        self, text: str, spark: SparkSession | Session | None = None, store: MarkStore | None = None
    ) -> HWM[Any]:
        """Put the mark somewhere else, up or down; the next run reads what lies above it."""
        return set_mark(self.step(spark, store, RunRequest()), text)

    def accept_sinks(
        self, spark: SparkSession | Session | None = None, store: MarkStore | None = None
    ) -> list[SinkBehind | SinkShared]:
        """Go on from the mark although sinks lost batches that they had confirmed, or have another's; which ones."""
        return accept_sinks(self.step(spark, store, RunRequest()))

    def backfill(
        self,
        start: str,
        stop: str,
        spark: SparkSession | Session | None = None,
        store: MarkStore | None = None,
        *,
        chunk_rows: int | None = None,
        restart: bool = False,
    ) -> Receipt:
        """Deliver the rows from `start` up to but without `stop` again; the mark stays. Called again, it goes on."""
        from floodmark.jobs.backfill import CHUNK_ROWS, backfill
        from floodmark.jobs.ranges import Bounds

        step, rows = self.step(spark, store, RunRequest()), chunk_rows or self.chunk_rows or CHUNK_ROWS
        with noting_failure(step):
            return backfill(step, Bounds(str(start), str(stop)), chunk_rows=rows, restart=restart)

    def reconcile(
        self,
        spark: SparkSession | Session | None = None,
        store: MarkStore | None = None,
        *,
        start: str | None = None,
        stop: str | None = None,
        sink: str | None = None,
        by: By = "hash",
        key: Sequence[str] = (),
        ignore: Sequence[str] = (),
        repair: bool = False,
    ) -> ReconcileResult:
        """Compare the source with one of the job's tables, at or below the mark; repair it if asked to."""
        from floodmark.jobs.ranges import Bounds
        from floodmark.jobs.reconcile import ReconcileRequest, reconcile

        step = self.step(spark, store, RunRequest())
        with noting_failure(step):
            return reconcile(step, ReconcileRequest(Bounds(start, stop), sink, by, tuple(key), tuple(ignore), repair))

    def rollback(
        self, to: str, spark: SparkSession | Session | None = None, store: MarkStore | None = None
    ) -> JobRecord:
        """Put tables and marks back together to how a batch left them: its number, its run's id, or `last-good`."""
        from floodmark.jobs.rollback import roll_back

        return roll_back(self.step(spark, store, RunRequest()), to)

    def step(self, spark: SparkSession | Session | None, store: MarkStore | None, request: RunRequest) -> Step:
        opened = store or stores.open(DEFAULT_STORE)
        request = replace(request, listeners=request.listeners or tuple(self.listeners))
        return Step(opened, session_of(spark), self.work(opened), request, last_seen=self.last_seen)

    def quarantine_sink(self, store: MarkStore) -> Delta:
        """The table of rows that broke a rule, by default beside the marks; it is made when a row has to go there.

        A job whose rules were taken out has it too: a batch that was frozen with them may still be open.
        """
        return Delta(
            path=self.quarantine or f"{folder_beside(store)}/quarantine/{self.name}", name="quarantine", evolve=True
        )

    def dead_letters_sink(self, store: MarkStore) -> Delta | None:
        """The table of records that could not be parsed or failed, if the job puts them aside."""
        if not self.dead_letters:
            return None
        beside = f"{folder_beside(store)}/dead_letters/{self.name}"
        return Delta(path=beside if self.dead_letters is True else self.dead_letters, name="dead_letters", evolve=True)

    def work(self, store: MarkStore) -> Work:
        """The same job in the words of the step."""
        malformed, rules = "dead_letter" if self.dead_letters else "fail", RuleSet(tuple(self.rules))
        judged = RuleSet((*self.rules, *rules_of_sinks(self.sinks)))
        sources = tuple(with_job_settings(source, malformed=malformed) for source in self.sources)
        sinks = tuple(with_job_settings(sink, evolve=self.on_schema_change == "evolve") for sink in self.sinks)
        transform = self._transform()
        return Work(
            name=self.name,
            sources=with_stored_rows(self.name, sources, sinks),
            sinks=with_borrowed_events(without_repeats(self.name, sources, sinks, rules), sources, transform, judged),
            transform=transform,
            rules=judged,
            dead_letters=self.dead_letters_sink(store),
            quarantine=self.quarantine_sink(store),
            on_schema_change=self.on_schema_change,
            spool_folder=self.spool or spool_folder(store),
        )

    def _transform(self) -> Transform:
        transform, [first, *_] = as_transform(self.transform), self.sources
        return first.transform_for(transform) if isinstance(first, TransformMaker) else transform


def rules_of_sinks(sinks: Sequence[Sink]) -> Iterator[NotNull]:
    """A row without a value that a sink cannot do without is put aside and counted, like one that breaks a rule."""
    columns = {
        name: what for sink in sinks if isinstance(sink, Demanding) for name, what in sink.required_values().items()
    }
    for name, what in columns.items():
        yield NotNull(quote(name), action="quarantine", name=f"{what} column {name} is NULL")


@dataclass(frozen=True, repr=False)
class Plan:
    """Marks from and to, rows expected (None: not known before they are read), and what would change on the way.

    >>> job = fm.Job("orders", fm.testing.RowsSource([{"id": 1}], "id long"), [fm.testing.ListSink()])
    >>> plan = job.plan(store=fm.stores.open("memory"))
    >>> plan.has_work, plan.mark_before, plan.mark_after, plan.expected_rows
    (True, None, 1, 1)
    """

    job: str
    mark_before: Json
    mark_after: Json
    expected_rows: int | None = None
    rows_held_back: int = 0
    held_reason: str | None = None
    open_batch: int | None = None
    schema_changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    has_work: bool = False
    restated: tuple[Restatement, ...] = ()

    def __repr__(self) -> str:
        return plan_text(self)

    def _repr_html_(self) -> str:
        return plan_html(self)


def plan(step: Step) -> Plan:
    """Look and compare; the record, the sinks and the source stay as they are."""
    record = step.read()
    if record.intent:
        return plan_of_open_batch(step, record, record.intent)
    outlook = step.look(record)
    if outlook.is_empty:
        before = display_marks(record.marks)
        return Plan(record.job, before, before, 0, outlook.held_back, outlook.held_reason)
    return plan_of_new_batch(step, record, outlook)


def plan_of_open_batch(step: Step, record: JobRecord, intent: Intent) -> Plan:
    """An open batch is finished first, whatever came since."""
    ledgers = read_ledgers(looked_at(named_as_begun(step.work, intent)), step.store.namespace, step.session)
    confirmed = ", ".join(ledgers.sinks_with(intent.number)) or "no sink"
    return Plan(
        job=record.job,
        mark_before=display_marks(record.marks),
        mark_after=display_marks(marks_after(record, intent)),
        open_batch=intent.number,
        notes=(f"batch {intent.number} was begun and not committed; {confirmed} has it; it is finished first",),
        has_work=True,
    )


def plan_of_new_batch(step: Step, record: JobRecord, outlook: Outlook) -> Plan:
    """Everything a run checks before it writes, without writing."""
    intent = planned_intent(step, record, outlook)
    planned = PlannedRows(step, intent)
    return Plan(
        job=record.job,
        mark_before=display_marks(record.marks),
        mark_after=display_marks(marks_after(record, intent)),
        expected_rows=outlook.expected_rows,
        rows_held_back=outlook.held_back,
        held_reason=outlook.held_reason,
        schema_changes=planned.schema_changes(),
        notes=("every target is rebuilt",) if intent.kind == "refresh" else (),
        rules=tuple(f"{rule.name} ({rule.action}): {rule.describe()}" for rule in step.work.rules.rules),
        has_work=True,
        restated=planned.restated(outlook.expected_rows),
    )


def as_transform(transform: str | Callable[..., DataFrame] | Transform | None) -> Transform:
    """The transform as the step knows it, however the user wrote it down."""
    if transform is None:
        return Identity()
    if isinstance(transform, str):
        return Sql(transform)
    return transform if isinstance(transform, Transform) else Function(transform)


def with_job_settings(part: Part, **settings: object) -> Part:
    """The part with those of the job's settings that it knows."""
    if not is_dataclass(part) or isinstance(part, type):
        return part
    known = {each.name for each in fields(part)}
    fitting = {name: value for name, value in settings.items() if name in known}
    return replace(part, **fitting) if fitting else part
