"""Jobs as health sees them: marks, failures, quality, pace, and rows that must add up."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from floodmark.errors import SinkBehind
from floodmark.health.checks import JobFacts, examine, performance, processing_offset, quality, rows_agree
from floodmark.health.report import Finding, JobWatch, Report, SinkUnseen, Watch
from floodmark.hwm import ColumnIntHWM, Json
from floodmark.mill.pending import StreamMemory
from floodmark.stores.extras import RecordExtras
from floodmark.stores.lease import hold
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import Intent, JobRecord, Receipt, RuleOutcome

NOON = datetime(2026, 11, 15, 12, tzinfo=timezone.utc)
ORDERS = JobWatch("orders", keeps_rows=True)
RECORD = JobRecord("orders", 3, {"db": ColumnIntHWM(name="seq", value=9)}, modified_time=NOON - timedelta(hours=1))
DONE = Receipt("orders", "r", "done", NOON - timedelta(hours=1), 4.0, 1, 3, 100, {"lake": 100})
FAILED = Receipt("orders", "r", "failed", NOON - timedelta(minutes=5), error="the lake is dry")


def test_a_mark_that_moved_lately_is_healthy() -> None:
    """With its value and its age."""
    found = processing_offset(ORDERS, JobFacts(RECORD, (DONE,)), NOON)
    assert (found.status, found.facts["marks"], found.facts["lag_hours"]) == ("HEALTHY", {"db": 9}, 1.0)


def test_a_mark_nobody_looked_after_for_72_hours_is_a_warning() -> None:
    """A loop that looks and finds nothing looks after it."""
    old = replace(RECORD, modified_time=NOON - timedelta(hours=73))
    assert processing_offset(ORDERS, JobFacts(old, ()), NOON).kind == "lag"
    assert processing_offset(ORDERS, JobFacts(old, ()), NOON).status == "WARNING"
    looked = JobFacts(old, (), NOON - timedelta(minutes=1))
    assert processing_offset(ORDERS, looked, NOON).status == "HEALTHY"


def test_a_failed_last_run_is_critical_until_one_succeeds() -> None:
    """The error is told."""
    found = processing_offset(ORDERS, JobFacts(RECORD, (FAILED, DONE)), NOON)
    assert (found.status, found.kind, "the lake is dry" in found.message) == ("CRITICAL", "failed_run", True)
    later = replace(RECORD, modified_time=NOON)
    assert processing_offset(ORDERS, JobFacts(later, (FAILED, DONE)), NOON).status == "HEALTHY"


def test_a_job_that_never_ran_is_a_warning() -> None:
    """It is not healthy, and nothing is broken."""
    assert processing_offset(ORDERS, JobFacts(), NOON).message == "it has never run"


def test_a_batch_that_stays_open_is_a_warning() -> None:
    """A crash that nobody finished."""
    intent = Intent(4, "batch", {}, NOON - timedelta(hours=2), "a", None, {})
    assert processing_offset(ORDERS, JobFacts(replace(RECORD, intent=intent)), NOON).kind == "stuck"


def test_rows_that_are_held_back_are_told_with_their_reason() -> None:
    """They are no fault, but not nothing either."""
    held = replace(DONE, rows_held_back=2, notes=("pid 7 has an open transaction",))
    message = processing_offset(ORDERS, JobFacts(RECORD, (held,)), NOON).message
    assert message == "2 rows are held back: pid 7 has an open transaction"


def test_rows_that_wait_for_a_transaction_are_told_from_the_record_and_after_an_hour_are_a_warning() -> None:
    """A look that could read nothing leaves no receipt; the record says who is waited for, and since when."""
    held: Json = {"rows": 3, "reason": "may follow pid 7 (psql)", "since": "2026-11-15T11:30:00+00:00"}
    facts = JobFacts(replace(RECORD, extras=RecordExtras({"postgres": {"pending": {"held": held}}})))
    soon, late = (processing_offset(ORDERS, facts, NOON + timedelta(hours=hours)) for hours in (0, 1))
    assert soon.message == "3 rows are held back since 2026-11-15 11:30 UTC: they may follow pid 7 (psql)"
    assert (soon.status, late.status, soon.facts["held_back"]) == ("HEALTHY", "WARNING", held)


def test_a_stream_that_is_stuck_is_found_in_the_store_with_its_record() -> None:
    """No project file names it; partition, offset, age and error are those of its last receipt."""
    store, line = MemoryMarkStore(), "orders/0/17 has failed for 12 s (3 attempts): no such customer"
    with hold(store, "readers") as held:
        stream = replace(RECORD, job="readers", number=1, extras=RecordExtras({"healing": {}}), modified_time=NOON)
        receipt = replace(DONE, job="readers", notes=(line,))
        store.commit(stream, expected=0, lease=held.lease, receipt=receipt)
    found = {finding.check: finding for finding in examine(Watch(), store, NOON).findings}["processing_offsets"]
    assert (found.subject, found.status, found.kind, line in found.message) == ("readers", "WARNING", "stuck", True)


@pytest.mark.parametrize(
    ("minutes", "told"), [(0, "up to date just now"), (12, "up to date 12 min ago"), (300, "up to date 5.0 h ago")]
)
def test_a_healthy_job_says_when_it_was_last_up_to_date(minutes: int, told: str) -> None:
    """The lag of a mark, in words."""
    record = replace(RECORD, modified_time=NOON - timedelta(minutes=minutes))
    assert processing_offset(ORDERS, JobFacts(record, (DONE,)), NOON).message == told


@pytest.mark.parametrize(
    ("rows", "told"),
    [(0, "up to date, and last looked just now"), (1, "1 row above its mark; it last looked just now")],
)
def test_the_lag_of_a_mark_is_its_distance_to_the_source(rows: int, told: str) -> None:
    """In rows, where the source was asked; a mark that nobody moved may still be at the end."""
    store = MemoryMarkStore()
    with hold(store, "orders") as held:
        store.commit(replace(RECORD, number=1, modified_time=NOON), expected=0, lease=held.lease, receipt=DONE)
    report = examine(Watch(jobs=(ORDERS,)), store, NOON, rows_behind={"orders": rows})
    [found] = [finding for finding in report.findings if finding.check == "processing_offsets"]
    assert (found.message, found.facts["rows_behind"]) == (told, rows)


def test_a_mill_of_the_same_store_is_watched() -> None:
    """Known by what it remembers of its streams; who starts it is told, since `floodmark run` may not."""
    store = MemoryMarkStore()
    extras = RecordExtras({"Order": StreamMemory().to_json()})
    with hold(store, "joined") as held:
        mill = replace(RECORD, job="joined", number=1, extras=extras, modified_time=NOON - timedelta(days=9))
        store.commit(mill, expected=0, lease=held.lease, receipt=replace(DONE, job="joined"))
    found = {finding.check: finding for finding in examine(Watch(), store, NOON).findings}["processing_offsets"]
    assert (found.subject, found.status, found.kind) == ("joined", "WARNING", "lag")
    assert "start the program of this mill" in (found.advice or "")


def test_a_job_that_no_file_names_and_no_program_keeps_is_not_watched() -> None:
    """It may be another project's, or left over."""
    store = MemoryMarkStore()
    with hold(store, "orders") as held:
        store.commit(replace(RECORD, number=1), expected=0, lease=held.lease, receipt=DONE)
    assert examine(Watch(), store, NOON).findings == ()


