"""One examination: look at every table and job once, and let each of the five checks judge what was seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from statistics import median
from typing import TYPE_CHECKING

from floodmark.errors import SinkBehind, SourceUnreadable
from floodmark.health.report import HOUR, Check, Finding, JobWatch, Report, SinkUnseen, Status, TableWatch
from floodmark.hwm import Json
from floodmark.probes.delta import DeltaProbe
from floodmark.stores.record import VIEWS, JobRecord, Receipt

if TYPE_CHECKING:
    from floodmark.health.report import Watch
    from floodmark.stores.contract import MarkStore


AT_ONCE = 8
OPEN_TOO_LONG = timedelta(hours=1)
ERROR_SHOWN = 300
MOMENT = "%Y-%m-%d %H:%M UTC"
RUNS_COMPARED = 10
FEWEST_RUNS = 3
NOTICEABLE_SECONDS = 1.0
"""Below this, twice as long is noise."""
RUNS_READ = RUNS_COMPARED + 2
"""Enough, unless failed runs stand between those that are compared."""
RUNS_READ_AT_MOST = 5 * RUNS_COMPARED
COMMITS_READ = 50
"""Maintenance rarely fills that many commits in a row; where it does, the oldest of them gives the age."""


def examine(
    watch: Watch,
    store: MarkStore,
    now: datetime,
    counts_before: Mapping[str, int] | None = None,
    sinks_behind: Mapping[str, Sequence[SinkBehind | SinkUnseen]] | None = None,
    tables: TableLooks | None = None,
) -> Report:
    """The report of this moment. Raises StoreUnreachable: marks that could not be read are not healthy marks.

    `sinks_behind` says of jobs whose sinks were asked which of them lost batches, or gave no answer. Who examines
    again and again keeps `tables`.
    """
    looks = list(zip(watch.tables, (tables or TableLooks()).look_at_all(watch.tables), strict=True))
    findings = [finding for table, facts in looks for finding in _of_table(table, facts, now, counts_before or {})]
    for job in [*watch.jobs, *_streams(watch, store)]:
        findings += _of_job(job, facts_of(job.name, store), now)
        findings += [_of_sink(sink) for sink in (sinks_behind or {}).get(job.name, ())]
    pace = performance(JobWatch(VIEWS, watch.limits), facts_of(VIEWS, store))
    return Report(now, (*findings, *([pace] if pace else [])))


def facts_of(job: str, store: MarkStore) -> JobFacts:
    """What the store has of a job, read as far back as the checks look."""
    runs = tuple(store.runs(job, RUNS_READ))
    if len(runs) == RUNS_READ and sum(run.status == "done" for run in runs) <= RUNS_COMPARED:
        runs = tuple(store.runs(job, RUNS_READ_AT_MOST))
    return JobFacts(store.read(job), runs, store.last_looked(job))


def row_counts(report: Report) -> dict[str, int]:
    """The tables' counts, for the next examination to compare with."""
    counted = [f for f in report.findings if f.check == "record_counts" and "rows_before" in f.facts]
    return {f.subject: rows for f in counted if isinstance(rows := f.facts["rows"], int)}


def _streams(watch: Watch, store: MarkStore) -> list[JobWatch]:
    """Streams and mills may stand in no project file: the store knows which there are."""
    known = {job.name for job in watch.jobs}
    records = {name: store.read(name) for name in store.jobs() if name not in known}
    return [JobWatch(name, watch.limits) for name, record in records.items() if is_a_program(record)]


def is_a_program(record: JobRecord | None) -> bool:
    """Whether a program of the user's keeps this record, and no job of a project file: a stream, or a mill."""
    return record is not None and (record.extras.healing is not None or record.extras.is_of_a_mill)


def _of_table(table: TableWatch, facts: TableFacts, now: datetime, before: Mapping[str, int]) -> list[Finding]:
    return [freshness(table, facts, now), table_count(table, facts, before.get(table.name))]


def _of_job(job: JobWatch, facts: JobFacts, now: datetime) -> list[Finding]:
    found = (
        rows_agree(job, facts.last_of("done")),
        quality(job, facts),
        processing_offset(job, facts, now),
        performance(job, facts),
    )
    return [finding for finding in found if finding is not None]


