"""Rules in the step: judged on the way where that is possible, else before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import floodmark as fm
from floodmark.errors import RuleBroken, RuleInvalid, SinkFailed
from floodmark.probes.set_aside import rows_set_aside
from floodmark.testing import ListSink, RowsSource
from tests.tables import rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.stores.contract import MarkStore

SCHEMA = "id long, amount long"
RULES = (
    fm.rules.check("amount <> 20", action="drop", name="not twenty"),
    fm.rules.check("amount > 0", action="quarantine", name="positive"),
    fm.rules.range("amount", max=40, action="warn", name="small"),
    fm.rules.not_null("id", action="warn"),
)


def judged_rows() -> list[dict[str, object]]:
    return [{"id": n, "amount": n * 10} for n in range(-1, 6)]


@pytest.fixture
def store(tmp_path: Path) -> MarkStore:
    return fm.stores.open("sqlite:///marks.db", folder=tmp_path)


def quarantine(folder: Path) -> list[tuple[str, list[str], int, str]]:
    table = rows_of(folder / "quarantine" / "judged")
    return sorted((row.record, row.reasons, row.number, row.status) for row in table)


PUT_ASIDE = [
    ('{"id":-1,"amount":-10}', ["positive"], 1, "open"),
    ('{"id":0,"amount":0}', ["positive"], 1, "open"),
]


def same(rows: DataFrame) -> DataFrame:
    return rows


@pytest.mark.parametrize("transform", [None, same], ids=["on the way", "over the spool"])
def test_every_row_is_written_quarantined_or_dropped_and_every_rule_reports(
    spark: SparkSession, store: MarkStore, tmp_path: Path, transform: object
) -> None:
    """Written + quarantined + dropped = read, whichever way the batch goes."""
    job = fm.Job("judged", RowsSource(judged_rows(), SCHEMA), [sink := ListSink()], transform=transform, rules=RULES)
    receipt = job.run(spark, store)
    assert sorted(row["id"] for row in sink.rows) == [1, 3, 4, 5]
    assert (receipt.rows_read, receipt.rows_written) == (7, {"list": 4})
    assert (receipt.rows_quarantined, receipt.rows_dropped, receipt.rows_refused) == (2, 1, 3)
    assert [(each.name, each.action, each.failed, each.checked) for each in receipt.rules] == [
        ("not twenty", "drop", 1, 7),
        ("positive", "quarantine", 2, 7),
        ("small", "warn", 1, 7),
        ("not_null_id", "warn", 0, 7),
    ]
    assert [each.samples for each in receipt.rules][::2] == [('{"id":2,"amount":20}',), ('{"id":5,"amount":50}',)]
    assert receipt.score == pytest.approx((6 / 7 + 5 / 7 + 6 / 7 + 1) / 4)
    assert quarantine(tmp_path) == PUT_ASIDE
    assert list(store.runs("judged")) == [receipt]


def spark_jobs_of(spark: SparkSession, store: MarkStore, home: Path, rules: Sequence[fm.rules.Rule]) -> int:
    """How many Spark jobs a run into a new Delta table takes."""
    group = f"with {len(rules)} rules"
    job = fm.Job(
        f"judged{len(rules)}", RowsSource(judged_rows(), SCHEMA), [fm.sinks.Delta(str(home / group))], rules=rules
    )
    spark.sparkContext.setJobGroup(group, group)
    job.run(spark, store)
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def test_rules_that_put_no_row_aside_take_no_spark_job_of_their_own(
    spark: SparkSession, store: MarkStore, tmp_path: Path
) -> None:
    """They are judged and counted in the pass that writes."""
    rules = [
        fm.rules.check("amount <> 20", action="drop"),
        fm.rules.check("amount > 40", action="warn"),
        fm.rules.not_null("id", action="quarantine"),
    ]
    assert spark_jobs_of(spark, store, tmp_path, rules) == spark_jobs_of(spark, store, tmp_path, ()) > 0


def test_a_rule_that_fails_the_batch_writes_nothing_and_says_which_rows(
    spark: SparkSession, store: MarkStore, tmp_path: Path
) -> None:
    """The mark stays; once the rule is fixed, the same rows are read."""
    strict = (*RULES, fm.rules.range("id", min=0, max=4, name="known id"))
    job = fm.Job("judged", RowsSource(judged_rows(), SCHEMA), [sink := ListSink()], rules=strict)
    with pytest.raises(RuleBroken) as stop:
        job.run(spark, store)
    assert (stop.value.rule, stop.value.failed, stop.value.checked, stop.value.exit_code) == ("known id", 2, 7, 1)
    assert sorted(stop.value.samples) == ['{"id":-1,"amount":-10}', '{"id":5,"amount":50}']
    assert (sink.rows, store.read("judged").marks, (tmp_path / "quarantine").exists()) == ([], {}, False)
    fixed = fm.Job("judged", RowsSource(judged_rows(), SCHEMA), [sink], rules=RULES)
    assert (fixed.run(spark, store).rows_read, len(sink.rows)) == (7, 4)
    assert [number for _, _, number, _ in quarantine(tmp_path)] == [2, 2]


def test_a_batch_whose_sink_failed_is_put_aside_once(spark: SparkSession, store: MarkStore, tmp_path: Path) -> None:
    """The rerun is the same batch, so neither the sinks nor the quarantine get a row twice."""
    first, second = ListSink("first"), ListSink("second", fail_times=1)
    job = fm.Job("judged", RowsSource(judged_rows(), SCHEMA), [first, second], rules=RULES)
    with pytest.raises(SinkFailed):
        job.run(spark, store)
    receipt = job.run(spark, store)
    assert (len(first.rows), len(second.rows), receipt.rows_quarantined, receipt.rows_dropped) == (4, 4, 2, 1)
    assert quarantine(tmp_path) == PUT_ASIDE


def test_rules_that_changed_do_not_judge_a_frozen_batch_anew(
    spark: SparkSession, store: MarkStore, tmp_path: Path
) -> None:
    """Its rows went their way when it was frozen, so every sink gets the same ones."""
    first, second = ListSink("first"), ListSink("second", fail_times=1)
    job = fm.Job("judged", RowsSource(judged_rows(), SCHEMA), [first, second], transform=same, rules=RULES)
    with pytest.raises(SinkFailed):
        job.run(spark, store)
    other = fm.Job("judged", RowsSource(judged_rows(), SCHEMA), [first, second], transform=same, rules=RULES[:1])
    receipt = other.run(spark, store)
    assert (first.rows, len(second.rows), [each.name for each in receipt.rules][1]) == (second.rows, 4, "positive")
    assert quarantine(tmp_path) == PUT_ASIDE


def test_a_rule_on_the_whole_batch_quarantines_rows_too(spark: SparkSession, store: MarkStore, tmp_path: Path) -> None:
    """The batch is frozen first; of two rows with one id the second is put aside."""
    rows = [{"id": 1, "amount": 1}, {"id": 1, "amount": 2}, {"id": 2, "amount": 3}]
    unique = (fm.rules.unique("id", path=str(tmp_path / "lake"), action="quarantine"),)
    source, sink = RowsSource(rows, SCHEMA), fm.sinks.Delta(str(tmp_path / "lake"))
    job = fm.Job("judged", source, [sink], rules=unique)
    first = job.run(spark, store)
    rows.extend([{"id": 2, "amount": 4}, {"id": 3, "amount": 5}])
    second = job.run(spark, store)
    assert [(each.rows_written["delta"], each.rows_quarantined) for each in (first, second)] == [(2, 1), (1, 1)]
    assert [row for row, _, _, _ in quarantine(tmp_path)] == ['{"id":1,"amount":2}', '{"id":2,"amount":4}']


def test_a_full_refresh_puts_the_quarantine_anew(spark: SparkSession, store: MarkStore, tmp_path: Path) -> None:
    """Everything is judged again, so what lay there from before would be open twice; it stays as discarded."""
    rows, path = judged_rows(), str(tmp_path / "quarantine" / "judged")
    job = fm.Job("judged", RowsSource(rows, SCHEMA), [ListSink()], rules=RULES)
    job.run(spark, store)
    job.run(spark, store, full_refresh=True)
    numbers = [(each.number, each.status) for each in rows_set_aside(path, "judged")]
    assert numbers == [(1, "discarded"), (1, "discarded"), (2, "open"), (2, "open")]
    rows[:] = [{"id": 1, "amount": 1}]
    job.run(spark, store, full_refresh=True)
    assert {each.status for each in rows_set_aside(path, "judged")} == {"discarded"}


def test_a_rule_that_cannot_be_read_stops_before_anything_is_written(spark: SparkSession, store: MarkStore) -> None:
    """It is a mistake of the job's, not of its rows."""
    job = fm.Job(
        "judged", RowsSource(judged_rows(), SCHEMA), [sink := ListSink()], rules=[fm.rules.check("amuont > 0")]
    )
    with pytest.raises(RuleInvalid):
        job.run(spark, store)
    assert sink.rows == []
