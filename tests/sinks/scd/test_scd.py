"""The table of versions, case by case as the specification lists them: the case is the key, so all share one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from floodmark.errors import ConfigError, ConflictingEvents, Overtaken
from floodmark.sinks import Delta, Scd2
from floodmark.sinks.contract import BatchSize, Ordered, Piecemeal, Recorded, Session, Shaped
from tests.sinks.batches import SMALL, UNKNOWN, batch, frame, on_disk
from tests.sinks.scd.histories import events, history, version_lines, whole_table
from tests.tables import rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LEDGER = "floodmark.prod.orders.scd2"
FIRST = {
    "follows": "a@1",
    "unsorted": "c@9 a@1 b@5",
    "untracked": "a@1/old",
    "returns": "a@1 b@2 a@3",
    "late": "a@10",
    "earlier_start": "a@10",
    "deleted": "a@10 b@20 D@30 c@40",
    "late_delete": "a@1 b@9",
    "null_value": "~@1",
    "doubled": "a@1 a@1 a@1",
    "delete_wins": "a@1 b@5 D@5",
    "only_deleted": "D@1",
    "NULL": "a@1",
    "no_moment": "a@1 b@",
    "gone": "a@1",
}
SECOND = {
    "follows": "b@5",
    "untracked": "a@4/new",
    "late": "b@5",
    "earlier_start": "a@5",
    "late_delete": "D@5",
    "null_value": "~@3 a@7 ~@9",
    "doubled": "a@1 b@2",
    "only_deleted": "a@3 D@7",
    "gone": "D@1",
}
EXPECTED = {
    "follows": "a[1,5) b[5,)",
    "unsorted": "a[1,5) b[5,9) c[9,)",
    "untracked": "a/new[1,)",
    "returns": "a[1,2) b[2,3) a[3,)",
    "late": "b[5,10) a[10,)",
    "earlier_start": "a[5,)",
    "deleted": "a[10,20) b[20,30) c[40,)",
    "late_delete": "a[1,5) b[9,)",
    "null_value": "~[1,7) a[7,9) ~[9,)",
    "doubled": "a[1,2) b[2,)",
    "delete_wins": "a[1,5)",
    "only_deleted": "a[3,7)",
    "no_moment": "a[1,)",
}


@pytest.fixture(scope="module", params=[UNKNOWN, SMALL], ids=["spark", "arrow"])
def size(request: pytest.FixtureRequest) -> BatchSize:
    """By what is known of a batch it takes one way or the other."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, size: BatchSize) -> Path:
    return tmp_path_factory.mktemp("scd2")


@pytest.fixture(scope="module")
def sink_with_cases(spark: SparkSession, home: Path, size: BatchSize) -> Scd2:
    """All cases, in two batches."""
    sink = history(home)
    sink.write(events(spark, **FIRST), batch(1, size=size))
    sink.write(events(spark, **SECOND), batch(2, size=size))
    return sink


@pytest.mark.spark
def test_the_cases_of_the_specification(home: Path, sink_with_cases: Scd2) -> None:
    """Order of arrival has no say; a delete ends a version; equal neighbours are one; NULL is a value like others."""
    assert version_lines(home) == EXPECTED


@pytest.mark.spark
def test_events_without_a_key_or_a_moment_are_kept_apart_with_the_reason(
    spark: SparkSession, sink_with_cases: Scd2
) -> None:
    """The rest of the batch goes on."""
    refused = sink_with_cases.refused(spark)
    assert refused is not None
    assert sorted((row.v, row._event_refused) for row in refused.collect()) == [
        ("a", "key column k is NULL"),
        ("b", "sequence column at is NULL"),
    ]


@pytest.mark.spark
def test_the_same_batch_again_writes_nothing(
    spark: SparkSession, home: Path, size: BatchSize, sink_with_cases: Scd2
) -> None:
    """Neither to the log nor to the table."""
    before = on_disk(home)
    assert sink_with_cases.write(events(spark, **SECOND), batch(2, attempt="again", size=size)) == 13
    assert on_disk(home) == before
    assert sink_with_cases.recorded(LEDGER, lambda: spark) == Recorded(2, "d2")