@dataclass(frozen=True)
class TableFacts:
    """One look. `error`: it could not be looked at, which is not the same as empty; `exists` False: no such table."""

    name: str
    exists: bool = True
    last_change: datetime | None = None
    rows: int | None = None
    files: int = 0
    bytes: int = 0
    error: str | None = None


@dataclass
class TableLooks:
    """Looks at tables, also again and again: one whose log has not grown since the last look is not read anew."""

    _probes: dict[str, DeltaProbe] = field(default_factory=dict)
    _facts: dict[str, tuple[str, int, TableFacts]] = field(default_factory=dict)

    def look_at_all(self, tables: Sequence[TableWatch]) -> list[TableFacts]:
        """Side by side, since a store elsewhere lets one wait."""
        with ThreadPoolExecutor(AT_ONCE) as looking:
            return list(looking.map(self.look_at, tables))

    def look_at(self, table: TableWatch) -> TableFacts:
        """Read the table's log; whatever goes wrong is a fact too."""
        try:
            probe = self._refreshed(table.where)
            return self._facts_of(table, probe) if probe else TableFacts(table.name, exists=False)
        except SourceUnreadable as error:
            return TableFacts(table.name, error=error.reason)

    def columns(self, where: str) -> list[str] | None:
        """As the log has them; None if it cannot be read, or is none."""
        try:
            probe = self._refreshed(where)
            return list(probe.columns()) if probe else None
        except SourceUnreadable:
            return None

    def _refreshed(self, where: str) -> DeltaProbe | None:
        probe = self._probes.setdefault(where, DeltaProbe(where))
        return probe if probe.refresh() else None

    def _facts_of(self, table: TableWatch, probe: DeltaProbe) -> TableFacts:
        identity, version = probe.table_id(), probe.latest()
        known = self._facts.get(table.where)
        if known is not None and known[:2] == (identity, version):
            return replace(known[2], name=table.name)
        files, size = probe.files_and_bytes()
        facts = TableFacts(table.name, True, last_change(probe), probe.rows(), files, size)
        self._facts[table.where] = (identity, version, facts)
        return facts


def look_at(table: TableWatch) -> TableFacts:
    """One look at one table."""
    return TableLooks().look_at(table)


def last_change(probe: DeltaProbe) -> datetime | None:
    """When rows last came or went: compaction does not make a table fresh."""
    latest = probe.latest()
    newest_first = reversed(probe.commits(max(-1, latest - COMMITS_READ), latest))
    commits = list(newest_first)
    found = next((commit for commit in commits if commit.changes_rows), commits[-1] if commits else None)
    return datetime.fromtimestamp(found.timestamp_ms / 1000, timezone.utc) if found else None


def freshness(table: TableWatch, facts: TableFacts, now: datetime) -> Finding:
    """FRESH below the limit, STALE below twice the limit, VERY_STALE above."""
    if facts.error:
        return _unseen("data_freshness", table, facts, {"freshness": None}, "stale")
    if not facts.exists or facts.last_change is None:
        why = "there is no such table"
        return Finding("data_freshness", table.name, "CRITICAL", why, {"freshness": None}, "stale", _advice(table))
    age = max(0.0, (now - facts.last_change).total_seconds())
    word, status = _grade(age, table.limits.freshness_seconds)
    details: dict[str, Json] = {
        "freshness": word,
        "age_hours": round(age / HOUR, 2),
        "last_change": facts.last_change.isoformat(),
    }
    message = f"{word}: rows last changed {age / HOUR:.1f} h ago"
    return Finding("data_freshness", table.name, status, message, details, "stale", _advice(table))


def _unseen(check: Check, table: TableWatch, facts: TableFacts, details: dict[str, Json], kind: str) -> Finding:
    advice = f"{table.name}: see that its log can be read from here"
    return Finding(check, table.name, "UNKNOWN", f"could not look: {facts.error}", details, kind, advice)


def _grade(age: float, limit: float) -> tuple[str, Status]:
    if age < limit:
        return "FRESH", "HEALTHY"
    return ("STALE", "WARNING") if age < 2 * limit else ("VERY_STALE", "CRITICAL")


def _advice(table: TableWatch) -> str:
    return f"{table.name}: run the job that fills it, and look at `floodmark runs` for why it did not"


