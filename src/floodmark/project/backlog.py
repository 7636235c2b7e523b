"""How far jobs are behind, asked without Spark: rows that sources have above the marks, batches that sinks lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, NoReturn

from floodmark.errors import ModuleNeedsSpark, SinkBehind, SourceUnreadable
from floodmark.errors.causes import reason_of
from floodmark.health.report import SinkUnseen
from floodmark.logs import get_logger
from floodmark.patience import answers_in_time
from floodmark.sinks import Delta
from floodmark.sinks.contract import OnDelta, answering_at_once, ledger_id
from floodmark.step.looking import sink_behind, source_request
from floodmark.step.work import KEY_OF_ASIDE, RunRequest
from floodmark.stores.record import JobRecord

if TYPE_CHECKING:
    from floodmark.health.tables import TableLooks
    from floodmark.project.kinds import Site
    from floodmark.project.models import JobModel
    from floodmark.sinks.contract import Sink
    from floodmark.sources.contract import Source
    from floodmark.stores.contract import MarkStore


log = get_logger(__name__)
AT_ONCE = 16


def rows_behind(
    jobs: Iterable[JobModel],
    site: Site,
    store: MarkStore,
    patience_seconds: float | None = None,
    tables: TableLooks | None = None,
) -> dict[str, int]:
    """By job, what its source has above its mark; a job is absent whose source cannot tell, or not without Spark.

    With patience that ends, one that has not answered by then is absent too: a server that is down is slow to say so.
    """
    waiting: SimpleQueue[tuple[JobModel, JobRecord]] = SimpleQueue()
    for job in jobs:
        waiting.put((job, store.read(job.name) or JobRecord(job.name)))
    found: dict[str, int | None] = {}

    def ask() -> None:
        with suppress(Empty):
            while True:
                job, record = waiting.get_nowait()
                found[job.name] = _behind(job, record, site, tables)

    threads = [Thread(target=ask, daemon=True) for _ in range(min(AT_ONCE, waiting.qsize()))]
    deadline = None if patience_seconds is None else monotonic() + patience_seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(None if deadline is None else max(0.0, deadline - monotonic()))
    return {name: rows for name, rows in list(found.items()) if rows is not None}


def sinks_behind(
    jobs: Iterable[JobModel],
    site: Site,
    store: MarkStore,
    patience_seconds: float | None = None,
    tables: TableLooks | None = None,
) -> dict[str, list[SinkBehind | SinkUnseen]]:
    """By job, the sinks that lost batches which they had confirmed, and those that gave no answer without Spark.

    With patience that ends, one that is silent for longer is among the latter.
    """
    known = [(job, record) for job in jobs if (record := store.read(job.name)) is not None and record.extras.sinks]
    asked = [question for job, record in known for question in _questions(job, record, site, store.namespace, tables)]
    answers = answers_in_time(dict(enumerate(each.ask for each in asked)), patience_seconds, at_once=AT_ONCE)
    found: dict[str, list[SinkBehind | SinkUnseen]] = {}
    for number, each in enumerate(asked):
        answer = answers[number] if number in answers else each.unanswered(patience_seconds)
        if answer is not None:
            found.setdefault(each.job, []).append(answer)
    return found


@dataclass(frozen=True)
class SinkQuestion:
    """Which batches of a job a sink has; `name` is what the project calls the sink, before it is built."""

    record: JobRecord
    name: str
    make: Callable[[], Sink]
    namespace: str
    tables: TableLooks | None = None
    """Whose looks it shares; none beside a run, which asks these tables itself."""
    key_begin: str = ""

    @property
    def job(self) -> str:
        return self.record.job

    def ask(self) -> SinkBehind | SinkUnseen | None:
        """What it lost, or why it does not tell; None, if it has all that it confirmed."""
        name = self.name
        try:
            sink = answering_at_once(self.make())
            name = sink.name
            targets = [table.target for table in sink.tables()] if isinstance(sink, OnDelta) else []
            with _lent(self.tables, *targets):
                recorded = sink.recorded(ledger_id(self.namespace, self.job, name), _no_session)
        except SessionNeeded as error:
            return SinkUnseen(self.job, name, error.reason, needs_session=True)
        except Exception as error:  # noqa: BLE001 - whatever a sink or its server says, it is the answer here
            return SinkUnseen(self.job, name, reason_of(error))
        return sink_behind(sink, self.namespace, self.record, recorded, f"{self.key_begin}{name}")

    def unanswered(self, patience_seconds: float | None) -> SinkUnseen:
        return SinkUnseen(self.job, self.name, f"no answer within {patience_seconds:g} s")


def _questions(
    job: JobModel, record: JobRecord, site: Site, namespace: str, tables: TableLooks | None
) -> Iterator[SinkQuestion]:
    for model in job.sinks:
        yield SinkQuestion(record, model.ledger_name(), partial(model.build, site), namespace, tables)
    for name, path in job.places_aside().items():
        yield SinkQuestion(record, name, partial(Delta, site.path(path), name=name), namespace, tables, KEY_OF_ASIDE)


def _lent(tables: TableLooks | None, *readers: object) -> AbstractContextManager[None]:
    return nullcontext() if tables is None else tables.lent_to(*readers)


def _behind(job: JobModel, record: JobRecord, site: Site, tables: TableLooks | None) -> int | None:
    try:
        with closing_source(job.source.build(site)) as source, _lent(tables, source):
            return rows_above(source, record)
    except ModuleNeedsSpark as error:
        log.warning(error.message, job=job.name)
        return None
    except Exception as error:  # noqa: BLE001 - it may be a user's own source, and one number less is no failure
        log.info("a source could not be asked how far its mark is behind", job=job.name, reason=reason_of(error))
        return None


def rows_above(source: Source, record: JobRecord) -> int | None:
    """One look, as a run takes it; rows that wait for somebody are behind as well. None: it cannot tell."""
    known = record.sources.get(source.name)
    if source.name in record.marks and known is not None and known != source.fingerprint(_no_session):
        return None  # the mark is of another source, and says nothing about this one
    sight = source.look(
        record.marks.get(source.name), source_request(source, record, RunRequest(waits_for_settling=False)), _no_session
    )
    if sight.span is None:
        return sight.held_back
    return None if sight.expected_rows is None else sight.expected_rows + sight.held_back


@contextmanager
def closing_source(source: Source) -> Iterator[Source]:
    """The source, whose connection, if it keeps one, ends with the question."""
    try:
        yield source
    finally:
        close = getattr(source, "close", None)
        if close is not None:
            close()


class SessionNeeded(SourceUnreadable):
    """Only Spark can answer, and it was not started for a look."""


def _no_session() -> NoReturn:
    raise SessionNeeded("the source", reason="it can only be looked at with a Spark session")
