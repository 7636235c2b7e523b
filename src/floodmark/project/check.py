"""Check: what can be said about a job online, before its first run. Every part is asked, and none is changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from floodmark.errors import FloodmarkError
from floodmark.hwm import VersionHWM
from floodmark.hwm.mark import mark_text
from floodmark.jobs.table_readers import kept_by, time_of
from floodmark.locations import local_path
from floodmark.postgres import Address
from floodmark.probes.delta import DeltaProbe
from floodmark.probes.kafka import KafkaProbe
from floodmark.probes.kafka.client import KafkaOptions
from floodmark.probes.postgres import PostgresProbe, TableFacts, table_facts, target_facts
from floodmark.probes.tables.dialects import Postgres as Dialect
from floodmark.probes.tables.relation import Relation
from floodmark.project.findings import RULES, Remarks
from floodmark.sinks import Delta
from floodmark.sinks import Files as FilesSink
from floodmark.sinks import Postgres as PostgresSink
from floodmark.sinks.contract import answering_at_once, ledger_id
from floodmark.sources import Delta as DeltaSource
from floodmark.sources import Kafka, Postgres
from floodmark.sources.contract import Request
from floodmark.sources.kafka.offsets import offsets_in
from floodmark.sources.tables.cursor import Cursor
from floodmark.sources.tables.postgres import select_columns
from floodmark.spark.faults import hosts_without
from floodmark.spark.session import is_local
from floodmark.spark.tables import DeltaPlace
from floodmark.step.looking import last_confirmed, name_of, require_same_sources, sink_behind
from floodmark.step.work import display_marks
from floodmark.stores.record import JobRecord

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.hwm import HWM
    from floodmark.probes.tables import ResolvedCursor
    from floodmark.sinks.contract import Sink
    from floodmark.sources.contract import Session, Sight, Source
    from floodmark.step import Step
    from floodmark.step.work import Work


TEXTS = ("text", "character varying", "character")
GRAVEST = (5, 1, 4, 2)
"""Exit codes: a decision, a failure, a lease, the configuration."""


@dataclass(frozen=True)
class JobCheck:
    """One job, asked part by part: one that cannot be reached is a finding, and the others are asked all the same."""

    step: Step
    master: str = "local[*]"
    """Spark's, as far as the project says."""

    def results(self) -> Iterator[CheckResult]:
        record = self.step.read()
        mark = f"at {mark_text(display_marks(record.marks))}" if record.marks else "none: the next run is the first one"
        yield CheckResult(self.step.work.name, "mark", mark)
        for source in self.step.work.sources:
            yield from self._part_results(f"source {source.name}", self._source_remarks(source, record))
        for key, sink in self._sinks_to_ask(record):
            yield from self._part_results(f"sink {name_of(key)}", self._sink_remarks(sink, record, key))
        yield from self._part_results("disks", self._disk_remarks())

    def _disk_remarks(self) -> Remarks:
        """Whether tasks on other machines see the folders that the driver makes; a local Spark is not asked."""
        for folder in () if is_local(self.master) else driver_folders(self.step.work):
            hosts = hosts_without(folder, self.step.session())
            if hosts:
                hint = "a disk that the driver and all executors share, or a sink of type delta on an object store"
                yield "FM508", f"{', '.join(hosts)} does not see {folder}: every batch would be refused", hint
            else:
                yield "", f"the executors that were asked see {folder}", ""

    def _part_results(self, part: str, remarks: Remarks) -> Iterator[CheckResult]:
        try:
            for rule, message, hint in remarks:
                code = 2 if rule and RULES[rule][0] == "error" else 0
                yield CheckResult(self.step.work.name, part, message, rule, hint, code)
        except FloodmarkError as error:
            yield CheckResult(self.step.work.name, part, error.message, "FM501", error.hint, error.exit_code)

    def _source_remarks(self, source: Source, record: JobRecord) -> Remarks:
        """Whether it is there and the same as ever, what its cursor is worth, and what waits above the mark."""
        found, mark = source.fingerprint(self.step.session), record.marks.get(source.name)
        yield "", f"reads {found}", ""
        yield from kind_remarks(source, mark)
        if isinstance(source, DeltaSource):
            yield from delta_remarks(source, mark, self.step.session)
        require_same_sources(self.step.work, record, {source.name: found})
        request = Request(extras=record.extras.source(source.name).extras, waits=False)
        yield "", sight_text(source.look(mark, request, self.step.session)), ""

    def _sinks_to_ask(self, record: JobRecord) -> Iterator[tuple[str, Sink]]:
        """All that the job writes to by key; dead letters and quarantine once they have a batch."""
        work, namespace = self.step.work, self.step.store.namespace
        for key, sink in work.by_key().items():
            if key == sink.name or last_confirmed(sink, namespace, record, key):
                yield key, sink

    def _sink_remarks(self, sink: Sink, record: JobRecord, key: str) -> Remarks:
        """Whether it can be reached, and what it has of this job. Raises SinkBehind if it had more."""
        ledger = ledger_id(self.step.store.namespace, self.step.work.name, sink.name)
        recorded = answering_at_once(sink).recorded(ledger, self.step.session)
        has = f"has batch {recorded.number}" if recorded else "has nothing of this job yet"
        yield "", f"{sink.describe()} {has}", ""
        if isinstance(sink, PostgresSink):
            yield from postgres_sink_remarks(sink)
        if behind := sink_behind(sink, self.step.store.namespace, record, recorded, key):
            raise behind