@pytest.mark.spark
def test_a_contradiction_is_named_and_nothing_is_written(
    spark: SparkSession, home: Path, size: BatchSize, sink_with_cases: Scd2
) -> None:
    """Whether the other event came in the same batch or long ago."""
    before = on_disk(home)
    with pytest.raises(ConflictingEvents) as stored:
        sink_with_cases.write(events(spark, unsorted="b@1", fresh="a@1"), batch(3, size=size))
    with pytest.raises(ConflictingEvents) as arriving:
        sink_with_cases.write(events(spark, fresh="a@1 b@1"), batch(3, size=size))
    assert (stored.value.key, stored.value.sequence) == ('{"k":"unsorted"}', '{"at":1}')
    assert (arriving.value.key, arriving.value.sequence) == ('{"k":"fresh"}', '{"at":1}')
    assert on_disk(home) == before


@pytest.mark.crash
@pytest.mark.spark
def test_a_map_is_the_same_in_whatever_order_its_entries_come(spark: SparkSession, tmp_path: Path) -> None:
    """Also inside of a record: no version begins, and nothing contradicts. What does is named to the microsecond."""
    sink = Scd2(str(tmp_path / "t"), key="k", sequence="at")

    def event(entries: str, microsecond: int) -> DataFrame:
        at = f"timestamp'2024-05-01 12:00:00.00000{microsecond}Z'"
        return spark.sql(f"select 'k' as k, {at} as at, named_struct('m', map({entries}), 'v', null) as s")

    sink.write(event("'a', 1, 'b', 2", 1).unionByName(event("'b', 2, 'a', 1", 1)), batch(1))
    sink.write(event("'b', 2, 'a', 1", 2), batch(2))
    assert len(rows_of(tmp_path / "t")) == 1
    with pytest.raises(ConflictingEvents) as caught:
        sink.write(event("'a', 7", 2), batch(3))
    assert caught.value.sequence == '{"at":"2024-05-01T12:00:00.000002Z"}'


@pytest.mark.spark
def test_contradictions_can_be_quarantined_whichever_came_first(spark: SparkSession, tmp_path: Path) -> None:
    """Neither of the two counts, so the order of arrival still has no say; somebody decides later, once and for all."""
    sink = history(tmp_path, on_conflict="quarantine")
    sink.write(events(spark, x="a@1 b@5", y="a@1 b@5 c@5"), batch(1))
    sink.write(events(spark, x="c@5"), batch(2))
    refused = sink.refused(spark)
    assert version_lines(tmp_path) == {"x": "a[1,)", "y": "a[1,)"}
    assert refused is not None
    assert sorted((row.k, row.v) for row in refused.collect()) == [("x", "b"), ("x", "c"), ("y", "b"), ("y", "c")]
    assert (sink.settle(spark, "v = 'b'"), sink.settle(spark, "v = 'b'")) == (2, 0)
    assert version_lines(tmp_path) == {"x": "a[1,5) b[5,)", "y": "a[1,5) b[5,)"}
    sink.write(events(spark, x="c@5 b@5 d@7"), batch(3))
    assert version_lines(tmp_path) == {"x": "a[1,5) b[5,7) d[7,)", "y": "a[1,5) b[5,)"}


@pytest.mark.spark
def test_the_last_arrival_can_decide(spark: SparkSession, tmp_path: Path) -> None:
    """By batch, and within one by the source's position; where there is none, a contradiction stays one."""
    sink = history(tmp_path, on_conflict="last_arrival")
    placed = frame(
        spark,
        "k string, at int, v string, note string, _fm_position int",
        ("x", 1, "a", None, 2),
        ("x", 1, "b", None, 1),
    )
    sink.write(placed, batch(1))
    assert version_lines(tmp_path) == {"x": "a[1,)"}
    sink.write(events(spark, x="c@1"), batch(2))
    assert version_lines(tmp_path) == {"x": "c[1,)"}
    with pytest.raises(ConflictingEvents):
        sink.write(events(spark, x="d@1 e@1"), batch(3))


