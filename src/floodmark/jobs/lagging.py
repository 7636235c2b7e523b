"""How far jobs are behind: the rows that their sources have above the marks, asked without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from floodmark.errors import SourceUnreadable
from floodmark.logs import get_logger
from floodmark.step.looking import sight_of
from floodmark.step.transform import first_lines
from floodmark.step.work import RunRequest
from floodmark.stores.record import JobRecord

if TYPE_CHECKING:
    from floodmark.jobs.kinds import Site
    from floodmark.jobs.project import JobModel
    from floodmark.sources.contract import Source
    from floodmark.stores.contract import MarkStore

log = get_logger(__name__)
AT_ONCE = 16


def rows_behind(jobs: Iterable[JobModel], site: Site, store: MarkStore) -> dict[str, int]:
    """By job, what its source has above its mark; a job is absent whose source cannot tell, or not without Spark."""
    known = [(job, store.read(job.name) or JobRecord(job.name)) for job in jobs]
    with ThreadPoolExecutor(AT_ONCE) as asking:  # a server that is down is waited for, and others need not be
        found = list(asking.map(lambda pair: (pair[0].name, _behind(pair[0], pair[1], site)), known))
    return {name: rows for name, rows in found if rows is not None}


def _behind(job: JobModel, record: JobRecord, site: Site) -> int | None:
    try:
        with closing_source(job.source.build(site)) as source:
            return rows_above(source, record)
    except Exception as error:  # noqa: BLE001 - it may be a user's own source, and one number less is no failure
        log.info("a source could not be asked how far its mark is behind", job=job.name, reason=first_lines(error))
        return None


def rows_above(source: Source, record: JobRecord) -> int | None:
    """One look, as a run takes it; rows that wait for somebody are behind as well. None: it cannot tell."""
    known = record.sources.get(source.name)
    if source.name in record.marks and known is not None and known != source.fingerprint(_no_session):
        return None  # the mark is of another source, and says nothing about this one
    sight = sight_of(source, record, RunRequest(waits_for_settling=False), _no_session)
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


def _no_session() -> NoReturn:
    raise SourceUnreadable("the source", reason="it can only be looked at with a Spark session")