def driver_folders(work: Work) -> list[Path]:
    """Folders on a disk of this machine that Spark's tasks write to."""
    own = (sink for sink in work.sinks if isinstance(sink, FilesSink | Delta))
    sinks = [local_path(sink.path) for sink in own if sink.path is not None]
    spool = [local_path(work.spool_folder)] if work.why_spooled() else []
    return [folder for folder in (*sinks, *spool) if folder is not None]


@dataclass(frozen=True)
class CheckResult:
    """One thing that was looked at; `rule` is empty where all is well."""

    job: str
    part: str
    message: str
    rule: str = ""
    hint: str = ""
    exit_code: int = 0

    @property
    def severity(self) -> str:
        """As the rule has it, or ok."""
        return RULES[self.rule][0] if self.rule else "ok"


def exit_code(results: Sequence[CheckResult]) -> int:
    """0 if no error was found, else the code of the gravest."""
    codes = {each.exit_code for each in results if each.severity == "error"}
    return next((code for code in GRAVEST if code in codes), 0)


def kind_remarks(source: Source, mark: HWM[object] | None) -> Remarks:
    """What only this kind of source can be asked."""
    if isinstance(source, Postgres):
        yield from postgres_source_remarks(source)
    if isinstance(source, Kafka):
        yield from kafka_remarks(source, mark)


def sight_text(sight: Sight) -> str:
    """What a look saw."""
    held = f"; {sight.held_back} held back: {sight.held_reason}" if sight.held_back else ""
    if sight.span is None:
        return f"nothing new{held}"
    rows = "rows" if sight.expected_rows is None else f"{sight.expected_rows:,} rows"
    return f"{rows} to read, up to {mark_text(sight.span.upto.show())}{held}"


def postgres_source_remarks(source: Postgres) -> Remarks:
    """The cursor, the rights, and the types of all columns."""
    address, relation = Address.parse(source.url), Relation(source.table, source.query)
    cursor = Cursor.of(source.cursor)
    columns = cursor.columns
    probe = PostgresProbe(address, relation, cursor.request(source.key), source.name)
    try:
        select_columns(probe.columns(), source.types, f"postgres {address}")
        resolved = probe.cursor()
    finally:
        probe.close()
    if source.table is None:
        hint = "read a table where you can, or see to the index yourself"
        yield "FM502", "a query is read: whether an index serves its cursor cannot be told", hint
        return
    found = table_facts(address, relation.sql(Dialect().quote, {}), columns)
    if found is not None:
        yield from index_remarks(found, columns, source.table, by_bytes=cursor.collation == "bytes")
        yield from tie_remarks(resolved)
        yield from value_remarks(found, cursor, resolved)


def index_remarks(table: TableFacts, columns: tuple[str, ...], name: str, *, by_bytes: bool = True) -> Remarks:
    """Whether a look is quick."""
    named, index = ", ".join(columns), table.index_on(columns)
    is_text = by_bytes and table.type.split("(")[0] in TEXTS
    create = f"""CREATE INDEX ON {name} ({named}{' COLLATE "C"' if is_text else ""})"""
    if index is None:
        yield "FM502", f"no index begins with {named}: every look scans {name} (about {table.rows} rows)", create
    elif is_text and not index.is_by_bytes:
        said = f"the index on {named} is not in the order of bytes, by which text is compared"
        yield "FM502", f"{said} (with `collation: database` in the cursor the database compares)", create
    else:
        yield "", f"an index begins with {named}", ""