def table_count(table: TableWatch, facts: TableFacts, before: int | None) -> Finding:
    """Against zero, the minimum, and the count of the last examination."""
    details: dict[str, Json] = {"rows": facts.rows, "rows_before": before, "files": facts.files, "bytes": facts.bytes}
    if facts.error:
        return _unseen("record_counts", table, facts, details, "count")
    advice = f"{table.name}: compare it with its source; `floodmark runs` shows what was written"

    def finding(status: str, message: str) -> Finding:
        return Finding("record_counts", table.name, status, message, details, "count", advice)  # type: ignore[arg-type]

    if not facts.exists:
        return finding("CRITICAL", "there is no such table")
    if facts.rows is None:
        return finding("UNKNOWN", "its files do not tell how many rows they hold")
    if facts.rows == 0:
        return finding("CRITICAL" if table.limits.min_rows else "HEALTHY", "it is empty")
    if facts.rows < table.limits.min_rows:
        return finding("WARNING", f"{_rows_text(facts.rows)}, at least {table.limits.min_rows} expected")
    change = abs(facts.rows - before) / before if before else 0.0
    if change > table.limits.count_change:
        return finding("WARNING", f"{facts.rows} rows, {before} at the last look: changed by {change:.0%}")
    return finding("HEALTHY", _rows_text(facts.rows))


def _rows_text(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows} rows"


@dataclass(frozen=True)
class JobFacts:
    """What the store says of a job; `runs` are newest first."""

    record: JobRecord | None = None
    runs: tuple[Receipt, ...] = ()
    last_look: datetime | None = None

    def last_of(self, status: str) -> Receipt | None:
        return next((run for run in self.runs if run.status == status), None)

    def is_a_stream(self) -> bool:
        return self.record is not None and self.record.extras.healing is not None

    def held_rows(self) -> Mapping[str, Json] | None:
        """What a source said of rows that wait for somebody: how many, since when and why."""
        return self.record.extras.held_rows() if self.record else None

    def last_sign(self) -> datetime | None:
        """When the job last knew that it was up to date."""
        moved = self.record.modified_time if self.record else None
        return max((each for each in (moved, self.last_look) if each is not None), default=None)


def processing_offset(job: JobWatch, facts: JobFacts, now: datetime) -> Finding:
    """A failed last run is worst; then a mark that does not move, an open batch, rows that are held back."""
    details, sign = _details(facts, now), facts.last_sign()
    last = facts.runs[0] if facts.runs else None
    if last is not None and last.status == "failed" and (sign is None or last.started > sign):
        when = f" on {last.started:{MOMENT}}" if facts.is_a_stream() else ""  # its error counts ages from that moment
        message = f"its last run failed{when}: {(last.error or '')[:ERROR_SHOWN]}"
        advice = f"{job.name}: fix what its last run says, then {_run(job, facts)}"
        return Finding("processing_offsets", job.name, "CRITICAL", message, details, "failed_run", advice)
    waiting = facts.held_rows()
    if sign is None and waiting is not None:  # its first rows wait
        return _rows_waiting(job, waiting, now, details)
    if sign is None:
        advice = f"{job.name}: {_run(job, facts)}"
        return Finding("processing_offsets", job.name, "WARNING", "it has never run", details, "lag", advice)
    age = (now - sign).total_seconds()
    if age > job.limits.lag_seconds:
        message = f"no run or loop has looked at its source for {age / HOUR:.1f} h"
        advice = f"{job.name}: is its loop or schedule alive? {_run(job, facts)}"
        return Finding("processing_offsets", job.name, "WARNING", message, details, "lag", advice)
    return _open_or_held(job, facts, now, details)


