"""What a job promises for each of its sinks, and what it does not, in plain words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.project.findings import Finding
from floodmark.project.kinds import ConsoleSink, DeltaSink, DeltaSource, SinkModel
from floodmark.project.kinds.servers import PostgresSink
from floodmark.step.transform import Sql

if TYPE_CHECKING:
    from floodmark.project.models import JobModel


COMPARED = ("append", "merge", "replace")
"""Modes of tables that can be compared with their source."""
TABLES = ("postgres", "jdbc", "sqlite")
HISTORY = (
    "each event exactly once: it is added to the log, then its key is rebuilt; both commits carry the batch number, "
    "so a repeat changes nothing"
)
WRITTEN = {
    "append": "added",
    "merge": "merged by its key",
    "replace": "put in place of the old ones",
    "dates": "put in place of the old ones of its date",
    "dimension": "merged by its surrogate key",
}
PROMISES = {
    "files": "each row exactly once: a batch is published by one rename, so a repeat finds it there and adds nothing",
    "kafka": "each row exactly once for consumers with isolation.level=read_committed: number and rows are one "
    "transaction per partition and chunk",
    "postgres": "each row exactly once: rows and batch number are one transaction",
}


def guarantee_text(sink: SinkModel) -> str:
    """The guarantee of a sink in plain words."""
    if isinstance(sink, ConsoleSink):
        return "each row at least once: a batch that is repeated after a crash is printed again"
    if isinstance(sink, DeltaSink) and sink.mode in ("scd1", "scd2"):
        return HISTORY
    if isinstance(sink, DeltaSink):
        how = WRITTEN[sink.mode]
        return f"each row is {how} exactly once: the batch number is part of the commit, so a repeat changes nothing"
    return PROMISES[sink.type]


@dataclass(frozen=True)
class Limit:
    """Something that a job with such a source or sink cannot do; the words may name {job}, {cursor} and {sink}."""

    rule: str
    holds: Callable[[JobModel, SinkModel], bool]
    message: str
    hint: str


def of_source(*kinds: str) -> Callable[[JobModel, SinkModel], bool]:
    """Holds for jobs that read one of these."""
    return lambda job, sink: job.source.type in kinds


def of_mode(*modes: str) -> Callable[[JobModel, SinkModel], bool]:
    """Holds for sinks that write in one of these ways."""
    return lambda job, sink: isinstance(sink, DeltaSink | PostgresSink) and sink.mode in modes


def _merges_by_position(job: JobModel, sink: SinkModel) -> bool:
    return isinstance(sink, DeltaSink | PostgresSink) and sink.mode == "merge" and not sink.sequence


def _takes_added_rows(job: JobModel, sink: SinkModel) -> bool:
    return isinstance(job.source, DeltaSource) and job.source.changes == "append"


LIMITS = (
    Limit(
        "FM311",
        of_source(*TABLES),
        "updates without a new {cursor} are not seen, and deletes never",
        "{repair}",
    ),
    Limit(
        "FM312",
        _merges_by_position,
        "{sink} has no sequence: between two batches the later one wins, whichever row is newer",
        "sequence: [the column that says which row is newer]",
    ),
    Limit(
        "FM313",
        of_mode("append"),
        "{sink} appends: a backfill, or a run after `marks reset`, adds rows a second time",
        "mode: merge with a key, where rows may be delivered again",
    ),
    Limit(
        "FM314",
        _takes_added_rows,
        "an update or a delete in the source table stops the job (exit 5)",
        "changes: feed delivers all three kinds",
    ),
    Limit(
        "FM315",
        of_source("kafka"),
        "messages that retention or compaction takes away before they are read are lost; the job stops (exit 5)",
        "floodmark check says how near the mark is to the oldest message",
    ),
    Limit(
        "FM315",
        of_source("delta", "fact"),
        "what vacuum or the cleanup of its log takes from the table before it is read is lost; the job stops (exit 5)",
        "floodmark optimize sets how long the table keeps both, floodmark check says how long that is",
    ),
    Limit(
        "FM316",
        of_source("files"),
        "what is changed in a file after it was read is not delivered; the job stops (exit 5)",
        "on_rewritten: reread",
    ),
    Limit(
        "FM317",
        lambda job, sink: sink.type == "kafka",
        "consumers of {sink} without isolation.level=read_committed see messages of aborted attempts",
        "set it in every consumer",
    ),
)


def limits(job: JobModel, where: str) -> Iterator[Finding]:
    """Everything that the job does not promise, each once: what is about its source does not depend on the sink."""
    seen: set[str] = set()
    for limit in LIMITS:
        for sink in (sink for sink in job.sinks if limit.holds(job, sink)):
            words = {"job": job.name, "cursor": cursor_of(job), "sink": f"sink '{sink.ledger_name()}'"}
            words["repair"] = repair_hint(job)
            message = limit.message.format(**words)
            if message not in seen:
                seen.add(message)
                yield Finding(limit.rule, where, job.name, message, limit.hint.format(**words))


def repair_hint(job: JobModel) -> str:
    """What finds rows that a cursor did not see, and puts them right, for the sinks that this job has."""
    tables = [sink for sink in job.sinks if isinstance(sink, DeltaSink | PostgresSink) and sink.mode in COMPARED]
    rebuild = f"floodmark run --select {job.name} --full-refresh delivers every row again"
    if not tables or not _is_row_by_row(job):
        return rebuild
    table = next((each for each in tables if each.mode == "merge"), tables[0])
    which = f" --sink {table.ledger_name()}" if len(tables) > 1 else ""
    if table.mode == "merge":
        return f"floodmark reconcile {job.name}{which} finds them, --repair puts them right"
    return f"floodmark reconcile {job.name}{which} --key COLUMN finds them; {rebuild}"


def _is_row_by_row(job: JobModel) -> bool:
    """Whether SQL, if there is any, makes each row of one row: else nothing can be compared with the source."""
    if job.transform is None or job.transform.sql is None:
        return job.transform is None or job.transform.dimension is None
    try:
        return Sql(job.transform.sql).is_plain_select()
    except ConfigError:
        return False  # FM101 says so


def cursor_of(job: JobModel) -> str:
    """The cursor's columns; empty where there is none."""
    return ", ".join(getattr(getattr(job.source, "cursor", None), "column", ()))