def tie_remarks(resolved: ResolvedCursor) -> Remarks:
    """Whether the mark can fall between two rows, as the reader itself judges it."""
    if resolved.is_unique:
        yield "", f"{resolved.expression} is unique", ""
    else:
        said = f"{resolved.expression} is not unique: rows at the mark are read again, and told apart by the key"
        yield "FM503", said, "nothing; or add a unique column, as in cursor: [updated_at, id]"


def value_remarks(table: TableFacts, cursor: Cursor, resolved: ResolvedCursor) -> Remarks:
    """Where values come from, whether there always is one, and whether it may be read."""
    [column, *_] = cursor.columns
    if cursor.safety_way in (None, "fence"):
        for doubt in table.doubts:
            hint = "safety: {delay: 30s} or {lag: 1h}, or cursor: xmin, where rows can commit late"
            yield doubt.rule, f"{column}: {doubt.reason}", hint
    if any(each.is_nullable for each in resolved.columns):
        yield (
            "FM504",
            f"{resolved.expression} may be NULL, and no mark reaches such a row",
            "NOT NULL, or choose on_null",
        )
    if not table.may_read:
        yield "FM507", "this role may not read the table", "GRANT SELECT ON it TO this role"


def postgres_sink_remarks(sink: PostgresSink) -> Remarks:
    """Whether the target takes what the sink's mode does."""
    address, relation = Address.parse(sink.url), Relation(sink.table)
    table = relation.sql(Dialect().quote, {})
    target = target_facts(address, table)
    if not target.exists:
        made = "the first batch makes it" if sink.create else "it has to be made, `create` is off"
        yield "" if sink.create else "FM507", f"{sink.table} is not there yet: {made}", "make the table"
        return
    changes = sink.mode != "append"
    if not target.may_insert or (changes and not target.may_change):
        rights = "SELECT, INSERT, UPDATE, DELETE" if changes else "SELECT, INSERT"
        yield "FM507", f"this role may not write to {sink.table}", f"GRANT {rights} ON {sink.table} TO …"
    found = table_facts(address, table, sink.key or ("",))
    if sink.mode == "merge" and found is not None and not found.is_unique(sink.key):
        key = ", ".join(sink.key)
        yield (
            "FM507",
            f"no unique index of {sink.table} is on the key {key}",
            f"CREATE UNIQUE INDEX ON {sink.table} ({key})",
        )


def kafka_remarks(source: Kafka, mark: HWM[object] | None) -> Remarks:
    """Retention against the mark, and what compaction takes away."""
    probe = KafkaProbe(KafkaOptions(source.bootstrap, source.options))
    for topic, retention in probe.retention(source.topics).items():
        yield "", f"{topic} keeps messages {retention}", ""
        if retention.is_compacted:
            said = f"{topic} is compacted: of several messages of a key that wait, only the last may be left"
            yield "FM506", said, "run often enough, or do not count on every version"
    bounds = probe.bounds(probe.topics(source.topics).values())
    for place, at in sorted(offsets_in(mark, source.topics).items()):
        seen = bounds.get(place)
        if seen is not None and seen.earliest > 0 and seen.stable - at > at - seen.earliest:
            said = (
                f"{place[0]}/{place[1]}: the mark {at} is nearer to the oldest message {seen.earliest} than to the end"
            )
            yield "FM505", f"{said} {seen.stable}: retention may pass it", "run the job, or keep messages longer"


def delta_remarks(source: DeltaSource, mark: HWM[object] | None, session: Session) -> Remarks:
    """How long the table keeps what a reader by versions needs, against how long this one has not read."""
    place = DeltaPlace(source.path, source.table)
    location = place.location(session)
    probe = DeltaProbe(location or "")
    if location is None or not probe.refresh():
        return
    kept = kept_by(probe)
    yield "", f"the table keeps removed files for {kept.files.days} days and its log for {kept.log.days}", ""
    version = mark.value if isinstance(mark, VersionHWM) else None
    if version is None or version >= probe.latest():
        return
    waited = datetime.now(timezone.utc) - time_of(probe, version + 1)
    if waited > min(kept.files, kept.log) / 2:
        said = f"what lies above version {version} has waited for {waited.days} days: vacuum or log cleanup may pass it"
        longer = kept.longer_than(2 * waited).properties()
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in longer.items())
        yield "FM505", said, f"run the job, or ALTER TABLE {place.sql} SET TBLPROPERTIES ({listed})"