@pytest.mark.spark
def test_keys_of_two_columns_and_a_first_version_from_its_creation(spark: SparkSession, tmp_path: Path) -> None:
    """(w1, c1) and (w2, c1) are two clusters; a creation time behind the first change is not believed."""
    schema = "w string, c string, created int, at int, v string"
    sink = Scd2(str(tmp_path), key=("w", "c"), sequence=("at",), first_valid_from="created")
    rows = [("w1", "c1", 1, 5, "a"), ("w1", "c1", 1, 9, "b"), ("w2", "c1", 8, 7, "a"), ("w3", "c1", None, 7, "a")]
    sink.write(frame(spark, schema, *rows), batch(1))
    found = sorted(rows_of(tmp_path), key=lambda row: (row.w, row.valid_from))
    assert [(row.w, row.v, row.valid_from, row.valid_to) for row in found] == [
        ("w1", "a", 1, 9),
        ("w1", "b", 9, None),
        ("w2", "a", 7, None),
        ("w3", "a", 7, None),
    ]


@pytest.mark.spark
def test_a_new_column_is_null_before_and_invents_no_version(spark: SparkSession, tmp_path: Path) -> None:
    """A key whose new events say nothing in it keeps one version; maps are compared by what is in them."""
    sink = Scd2(str(tmp_path), key=("k",), sequence=("at",), evolve=True)
    sink.write(
        frame(spark, "k string, at int, tags map<string,string>", ("x", 1, {"a": "1", "b": "2"}), ("y", 1, {})),
        batch(1),
    )
    wider = frame(
        spark,
        "k string, at int, tags map<string,string>, size int",
        ("x", 5, {"b": "2", "a": "1"}, None),
        ("y", 5, {}, 3),
    )
    sink.write(wider, batch(2))
    found = sorted(rows_of(tmp_path), key=lambda row: (row.k, row.valid_from))
    assert [(row.k, row.size, row.valid_from, row.valid_to) for row in found] == [
        ("x", None, 1, None),
        ("y", None, 1, 5),
        ("y", 3, 5, None),
    ]


@pytest.mark.spark
def test_of_several_events_at_one_moment_the_last_by_sequence_is_seen(spark: SparkSession, tmp_path: Path) -> None:
    """The columns behind the first decide, and no version is empty."""
    sink = Scd2(str(tmp_path / "t"), key=("k",), sequence=("at", "line"), track=("v",), delete_when="v = 'D'")
    schema = "k string, at int, line int, v string, note string"
    rows = [("x", 1, 2, "b", None), ("x", 1, 1, "a", None), ("y", 1, 1, "D", None), ("y", 1, 2, "a", None)]
    sink.write(frame(spark, schema, *rows), batch(1))
    assert version_lines(tmp_path) == {"x": "b[1,)", "y": "a[1,)"}


