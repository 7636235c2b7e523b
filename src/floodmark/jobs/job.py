"""A job as its user writes it: a plain, importable value that can be planned, run, reset and tested."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeVar

from floodmark import stores
from floodmark.errors import ConfigError, FloodmarkError, LeaseHeld, RuleBroken
from floodmark.hwm import HWM
from floodmark.jobs.planning import Plan, plan
from floodmark.logs import get_logger
from floodmark.rules import Rule, RuleSet
from floodmark.sinks import Delta
from floodmark.sinks.contract import Session, Sink
from floodmark.sources.contract import Source
from floodmark.spark.session import spark_session
from floodmark.step import Function, Identity, RunRequest, Sql, Step, Transform, Work
from floodmark.step.engine import LastSeen
from floodmark.step.run import reset_marks, set_mark
from floodmark.step.stopping import asked_to_stop
from floodmark.step.work import OnSchemaChange, TransformMaker, without_repeats
from floodmark.stores.contract import MarkStore
from floodmark.stores.opening import DEFAULT_STORE, folder_beside, spool_folder
from floodmark.stores.record import JobRecord, Receipt, RuleOutcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.jobs.reconcile import By, Reconciled


log = get_logger(__name__)


# Names of jobs, sources and sinks: parts of ledgers, folders and files, so each is plain and used once.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")


def require_name(what: str, name: str) -> None:
    """Names become parts of ledgers, folders and files."""
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"{what} name {name!r} cannot be used.",
            hint="use letters, digits, '_', '-' and '.', and begin with none of the last two",
        )


def require_names(job: str, what: str, names: Sequence[str]) -> None:
    """Ledgers and marks are known by these names, so each is used once."""
    if not names:
        raise ConfigError(f"job '{job}' has no {what}.", hint=f"give it at least one {what}")
    for name in names:
        require_name(what, name)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"job '{job}' has two {what}s named '{twice[0]}'.", hint=f"give each {what} a `name`")


# A load in chunks: batch after batch, each with a mark of its own, until no full chunk is left or it is stopped.


@dataclass(frozen=True)
class Pace:
    """How fast rows come, and how long the rest will take at this rate."""

    rows: int
    seconds: float
    last_rows: int = 0
    ahead: float | None = None
    """The share of what lay above the mark that is left for later chunks."""

    @property
    def rows_per_second(self) -> float:
        return self.rows / max(self.seconds, 0.001)

    @property
    def seconds_left(self) -> float | None:
        """By the share that the last chunk was; None where the source cannot tell how far it reaches."""
        if self.ahead is None or self.ahead >= 1:
            return None
        return self.last_rows * self.ahead / (1 - self.ahead) / max(self.rows_per_second, 0.001)


@dataclass(frozen=True)
class Chunks:
    """Runs a step in chunks of so many rows; `most` bounds them all together."""

    step: Step
    rows: int
    most: int | None = None
    clock: Callable[[], float] = field(default=time.monotonic)

    def run(self) -> Receipt:
        """One receipt for all chunks; each of them is committed, and stays if the next one fails."""
        begun = self.clock()
        whole = last = self._step(0, is_first=True).run()
        while self._goes_on(whole, last) and not asked_to_stop():
            self._tell(Pace(whole.rows_read, self.clock() - begun, last.rows_read, self.step.last_seen.ahead))
            last = self._step(whole.rows_read, is_first=False).run()
            if last.status != "done":
                break
            whole = whole.followed_by(last)
        return whole

    def _goes_on(self, whole: Receipt, last: Receipt) -> bool:
        is_full = last.recovered or last.rows_read >= self.rows
        return last.status == "done" and is_full and (self.most is None or whole.rows_read < self.most)

    def _step(self, read: int, *, is_first: bool) -> Step:
        """What a person asked for, as --from, is of the first chunk; the others go on from the mark."""
        limit = self.rows if self.most is None else min(self.rows, self.most - read)
        asked = self.step.request
        later = replace(asked, start=None, full_refresh=False, finish=False, abandon=False)
        return replace(self.step, request=replace(asked if is_first else later, max_rows=limit))

    def _tell(self, pace: Pace) -> None:
        left = pace.seconds_left
        log.info(
            "chunk done",
            job=self.step.work.name,
            rows=pace.rows,
            rows_per_second=round(pace.rows_per_second),
            seconds_left=None if left is None else round(left),
        )


Part = TypeVar("Part")


@dataclass(frozen=True)
class Retries:
    """How often a loop tries again before it gives up on a batch, and how long it waits the first time."""

    attempts: int = 1
    backoff_seconds: float = 2.0


@dataclass(frozen=True)
class Job:
    """Read what lies above the mark of `source`, transform it, write it to every sink in order, raise the mark.

    `transform` is SQL over `source`, or a function from DataFrame to DataFrame. Without `dead_letters` (a folder for
    a Delta table) a record that cannot be parsed fails the run. A run reads one batch, of `max_rows` at most; with
    `chunk_rows` it reads batches of so many rows, each with a mark of its own, until it has caught up.
    """

    name: str
    source: Source | Sequence[Source]
    sinks: Sequence[Sink]
    transform: str | Callable[..., DataFrame] | Transform | None = None
    rules: Sequence[Rule] = ()
    dead_letters: str | None = None
    on_schema_change: OnSchemaChange = "fail"
    max_rows: int | None = None
    chunk_rows: int | None = None
    every: str | None = None
    retries: Retries = Retries()
    spool: str | None = None
    quarantine: str | None = None
    last_seen: LastSeen = field(default_factory=LastSeen, compare=False, repr=False)

    def __post_init__(self) -> None:
        require_name("job", self.name)
        require_names(self.name, "sink", [sink.name for sink in self.sinks])
        require_names(self.name, "source", [source.name for source in self.sources])
        RuleSet(tuple(self.rules))

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
        limit = max_rows or self.max_rows
        request = RunRequest(start, full_refresh, limit, finish, abandon, waits_for_settling)
        step = self.step(spark, store, request)
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
        limits = [limit for limit in (max_rows or self.max_rows, self.chunk_rows) if limit]
        request = RunRequest(start, full_refresh, min(limits, default=None), waits_for_settling=False)
        return plan(self.step(spark, store, request))

    def reset(self, spark: SparkSession | Session | None = None, store: MarkStore | None = None) -> None:
        """Forget the marks: the next run delivers everything again."""
        reset_marks(self.step(spark, store, RunRequest()))

    def set_mark(
        self, text: str, spark: SparkSession | Session | None = None, store: MarkStore | None = None
    ) -> HWM[Any]:
        """Put the mark somewhere else, up or down; the next run reads what lies above it."""
        return set_mark(self.step(spark, store, RunRequest()), text)

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
    ) -> Reconciled:
        """Compare the source with one of the job's tables, at or below the mark; repair it if asked to."""
        from floodmark.jobs.ranges import Bounds
        from floodmark.jobs.reconcile import Asked, reconcile

        step = self.step(spark, store, RunRequest())
        with noting_failure(step):
            return reconcile(step, Asked(Bounds(start, stop), sink, by, tuple(key), tuple(ignore), repair))

    def rollback(
        self, to: str, spark: SparkSession | Session | None = None, store: MarkStore | None = None
    ) -> JobRecord:
        """Put tables and marks back together to how a batch left them: its number, its run's id, or `last-good`."""
        from floodmark.jobs.rollback import roll_back

        return roll_back(self.step(spark, store, RunRequest()), to)

    def step(self, spark: SparkSession | Session | None, store: MarkStore | None, request: RunRequest) -> Step:
        opened = store or stores.open(DEFAULT_STORE)
        return Step(opened, session_of(spark), self.work(opened), request, last_seen=self.last_seen)

    def quarantine_sink(self, store: MarkStore) -> Delta:
        """The table of rows that broke a rule, by default beside the marks; it is made when a row has to go there.

        A job whose rules were taken out has it too: a batch that was frozen with them may still be open.
        """
        return Delta(path=self.quarantine or f"{folder_beside(store)}/quarantine/{self.name}", name="quarantine")

    def work(self, store: MarkStore) -> Work:
        """The same job in the words of the step."""
        malformed, rules = "dead_letter" if self.dead_letters else "fail", RuleSet(tuple(self.rules))
        sources = tuple(having(source, malformed=malformed) for source in self.sources)
        sinks = tuple(having(sink, evolve=self.on_schema_change == "evolve") for sink in self.sinks)
        return Work(
            name=self.name,
            sources=sources,
            sinks=without_repeats(self.name, sources, sinks, rules),
            transform=self._transform(),
            rules=rules,
            dead_letters=Delta(path=self.dead_letters, name="dead_letters", evolve=True) if self.dead_letters else None,
            quarantine=self.quarantine_sink(store),
            on_schema_change=self.on_schema_change,
            spool_folder=self.spool or spool_folder(store),
        )

    def _transform(self) -> Transform:
        given, [first, *_] = as_transform(self.transform), self.sources
        return first.transform_for(given) if isinstance(first, TransformMaker) else given


