"""A job on trial: its own transform, rules and modes, over given rows and into tables that last as long as a case."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark import sinks, sources
from floodmark.errors import ConfigError, FloodmarkError
from floodmark.medallion.facts import TouchedDates
from floodmark.probes.rows import MANY_ROWS, Filter, delta_rows
from floodmark.probes.set_aside import rows_set_aside
from floodmark.project.cases import ASIDE, Case, CaseBatch, Difference, Row, compare
from floodmark.sinks.delta import DeltaDates
from floodmark.sources.values import value_of
from floodmark.stores.memory import MemoryMarkStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.jobs.job import Job
    from floodmark.sinks.contract import Sink
    from floodmark.sources.contract import Source


MERGING = ("mode", "key", "by", "sequence", "delete_when", "keep_deleted")
FEED = {"delta.enableChangeDataFeed": "true"}


@dataclass(frozen=True)
class Trial:
    """A case and its job in a folder of their own."""

    case: Case
    job: Job
    folder: Path
    session: SparkSession
    store: MemoryMarkStore = field(default_factory=MemoryMarkStore)

    def differences(self) -> Iterator[Difference | str]:
        """Run batch after batch, and say where tables hold something else; the first wrong batch is the last one."""
        job = self._job()
        for name, rows in self.case.tables.items():
            self._frame(rows, None).createOrReplaceTempView(name)
        try:
            yield from self._first_wrong_batch(job)
        finally:
            for name in self.case.tables:
                self.session.catalog.dropTempView(name)

    def _first_wrong_batch(self, job: Job) -> Iterator[Difference | str]:
        for number, batch in enumerate(self.case.batches, 1):
            self._arrive(batch, number)
            wrong = [*self._run(job, batch, number)]
            yield from wrong
            if wrong:
                return

    def _run(self, job: Job, batch: CaseBatch, number: int) -> Iterator[Difference | str]:
        failure: FloodmarkError | None = None
        try:
            job.run(self.session, self.store)
        except FloodmarkError as error:
            failure = error
        if failure is not None and (batch.expect.fails is None or batch.expect.fails not in str(failure)):
            yield f"batch {number} failed: {failure.message}"
            return
        if failure is None and batch.expect.fails is not None:
            yield f"batch {number} did not fail, and `{batch.expect.fails}` was expected"
        for table, expected in batch.expect.tables():
            difference = compare(number, table, expected, self._rows(job, table))
            if difference is not None:
                yield difference

    def _job(self) -> Job:
        """The job with its own transform, rules and modes; where rows come from and go to is in the folder."""
        self._require_known_sinks()
        return replace(
            self.job,
            source=self._source(),
            sinks=[trial_sink(sink, str(self.folder / "sinks" / sink.name)) for sink in self.job.sinks],
            quarantine=str(self.folder / "quarantine"),
            dead_letters=str(self.folder / "dead_letters") if self.job.dead_letters else None,
            spool=str(self.folder / "spool"),
        )

    def _require_known_sinks(self) -> None:
        known = [sink.name for sink in self.job.sinks]
        for name in (name for batch in self.case.batches for name in batch.expect.sinks):
            if name not in known:
                said = f"case '{self.case.name}': job '{self.job.name}' has no sink '{name}'."
                raise ConfigError(said, hint=f"one of: {', '.join([*known, *ASIDE])}")

    def _source(self) -> Source:
        source, incoming = self.job.sources[0], self.folder / "in"
        incoming.mkdir(parents=True)
        if isinstance(source, TouchedDates):
            inside = {each.name: str(incoming / each.name) for each in source.inputs}
            rows = replace(source.rows, path=inside[source.rows.name], table=None)
            lookups = tuple(replace(each, path=inside[each.name], table=None) for each in source.lookups)
            return replace(source, rows=rows, lookups=lookups)
        if len(self.job.sources) > 1:
            raise ConfigError(
                f"job '{self.job.name}' has several sources: its rows cannot be given.", hint="test it in Python"
            )
        schema = self.case.schema_ if isinstance(self.case.schema_, str) else declared_schema(source)
        return sources.Files(incoming, schema=schema, settle=0, name=source.name, glob="*.jsonl")

    def _arrive(self, batch: CaseBatch, number: int) -> None:
        if isinstance(batch.given, Mapping):
            for name, rows in batch.given.items():
                self._append(name, rows)
            return
        file = self.folder / "in" / f"{number:04}.jsonl"
        lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in batch.given]
        if lines:
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def _append(self, table: str, rows: Sequence[Row]) -> None:
        """Add rows to one of the tables of a fact."""
        schema = self.case.schema_.get(table) if isinstance(self.case.schema_, Mapping) else None
        writer = self._frame(rows, schema).write.format("delta").mode("append")
        for name, value in FEED.items():
            writer = writer.option(name, value)
        writer.save(str(self.folder / "in" / table))

    def _frame(self, rows: Sequence[Row], schema: str | None) -> Any:  # noqa: ANN401 - a DataFrame of either kind
        file = self.folder / "rows" / f"{len(list((self.folder / 'rows').glob('*')))}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8")
        reader = self.session.read.schema(schema) if schema else self.session.read
        return reader.json(str(file))

    def _rows(self, job: Job, table: str) -> list[Row]:
        if table == "quarantine":
            return list(_set_aside(str(job.quarantine), job.name))
        if table == "dead_letters":
            return list(_set_aside(str(job.dead_letters), job.name)) if job.dead_letters else []
        path = self.folder / "sinks" / table
        if not (path / "_delta_log").is_dir():
            return []
        return [dict(row) for row in delta_rows(str(path), Filter(limit=MANY_ROWS)).values]


def _set_aside(path: str, job: str) -> Iterator[Row]:
    """What was put aside: the record's own columns, why, and the text of what could not be parsed."""
    for row in rows_set_aside(path, job):
        record = json.loads(row.record) if row.record else {}
        yield {**(record if isinstance(record, dict) else {}), "_reasons": list(row.reasons), "_text": row.text}


def declared_schema(source: object) -> Any:  # noqa: ANN401 - DDL or Spark's own
    """The columns of a source that says them; Spark infers others from the rows."""
    if isinstance(source, sources.Files):
        return source.schema
    value = value_of(source.value) if isinstance(source, sources.Kafka) else None
    return None if value is None or isinstance(value, str) else value.schema


def trial_sink(sink: Sink, path: str) -> Sink:
    """The same way of writing into a Delta table of the case: a topic and files become rows that are appended."""
    if isinstance(sink, sinks.Delta | sinks.Scd1 | DeltaDates):
        return replace(sink, path=path, table=None)
    if isinstance(sink, sinks.Postgres):
        return sinks.Delta(path, name=sink.name, **{name: getattr(sink, name) for name in MERGING})
    return sinks.Delta(path, name=sink.name)