@pytest.mark.spark
def test_a_batch_that_stopped_between_its_commits_is_begun_and_then_finished(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The log has it, the table not yet: the repeat adds nothing to the log; a fence brings the events over first."""
    sink = history(tmp_path)
    sink.write(events(spark, x="a@1"), batch(1))
    stop = pytest.MonkeyPatch()
    stop.setattr("floodmark.sinks.scd.reach", lambda point: (_ for _ in ()).throw(OSError(point)))
    with pytest.raises(OSError, match="after_events"):
        sink.write(events(spark, x="b@5"), batch(2))
    stop.undo()
    assert (sink.partial_batch(LEDGER, lambda: spark), version_lines(tmp_path)) == (2, {"x": "a[1,)"})
    sink.fence(LEDGER, 7, lambda: spark)
    assert (sink.partial_batch(LEDGER, lambda: spark), version_lines(tmp_path)) == (None, {"x": "a[1,5) b[5,)"})
    with pytest.raises(Overtaken):
        sink.write(events(spark, x="zombie@9"), batch(7))
    assert version_lines(tmp_path) == {"x": "a[1,5) b[5,)"}


@pytest.mark.spark
def test_events_that_a_paused_run_adds_before_the_fence_reach_the_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it came first is asked after the log is fenced; the batch is then whole, and no fence hides it."""
    sink, fence = history(tmp_path), Delta.fence

    def write_first(self: Delta, ledger: str, number: int, session: Session) -> None:
        monkeypatch.setattr(Delta, "fence", fence)
        arriving = sink.reader.events(events(spark, x="a@1"), None, batch(1))
        sink._tables.add(arriving, batch(1))
        fence(self, ledger, number, session)

    monkeypatch.setattr(Delta, "fence", write_first)
    sink.fence(LEDGER, 1, lambda: spark)
    assert sink.recorded(LEDGER, lambda: spark) == Recorded(1, "d1")
    assert version_lines(tmp_path) == {"x": "a[1,)"}


@pytest.mark.spark
def test_a_history_that_is_not_there_is_fenced_in_both_its_tables(spark: SparkSession, tmp_path: Path) -> None:
    """A fence is no batch that has begun, and the batch after it makes both tables."""
    sink = history(tmp_path)
    sink.fence(LEDGER, 1, lambda: spark)
    assert sink.recorded(LEDGER, lambda: spark) == Recorded(1, is_fence=True)
    assert (sink.partial_batch(LEDGER, lambda: spark), sink.schema(lambda: spark)) == (None, None)
    with pytest.raises(Overtaken):
        sink.write(events(spark, x="zombie@9"), batch(1))
    sink.write(events(spark, x="a@1"), batch(2))
    assert version_lines(tmp_path) == {"x": "a[1,)"}
    assert DeltaTable(tmp_path / "t").metadata().configuration["delta.enableChangeDataFeed"] == "true"


@pytest.mark.spark
def test_a_refresh_that_stopped_between_its_commits_is_brought_over_whole_by_a_fence(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The log was replaced, so a key that it no longer has leaves the table too."""
    sink = history(tmp_path)
    sink.write(events(spark, x="a@1", y="a@1"), batch(1))
    sink._tables.add(sink.reader.events(events(spark, x="b@1"), None, batch(2)), batch(2, kind="refresh"))
    sink._tables.log.sink.fence(LEDGER, 3, lambda: spark)  # a fence that was killed here
    assert sink.partial_batch(LEDGER, lambda: spark) == 2
    sink.fence(LEDGER, 3, lambda: spark)
    assert version_lines(tmp_path) == {"x": "b[1,)"}
    assert sink.recorded(LEDGER, lambda: spark) == Recorded(3, is_fence=True)


@pytest.mark.spark
def test_a_refresh_begins_anew(spark: SparkSession, tmp_path: Path) -> None:
    """The log and the table hold the batch and nothing else."""
    sink = history(tmp_path)
    sink.write(events(spark, x="a@1", y="a@1"), batch(1))
    sink.write(events(spark, x="b@1 c@2"), batch(2, kind="refresh"))
    assert whole_table(tmp_path) == [("x", 1, "b", None, 1, 2, False), ("x", 2, "c", None, 2, None, True)]


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"sequence": "at"}, "no key"),
        ({"key": "k"}, "no sequence"),
        ({"key": "k", "sequence": "at", "on_conflict": "guess"}, "on_conflict: 'guess'"),
        ({"key": "k", "sequence": "at", "changes": "diff"}, "changes: 'diff'"),
        ({"key": "k", "changes": "feed", "delete_when": "true"}, "`delete_when` for a feed"),
        ({"key": "k", "changes": "feed", "allow_empty": True}, "`allow_empty` for a feed"),
        ({"key": "k", "sequence": "at", "track": "at"}, "tracks 'at'"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, str], wrong: str) -> None:
    """When the job is written down, not when it runs."""
    with pytest.raises(ConfigError, match=wrong):
        Scd2("t", **options)  # type: ignore[arg-type]


@pytest.mark.spark
def test_a_column_that_is_missing_or_taken_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """Before anything is written."""
    with pytest.raises(ConfigError, match="needs column 'at'"):
        history(tmp_path).write(frame(spark, "k string, v string", ("x", "a")), batch(1))
    taken = frame(spark, "k string, at int, v string, valid_to int", ("x", 1, "a", 2))
    with pytest.raises(ConfigError, match="column 'valid_to' itself"):
        history(tmp_path).write(taken, batch(1))
    assert on_disk(tmp_path) == {}


def test_it_is_all_that_a_sink_can_be() -> None:
    """The step asks by protocol."""
    sink: object = Scd2("t", key=("k",), sequence=("at",))
    assert isinstance(sink, Shaped)
    assert isinstance(sink, Ordered)
    assert isinstance(sink, Piecemeal)