def test_a_sink_that_lost_batches_is_critical_with_both_numbers() -> None:
    """The next batch would stop there; what one may do is told."""
    lost = SinkBehind("orders", sink="lake", target="delta table lake", recorded=None, confirmed=3)
    findings = examine(Watch(jobs=(ORDERS,)), MemoryMarkStore(), NOON, sinks_behind={"orders": [lost]}).findings
    [found] = [finding for finding in findings if finding.kind == "sink_behind"]
    assert (found.subject, found.status) == ("job orders, sink lake", "CRITICAL")
    assert found.facts == {"recorded": None, "confirmed": 3}
    assert "floodmark marks accept orders" in (found.advice or "")


@pytest.mark.parametrize(
    ("failed", "refused", "message"),
    [
        (0, 0, "its last batch kept every row"),
        (1200, 0, "its last batch wrote rows that broke there (1,200)"),
        (3, 3, "3 rows refused and 0 dead of 100; broken: there (3)"),
    ],
)
def test_quality_says_which_batch_it_is_about_and_how_many_rows_broke_a_rule(
    failed: int, refused: int, message: str
) -> None:
    """Rows of earlier batches may still wait, so that all were kept would be too much to say."""
    last = replace(DONE, rows_refused=refused, rows_read=100, rules=(RuleOutcome("there", "warn", failed, 100),))
    found = quality(ORDERS, JobFacts(RECORD, (last,)))
    assert found is not None
    assert found.message == message