def run_to_the_end(step: Step) -> Receipt:
    """One batch; where it was an open one, the next as well, so that one run leaves nothing behind."""
    first = step.run()
    if first.status != "done" or not first.recovered:
        return first
    second = replace(step, request=replace(step.request, finish=False, abandon=False)).run()
    return first.followed_by(second) if second.status == "done" else first


@contextmanager
def noting_failure(step: Step) -> Iterator[None]:
    """Whatever is raised is kept for `floodmark runs`, and goes on."""
    try:
        yield
    except FloodmarkError as error:
        note_failure(step, error)
        raise


def note_failure(step: Step, error: FloodmarkError) -> None:
    """Keep the failure for `floodmark runs`; a store that is itself the trouble cannot, and the error says so."""
    if isinstance(error, LeaseHeld):
        return
    results = error.results if isinstance(error, RuleBroken) else ()
    rules = tuple(RuleOutcome.deserialize(result) for result in results)
    receipt = Receipt(step.work.name, "", "failed", datetime.now(timezone.utc), error=str(error), rules=rules)
    try:
        step.store.add_run(receipt)
    except FloodmarkError:
        return


def session_of(spark: SparkSession | Session | None) -> Session:
    """A session that is there, or one that is started when the first rows have to be read."""
    if spark is None:
        return spark_session
    if callable(spark):
        return spark
    return lambda: spark


def as_transform(given: str | Callable[..., DataFrame] | Transform | None) -> Transform:
    """The transform as the step knows it, however the user wrote it down."""
    if given is None:
        return Identity()
    if isinstance(given, str):
        return Sql(given)
    return given if isinstance(given, Transform) else Function(given)


def having(part: Part, **settings: object) -> Part:
    """The part with those of the job's settings that it knows."""
    if not is_dataclass(part) or isinstance(part, type):
        return part
    known = {each.name for each in fields(part)}
    fitting = {name: value for name, value in settings.items() if name in known}
    return replace(part, **fitting) if fitting else part
