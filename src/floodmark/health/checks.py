"""One examination: look at every table and job once, and let each of the five checks judge what was seen.

What a look at a table sees, and what is said of it, is in `tables`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import median
from typing import TYPE_CHECKING

from floodmark.errors import SinkBehind
from floodmark.health.report import HOUR, Finding, JobWatch, Report, SinkUnseen, Status, TableWatch
from floodmark.health.tables import TableFacts, TableLooks, freshness, rows_text, table_count
from floodmark.hwm import Json
from floodmark.stores.record import VIEWS, JobRecord, Receipt
from floodmark.stores.run_index import RunEnd, run_ends, runs_since_done

if TYPE_CHECKING:
    from floodmark.health.report import Watch
    from floodmark.stores.contract import MarkStore


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


def examine(
    watch: Watch,
    store: MarkStore,
    now: datetime,
    counts_before: Mapping[str, int] | None = None,
    sinks_behind: Mapping[str, Sequence[SinkBehind | SinkUnseen]] | None = None,
    rows_behind: Mapping[str, int] | None = None,
    tables: TableLooks | None = None,
) -> Report:
    """The report of this moment. Raises StoreUnreachable: marks that could not be read are not healthy marks.

    `sinks_behind` says of jobs whose sinks were asked which of them lost batches, or gave no answer; `rows_behind`, of
    those whose sources were asked, how many rows lie above the mark. A caller that examines repeatedly keeps `tables`.

    >>> watch = Watch(tables=(TableWatch("orders", f"{folder}/orders"),))
    >>> examine(watch, fm.stores.open("memory"), datetime.now(timezone.utc)).overall  # no table is there
    'CRITICAL'
    """
    looks = list(zip(watch.tables, (tables or TableLooks()).look_at_all(watch.tables), strict=True))
    findings = [finding for table, facts in looks for finding in _of_table(table, facts, now, counts_before or {})]
    for job in [*watch.jobs, *_streams(watch, store)]:
        facts = replace(facts_of(job.name, store), rows_behind=(rows_behind or {}).get(job.name))
        findings += _of_job(job, facts, now)
        findings += [_of_sink(sink) for sink in (sinks_behind or {}).get(job.name, ())]
    pace = performance(JobWatch(VIEWS, watch.limits), facts_of(VIEWS, store))
    return Report(now, (*findings, *([pace] if pace else [])))


def facts_of(job: str, store: MarkStore) -> JobFacts:
    """What the store has of a job, read as far back as the checks look."""
    ends = run_ends(store, job, RUNS_READ)
    if len(ends) == RUNS_READ and sum(end.status == "done" for end in ends) <= RUNS_COMPARED:
        ends = run_ends(store, job, RUNS_READ_AT_MOST)
    runs = runs_since_done(store, job, ends)
    return JobFacts(store.read(job), runs, store.last_looked(job), earlier=tuple(ends[len(runs) :]))


def row_counts(report: Report) -> dict[str, int]:
    """The tables' counts, for the next examination to compare with.

    >>> watch = Watch(tables=(TableWatch("orders", f"{folder}/orders"),))
    >>> row_counts(examine(watch, fm.stores.open("memory"), datetime.now(timezone.utc)))  # no table is there yet
    {}
    """
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
class JobFacts:
    """What the store says of a job; `runs` are newest first, down to the last that is done at least."""

    record: JobRecord | None = None
    runs: tuple[Receipt, ...] = ()
    last_look: datetime | None = None
    earlier: tuple[RunEnd, ...] = ()
    """Of the runs before those, how they ended."""
    rows_behind: int | None = None
    """What its source has above its mark, where it was asked and can tell."""

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
    return Finding("processing_offsets", job.name, "HEALTHY", _distance(facts, now), details, "lag")


def _distance(facts: JobFacts, now: datetime) -> str:
    """How far the mark is from the end of the source: in rows where it was asked, else since it last was there."""
    if facts.rows_behind:
        return f"{rows_text(facts.rows_behind)} above its mark; it last looked {_ago(facts, now)}"
    return (
        f"up to date, and last looked {_ago(facts, now)}"
        if facts.rows_behind == 0
        else f"up to date {_ago(facts, now)}"
    )


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
        **({} if facts.rows_behind is None else {"rows_behind": facts.rows_behind}),
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
    if sink.needs_session:  # each run asks it; an alert would stay open for ever
        return Finding("record_counts", subject, "UNKNOWN", f"{message}; each run asks it", {}, "", advice)
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
    if not bad and not any(failed.values()):
        return Finding("data_quality", job.name, "HEALTHY", "its last batch kept every row", details, "quality")
    message = _quality_message(last)
    advice = _quality_advice(job, last)
    kind = "dead_letters" if last.rows_dead else "quality"
    return Finding("data_quality", job.name, "WARNING", message, details, kind, advice)


def _quality_message(last: Receipt) -> str:
    """How many rows were lost to the sinks, and which rules how many broke."""
    broken = ", ".join(f"{rule.name} ({rule.failed:,})" for rule in last.rules if rule.failed)
    if not (last.rows_refused + last.rows_dead):
        return f"its last batch wrote rows that broke {broken}"
    message = f"{last.rows_refused} rows refused and {last.rows_dead} dead of {last.rows_read}"
    return f"{message}; broken: {broken}" if broken else message


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
    ended: tuple[Receipt | RunEnd, ...] = (*facts.runs, *facts.earlier)
    done = [run for run in ended if run.status == "done"][: RUNS_COMPARED + 1]
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