@pytest.mark.parametrize(
    ("refused", "dead", "status", "score"), [(0, 0, "HEALTHY", 1.0), (3, 0, "WARNING", 0.97), (1, 1, "WARNING", 0.98)]
)
def test_quality_is_the_share_of_rows_that_were_kept(refused: int, dead: int, status: str, score: float) -> None:
    """Of the last batch."""
    found = quality(ORDERS, JobFacts(RECORD, (FAILED, replace(DONE, rows_refused=refused, rows_dead=dead))))
    assert found is not None
    assert (found.status, found.facts["score"]) == (status, score)


def test_a_rule_that_only_warns_is_heard_here_too() -> None:
    """Every row was written, and two of them broke a rule."""
    rules = (RuleOutcome("cheap", "warn", 2, 100), RuleOutcome("there", "drop", 0, 100))
    found = quality(ORDERS, JobFacts(RECORD, (replace(DONE, rules=rules),)))
    assert found is not None
    assert (found.status, found.facts["score"]) == ("WARNING", 0.99)
    assert found.facts["failed_by_rule"] == {"cheap": 2, "there": 0}


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ({"rows_refused": 3, "rows_quarantined": 3}, "with `floodmark quarantine list orders`"),
        ({"rows_dead": 1}, "with `floodmark deadletters list orders`"),
        ({"rows_refused": 3, "rows_dropped": 3}, "its rules dropped rows"),
        ({"rules": (RuleOutcome("cheap", "warn", 2, 100),)}, "samples of the rows that broke it"),
    ],
)
def test_advice_leads_to_where_the_rows_are(counts: dict[str, Any], told: str) -> None:
    """Put aside, dropped, or written all the same."""
    found = quality(ORDERS, JobFacts(RECORD, (replace(DONE, **counts),)))
    assert found is not None
    assert told in (found.advice or "")


@pytest.mark.parametrize(
    ("seconds", "rows", "status"), [(4.0, 100, "HEALTHY"), (9.0, 100, "WARNING"), (9.0, 900, "HEALTHY")]
)
def test_a_batch_is_slow_against_the_median_of_its_past(seconds: float, rows: int, status: str) -> None:
    """Twice the time is a warning, unless it had as many more rows."""
    last = replace(DONE, seconds=seconds, rows_read=rows)
    past = tuple(replace(DONE, seconds=each) for each in (3.0, 4.0, 4.0, 5.0, 60.0))
    found = performance(ORDERS, JobFacts(RECORD, (last, FAILED, *past)))
    assert found is not None
    assert (found.status, found.facts["median_seconds"]) == (status, 4.0)


def test_two_runs_are_no_past() -> None:
    """Nothing is judged before there is something to compare with."""
    found = performance(ORDERS, JobFacts(RECORD, (replace(DONE, seconds=99.0), DONE, DONE)))
    assert found is not None
    assert found.status == "HEALTHY"


@pytest.mark.parametrize(("written", "status"), [(97, "HEALTHY"), (96, "CRITICAL"), (98, "CRITICAL")])
def test_rows_read_are_written_refused_or_dead(written: int, status: str) -> None:
    """100 read, 2 refused, 1 dead: the sink has 97."""
    found = rows_agree(ORDERS, replace(DONE, rows_written={"lake": written}, rows_refused=2, rows_dead=1))
    assert found is not None
    assert found.status == status


def test_a_job_that_transforms_rows_is_not_counted_so() -> None:
    """Its SQL may filter or explode."""
    assert rows_agree(JobWatch("orders"), replace(DONE, rows_written={"lake": 5})) is None


def test_a_sink_that_gave_no_answer_is_unknown_with_the_reason() -> None:
    """It is never taken for one that has everything."""
    unseen = SinkUnseen("orders", "lake", "connection refused")
    findings = examine(Watch(jobs=(ORDERS,)), MemoryMarkStore(), NOON, sinks_behind={"orders": [unseen]}).findings
    [found] = [each for each in findings if each.check == "record_counts"]
    assert (found.status, found.subject) == ("UNKNOWN", "job orders, sink lake")
    assert "connection refused" in found.message


def lost(job: str, advice: str) -> Finding:
    return Finding("processing_offsets", job, "WARNING", "it has never run", {}, "lag", advice)


def test_advice_that_is_the_same_for_many_subjects_stands_there_once() -> None:
    """Hundreds of jobs may have one trouble; the document for programs has every line."""
    found = [lost(f"job{number}", f"job{number}: `floodmark run --select job{number}`") for number in range(5)]
    report = Report(NOON, (*found, lost("orders", "orders: is its loop alive?")))
    assert report.advice() == [
        "job0, job1, job2 and 2 more: `floodmark run --select NAME`",
        "orders: is its loop alive?",
    ]
    assert len(report.recommendations()) == 6