def _open_or_held(job: JobWatch, facts: JobFacts, now: datetime, details: dict[str, Json]) -> Finding:
    intent = facts.record.intent if facts.record else None
    if intent is not None and now - intent.batch_time > OPEN_TOO_LONG:
        message = f"batch {intent.number} has been open since {intent.batch_time:{MOMENT}}"
        advice = f"{job.name}: {_run(job, facts)}, which finishes the open batch"
        return Finding("processing_offsets", job.name, "WARNING", message, details, "stuck", advice)
    if facts.is_a_stream() and facts.runs and facts.runs[0].notes:
        last = facts.runs[0]
        message = f"records wait to be healed, as of {last.started:{MOMENT}}: {'; '.join(last.notes)}"
        advice = f"{job.name}: fix what fails these records; `floodmark deadletters list` shows what was given up"
        return Finding("processing_offsets", job.name, "WARNING", message, details, "stuck", advice)
    waiting = facts.held_rows()
    if waiting is not None:
        return _rows_waiting(job, waiting, now, details)
    held = facts.runs[0].rows_held_back if facts.runs else 0
    if held:
        message = f"{held} rows are held back: {'; '.join(facts.runs[0].notes)}"
        return Finding("processing_offsets", job.name, "HEALTHY", message, details, "stuck")
    return Finding("processing_offsets", job.name, "HEALTHY", f"up to date {_ago(facts, now)}", details, "lag")


def _ago(facts: JobFacts, now: datetime) -> str:
    sign = facts.last_sign()
    minutes = (now - sign).total_seconds() / 60 if sign else 0.0
    return "just now" if minutes < 1 else f"{minutes:.0f} min ago" if minutes < 90 else f"{minutes / 60:.1f} h ago"


def _rows_waiting(job: JobWatch, held: Mapping[str, Json], now: datetime, details: dict[str, Json]) -> Finding:
    """Rows that wait for a transaction; one that lasts for an hour was probably forgotten."""
    since = datetime.fromisoformat(str(held["since"]))
    message = f"{held['rows']} rows are held back since {since:{MOMENT}}: they {held['reason']}"
    advice = f"{job.name}: end the transaction that holds its rows back, or choose another `safety`"
    status: Status = "WARNING" if now - since > OPEN_TOO_LONG else "HEALTHY"
    return Finding(
        "processing_offsets", job.name, status, message, {**details, "held_back": dict(held)}, "stuck", advice
    )


def _run(job: JobWatch, facts: JobFacts) -> str:
    """How it is run: a stream is the user's own program."""
    if facts.record is not None and facts.record.extras.is_of_a_mill:
        return "start the program of this mill"
    return "start the program of this stream" if facts.is_a_stream() else f"`floodmark run --select {job.name}`"


def _details(facts: JobFacts, now: datetime) -> dict[str, Json]:
    sign, record = facts.last_sign(), facts.record
    marks: dict[str, Json] = {source: mark.show() for source, mark in record.marks.items()} if record else {}
    return {
        "marks": marks,
        "number": record.number if record else 0,
        "lag_hours": round((now - sign).total_seconds() / HOUR, 2) if sign else None,
        "last_run": facts.runs[0].status if facts.runs else None,
    }


def rows_agree(job: JobWatch, last: Receipt | None) -> Finding | None:
    """Rows read = written + refused + dead, for a job that keeps its rows; None where that says nothing."""
    if not job.keeps_rows or last is None or last.status != "done":
        return None
    out = {sink: rows + last.rows_refused + last.rows_dead for sink, rows in last.rows_written.items()}
    written: dict[str, Json] = dict(last.rows_written)
    details: dict[str, Json] = {"rows_read": last.rows_read, "rows_written": written, "rows_refused": last.rows_refused}
    missing = [f"{sink} {total - last.rows_read:+d}" for sink, total in out.items() if total != last.rows_read]
    if not missing:
        return Finding("record_counts", f"job {job.name}", "HEALTHY", "read = written + refused + dead", details)
    message = f"{last.rows_read} rows read, but the sinks differ: {', '.join(missing)}"
    advice = f"{job.name}: look at its last run with `floodmark runs --job {job.name} --json`"
    return Finding("record_counts", f"job {job.name}", "CRITICAL", message, details, "count", advice)


def _of_sink(sink: SinkBehind | SinkUnseen) -> Finding:
    if isinstance(sink, SinkBehind):
        return batches_lost(sink)
    subject, advice = f"job {sink.job}, sink {sink.sink}", f"{sink.job}: `floodmark check --select {sink.job}` asks it"
    message = f"could not ask which batches it has: {sink.reason}"
    return Finding("record_counts", subject, "UNKNOWN", message, {}, "sink_behind", advice)


