"""What can be told offline about the cursor of a table: rows that nothing tells apart, and rows without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.jobs.findings import Finding
from floodmark.jobs.kinds_database import JdbcSource, TableOrQuery
from floodmark.probes.cursor_query import Relation

if TYPE_CHECKING:
    from floodmark.jobs.project import JobModel
    from floodmark.jobs.yaml_text import Place

Found = Callable[["Place", str, str, str], Finding]
"""Makes a finding of a place in the job, an id, a message and a hint."""
CURSOR = ("source", "cursor")
CHOICES = "key: [id], or column: [{}, id], or unique: true if no two rows ever have the same"


def lint_cursor(job: JobModel, found: Found) -> Iterator[Finding]:
    """The findings on the cursor of a job."""
    source = job.source
    if not isinstance(source, TableOrQuery):
        return
    if not _is_told_apart(source):
        name = (source.cursor.column or source.cursor.coalesce)[0]
        said = f"several rows may have the same {name}, and nothing tells them apart: the run will refuse"
        yield found(CURSOR, "FM417", said, CHOICES.format(name))
    if source.cursor.on_null == "include":
        for position, sink in enumerate(job.sinks):
            if getattr(sink, "mode", None) != "merge":
                said = f"sink '{sink.ledger_name()}' would keep a row twice: without its cursor, and once it has one"
                yield found(("sinks", position), "FM416", said, "mode: merge, or on_null: exclude, or coalesce")


def _is_told_apart(source: TableOrQuery) -> bool:
    """Whether a run can tell rows of one value apart, as far as the file says; of a table the catalog may know more."""
    if source.cursor.unique or len(source.cursor.column) > 1 or "xmin" in source.cursor.column:
        return True
    if source.query is not None:
        return bool(source.key) and not is_bounded(source.query)
    is_silent = isinstance(source, JdbcSource) and not source.url.startswith("jdbc:postgresql:")
    return not is_silent


def is_bounded(query: str) -> bool:
    """Whether the query names its bounds; FM206 tells of one that names them wrongly."""
    try:
        return Relation(query=query).is_bounded
    except ConfigError:
        return False
