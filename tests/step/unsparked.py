"""A step whose rows are plain lists: everything of the protocol, and no Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from floodmark.errors import FloodmarkError
from floodmark.sinks.contract import Atomic, Batch, Recorded, Sink, is_written, ledger_id
from floodmark.step.batch import PreparedBatch
from floodmark.step.run import Step
from floodmark.step.spool import RowCounts
from floodmark.step.transform import Identity
from floodmark.step.work import RunRequest, Work
from floodmark.testing import RowsSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.sources.contract import Session
    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import Intent


def no_session() -> SparkSession:
    raise AssertionError("nothing here needs Spark")


class RunPaused(FloodmarkError):
    """A run that stands still inside a write; what it would write is held until it is thawed."""

    def __init__(self) -> None:
        super().__init__("paused.", hint="thaw it")


class Rows(list[Any]):
    """Rows on their way to a sink."""

    sparkSession = None  # noqa: N815, a frame is asked for it


@dataclass
class LedgerSink(Atomic):
    """Keeps the rows that it took once per number, as every sink does; `calls` is what it was asked to change.

    With `pauses` a write is held back as if its process had been stopped; `thaw` lets it go on. `before_write` and
    `before_fence` happen just before. Two sinks on one target share `rows` and `ledger`.
    """

    name: str
    rows: list[Any] = field(default_factory=list)
    ledger: dict[str, Recorded] = field(default_factory=dict)
    pauses: bool = False
    before_write: Callable[[], None] = lambda: None
    before_fence: Callable[[], None] = lambda: None
    calls: list[str] = field(default_factory=list)
    held_writes: list[tuple[Any, Batch]] = field(default_factory=list)
    target: str = ""
    written: dict[int, int] = field(default_factory=dict)

    def describe(self) -> str:
        return self.target or f"list of {self.name}"

    def fingerprint(self) -> str:
        return f"ledger sink {self.describe()}"

    def recorded(self, ledger: str, session: Session) -> Recorded | None:
        return self.ledger.get(ledger)

    def holds_rows(self, session: Session) -> bool:
        return False

    def write(self, rows: DataFrame, batch: Batch) -> int:
        self.before_write()
        if self.pauses:
            self.held_writes.append((rows, batch))
            raise RunPaused
        self.calls.append(f"write {batch.number}")
        taken = cast("list[Any]", rows)
        if is_written(self.ledger.get(batch.ledger(self.name)), batch, self.name, self.describe()):
            return self.written.get(batch.number, len(taken))
        self.written[batch.number] = len(taken)
        self.rows[:] = taken if batch.kind == "refresh" else [*self.rows, *taken]
        self.ledger[batch.ledger(self.name)] = Recorded(batch.number, batch.digest)
        return len(taken)

    def thaw(self) -> None:
        """The paused write goes on. Raises Overtaken if the sink was fenced meanwhile."""
        self.pauses, held = False, self.held_writes[:]
        self.held_writes.clear()
        for rows, batch in held:
            self.write(rows, batch)

    def fence(self, ledger: str, number: int, session: Session) -> None:
        self.before_fence()
        self.calls.append(f"fence {number}")
        recorded = self.ledger.get(ledger)
        if recorded is None or recorded.number < number:
            self.ledger[ledger] = Recorded(number, is_fence=True, before=recorded.last_batch if recorded else 0)


@dataclass(frozen=True)
class Code(Identity):
    """A transform that changes nothing, in some version."""

    version: str = "1"

    def fingerprint(self) -> str:
        return f"code {self.version}"


class PlainJudgement:
    """Rows that no rule judges."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def kept_rows(self) -> list[Any]:
        return self.rows


class PlainPrepared(PreparedBatch):
    """A batch as a list."""

    def row_counts(self, *, was_executed: bool) -> RowCounts:
        return RowCounts(len(self.judgement.kept_rows()))  # type: ignore[arg-type]


@dataclass(frozen=True)
class PlainStep(Step):
    """A step of a `RowsSource`; its rows go to the sinks as they are."""

    def prepare(self, intent: Intent) -> PreparedBatch:
        source = self.work.sources[0]
        assert isinstance(source, RowsSource)
        span = intent.spans.get(source.name)
        rows = Rows(source.rows[span.after.value if span.after else 0 : span.upto.value] if span else [])
        return PlainPrepared(cast("Any", PlainJudgement(rows)), (), None, {})

    def fit(self, rows: DataFrame, sink: Sink, batch: Batch) -> DataFrame:
        return rows


def step_of(
    store: MarkStore, rows: list[Any], *sinks: Sink, code: str = "1", request: RunRequest | None = None
) -> PlainStep:
    work = Work("numbers", (RowsSource(rows),), tuple(sinks), Code(code), spool_folder="/nonexistent/spool")
    return PlainStep(store, no_session, work, request or RunRequest())


def ledger_of(sink: str) -> str:
    return ledger_id("default", "numbers", sink)
