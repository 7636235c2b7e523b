"""What can be told offline about reading a table while others write to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.jobs.findings import Finding
from floodmark.jobs.kinds import DeltaSink
from floodmark.jobs.kinds_database import PostgresSink, PostgresSource, SqliteSource, TableOrQuery

if TYPE_CHECKING:
    from floodmark.jobs.kinds import SinkModel
    from floodmark.jobs.project import JobModel
    from floodmark.jobs.yaml_text import Place

Found = Callable[["Place", str, str, str], Finding]
"""Makes a finding of a place in the job, an id, a message and a hint."""
CURSOR = ("source", "cursor")


def lint_safety(job: JobModel, found: Found) -> Iterator[Finding]:
    """The findings on the safety of a job's cursor."""
    source = job.source
    if not isinstance(source, TableOrQuery):
        return
    if "xmin" in source.cursor.column:
        yield found(CURSOR, "FM415", "no index knows xmin: every look and every read scans the table", SLOWER)
        return
    way = _way(source)
    if way == "none" and not isinstance(source, SqliteSource):
        said = "a row that commits late, at or below a value that was read, is never read"
        yield found(CURSOR, "FM410", said, INSTEAD if isinstance(source, PostgresSource) else ELSEWHERE)
    if way == "delay":
        said = "rows of a transaction that is open for longer than the delay are never read"
        yield found(CURSOR, "FM413", said, "make it longer than any transaction, or use safety: fence")
    if way == "lag":
        yield from _lag(job, source, found)


def _lag(job: JobModel, source: TableOrQuery, found: Found) -> Iterator[Finding]:
    if not getattr(source, "key", ()):
        yield found(CURSOR, "FM414", "safety: lag reads some rows again, and nothing tells them apart", "add key: [id]")
    for position, sink in enumerate(job.sinks):
        if not _knows_again(sink):
            said = f"sink '{sink.ledger_name()}' would write rows twice that safety: lag reads again"
            yield found(("sinks", position), "FM414", said, "a Delta table with append or merge, or mode: merge")


def _knows_again(sink: SinkModel) -> bool:
    """As the sinks themselves answer `without_repeats`."""
    if isinstance(sink, DeltaSink):
        return sink.mode in ("append", "merge")
    return isinstance(sink, PostgresSink) and sink.mode == "merge"


def _way(source: TableOrQuery) -> str | None:
    """The chosen way, else the source's own; None where the choice itself is wrong, and FM206 says so."""
    from floodmark.sources.table_safety import Safety

    try:
        return Safety.of(source.cursor.safety or ("fence" if isinstance(source, PostgresSource) else "none")).way
    except ConfigError:
        return None


INSTEAD = "leave safety out: then a fence waits for whoever may still write"
ELSEWHERE = "safety: {delay: 30s}, or safety: {lag: 1h} into a merge"
SLOWER = "nothing, or a column with an index that grows"