def batches_lost(behind: SinkBehind) -> Finding:
    """A sink that does not have any more what it had confirmed: the next batch would stop there."""
    details: dict[str, Json] = {"recorded": behind.recorded, "confirmed": behind.confirmed}
    has = f"its last batch is {behind.recorded}" if behind.recorded is not None else "it has no batch of this job"
    message = f"{behind.target} had confirmed batch {behind.confirmed}, and now {has}: rows are missing there"
    subject, advice = f"job {behind.job}, sink {behind.sink}", f"{behind.job}: {behind.hint}"
    return Finding("record_counts", subject, "CRITICAL", message, details, "sink_behind", advice)


def quality(job: JobWatch, facts: JobFacts) -> Finding | None:
    """How the rows of the last batch did, rule by rule; None if there was no batch yet."""
    last = facts.last_of("done")
    if last is None:
        return None
    bad = last.rows_refused + last.rows_dead
    kept = 1.0 if not last.rows_read else 1 - bad / last.rows_read
    failed: dict[str, Json] = {rule.name: rule.failed for rule in last.rules}
    details: dict[str, Json] = {
        "rows_read": last.rows_read,
        "rows_refused": last.rows_refused,
        "rows_dead": last.rows_dead,
    }
    details |= {"score": round(kept if last.score is None else last.score, 4), "failed_by_rule": failed}
    broken = [name for name, count in failed.items() if count]
    if not bad and not broken:
        return Finding("data_quality", job.name, "HEALTHY", "every row was kept", details, "quality")
    message = f"{last.rows_refused} rows refused and {last.rows_dead} dead of {last.rows_read}"
    message += f"; broken: {', '.join(broken)}" if broken else ""
    advice = _quality_advice(job, last)
    kind = "dead_letters" if last.rows_dead else "quality"
    return Finding("data_quality", job.name, "WARNING", message, details, kind, advice)


def _quality_advice(job: JobWatch, last: Receipt) -> str:
    """Where the rows are that broke a rule: put aside, or written all the same."""
    if not (last.rows_refused + last.rows_dead):
        return f"{job.name}: `floodmark runs --job {job.name} --last 1 --json` has samples of the rows that broke it"
    places = {"quarantine": last.rows_refused - last.rows_dropped, "deadletters": last.rows_dead}
    listed = [f"`floodmark {place} list {job.name}`" for place, rows in places.items() if rows]
    if not listed:
        return f"{job.name}: its rules dropped rows; `floodmark runs --job {job.name} --last 1 --json` has samples"
    return f"{job.name}: look at what it put aside with {' and '.join(listed)}"


def performance(job: JobWatch, facts: JobFacts) -> Finding | None:
    """Slower than its limit's factor in both seconds and seconds per row, so that a larger batch is not blamed."""
    done = [run for run in facts.runs if run.status == "done"][: RUNS_COMPARED + 1]
    if not done:
        return None
    last, before = done[0], done[1:]
    details: dict[str, Json] = {"seconds": last.seconds, "rows_per_second": _rate(last.rows_read, last.seconds)}
    if len(before) < FEWEST_RUNS:
        return Finding("performance_metrics", job.name, "HEALTHY", "too few runs to compare", details, "slow_run")
    usual = median(run.seconds for run in before)
    rate = median(run.rows_read / max(run.seconds, 1e-3) for run in before)
    details |= {"median_seconds": round(usual, 3), "median_rows_per_second": round(rate, 1)}
    is_long = last.seconds > max(usual * job.limits.slow_factor, NOTICEABLE_SECONDS)
    is_slow = last.rows_read / max(last.seconds, 1e-3) * job.limits.slow_factor < rate
    if not (is_long and is_slow):
        return Finding("performance_metrics", job.name, "HEALTHY", f"{last.seconds:.1f} s", details, "slow_run")
    message = f"{last.seconds:.1f} s for {last.rows_read} rows, usually {usual:.1f} s"
    advice = f"{job.name}: its `durations` in `floodmark runs --job {job.name} --json` show where the time went"
    return Finding("performance_metrics", job.name, "WARNING", message, details, "slow_run", advice)


def _rate(rows: int, seconds: float) -> float:
    return round(rows / max(seconds, 1e-3), 1)
