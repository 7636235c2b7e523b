"""Large appends: Spark writes the files, and `deltalake` commits them with the batch's number."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from floodmark.errors import Overtaken, SinkFailed
from floodmark.probes.delta import DeltaProbe, note
from floodmark.sinks import Delta
from floodmark.sinks.contract import Recorded
from floodmark.sinks.delta.parquet import STAGING, DataFile, ParquetWriter
from tests.sinks.batches import ID_V, UNKNOWN, batch, delta_rows, frame, no_session
from tests.sinks.delta.test_ways import jobs_started
from tests.sinks.delta.ways import KINDS, LEDGER, way_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession


pytestmark = pytest.mark.spark
LONG = "x" * 32


class Killed(BaseException):
    """What stands for the end of the process: nothing after it is done."""


@pytest.fixture
def sink(ab: DataFrame, tmp_path: Path) -> Delta:
    """A table with two rows, of batch 1."""
    made = Delta(str(tmp_path / "t"))
    made.write(ab, batch(1))
    return made


def folder_of(sink: Delta) -> Path:
    return Path(str(sink.path))


def statistics(sink: Delta) -> list[dict[str, Any]]:
    """What the newest commit says of its files."""
    log = folder_of(sink) / "_delta_log"
    lines = (log / f"{DeltaTable(folder_of(sink)).version():020d}.json").read_text().splitlines()
    return [json.loads(line["add"]["stats"]) for line in map(json.loads, lines) if "add" in line]


def test_an_append_of_unknown_size_starts_one_spark_job(spark: SparkSession, sink: Delta) -> None:
    """The one that writes; the number is asked and recorded without Spark."""
    more = frame(spark, ID_V, (3, "c"))
    assert jobs_started(spark, lambda: sink.write(more, batch(2))) == 1
    assert delta_rows(spark, folder_of(sink)) == [(1, "a"), (2, "b"), (3, "c")]
    assert sink.recorded(LEDGER, no_session) == Recorded(2, "d2")


def test_the_files_lie_where_deltas_own_writer_puts_them(spark: SparkSession, sink: Delta) -> None:
    """And nothing is left of the folder that they were written into."""
    sink.write(frame(spark, ID_V, (3, "c")), batch(2))
    below = {path.parent.name for path in folder_of(sink).rglob("*.parquet")}
    assert (below, (folder_of(sink) / STAGING).exists()) == ({"t"}, False)


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_first_batch_makes_the_table_that_spark_would_make(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """Columns, which may all be NULL, partitions, properties, statistics and rows."""
    rows = spark.sql(
        "SELECT id, if(id = 7, 'D', 'a') AS v, array(named_struct('n', id)) AS l, map('k', id) AS m, id % 2 AS p"
        " FROM range(10)"
    ).coalesce(1)
    made = []
    for writer in ("spark", "auto"):
        sink = replace(KINDS[kind], path=str(tmp_path / writer), partition_by=("p",), change_feed=True, writer=writer)
        assert sink.write(rows, batch(1)) == 9 + (kind != "merge")
        table = DeltaTable(str(sink.path))
        told = table.metadata()
        found = spark.read.format("delta").load(str(sink.path)).drop("m").collect()
        made.append((
            json.loads(table.schema().to_json()), told.partition_columns, told.configuration,
            table.protocol().min_reader_version,
            sorted(each["numRecords"] for each in statistics(sink)), sorted(map(tuple, found)),
        ))  # fmt: skip
    assert made[0] == made[1]


def test_a_large_first_batch_starts_one_spark_job(spark: SparkSession, ab: DataFrame, tmp_path: Path) -> None:
    """The one that writes; a reader of the table's changes finds its rows, although the commit makes a table."""
    sink = Delta(str(tmp_path / "t"))
    assert jobs_started(spark, lambda: sink.write(ab, batch(1))) == 1
    assert sink.recorded(LEDGER, no_session) == Recorded(1, "d1")
    assert DeltaProbe(str(tmp_path / "t")).commits(-1, 0)[0].changes_rows


@pytest.mark.parametrize("method", ["commit_once", "make_table"])
def test_a_table_that_comes_while_its_first_files_are_written_is_not_replaced(
    spark: SparkSession, ab: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Whoever made it: before the lock was taken, or after the last look, where nothing but the log itself guards."""
    own = getattr(ParquetWriter, method)

    def beside_another(self: ParquetWriter, *given: object, **named: object) -> object:
        write_deltalake(str(tmp_path / "t"), pa.table({"id": [9], "v": ["z"]}))
        return own(self, *given, **named)

    monkeypatch.setattr(ParquetWriter, method, beside_another)
    assert way_of(Delta(str(tmp_path / "t")), ab, 1, UNKNOWN) == "spark"
    assert delta_rows(spark, tmp_path / "t") == [(1, "a"), (2, "b"), (9, "z")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_first_attempt_that_dies_before_its_commit_leaves_no_table(
    spark: SparkSession, ab: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The next one makes it whichever way, also one that begins with an empty table beside the files that are left."""

    def killed(self: ParquetWriter, files: Sequence[DataFile]) -> None:
        raise Killed

    monkeypatch.setattr(ParquetWriter, "make_table", killed)
    for writer in ("auto", "spark"):
        sink = replace(KINDS[kind], path=str(tmp_path / writer))
        with pytest.raises(Killed):
            sink.write(ab, batch(1))
        assert (sink.recorded(LEDGER, no_session), list(folder_of(sink).glob("*.parquet")) == []) == (None, False)
    monkeypatch.undo()
    for writer in ("auto", "spark"):
        again = replace(KINDS[kind], path=str(tmp_path / writer), cluster_by=("id",) if writer == "spark" else ())
        assert again.write(ab, batch(1)) == 2
        assert delta_rows(spark, tmp_path / writer) == [(1, "a"), (2, "b")]


def test_a_fence_before_the_first_commit_keeps_its_rows_out(
    spark: SparkSession, ab: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was paused while it wrote its files wakes up after another one has closed the table to it."""
    sink, commit = Delta(str(tmp_path / "t")), ParquetWriter.commit_once

    def thawed(self: ParquetWriter, folder: Path, files: Sequence[DataFile], *, is_first: bool) -> object:
        Delta(str(tmp_path / "t")).fence(LEDGER, 1, lambda: spark)
        return commit(self, folder, files, is_first=is_first)

    monkeypatch.setattr(ParquetWriter, "commit_once", thawed)
    with pytest.raises(Overtaken):
        sink.write(ab, batch(1))
    monkeypatch.undo()
    assert Delta(str(tmp_path / "t")).write(ab, batch(2)) == 2
    assert delta_rows(spark, tmp_path / "t") == [(1, "a"), (2, "b")]


def test_a_batch_is_written_once_however_often_it_comes(spark: SparkSession, sink: Delta) -> None:
    """The second time nothing is read, and the number of rows is that of the commit."""
    more = frame(spark, ID_V, (3, "c"))
    assert [sink.write(more, batch(2)) for _ in range(2)] == [1, 1]
    assert len(delta_rows(spark, folder_of(sink))) == 3


def test_a_batch_without_rows_records_its_number(spark: SparkSession, sink: Delta) -> None:
    """And brings no file into the table."""
    assert sink.write(frame(spark, ID_V), batch(2)) == 0
    assert sink.recorded(LEDGER, no_session) == Recorded(2, "d2")
    assert statistics(sink) == []


def test_the_log_says_between_which_values_the_rows_lie(spark: SparkSession, tmp_path: Path) -> None:
    """As Spark's own writer has it: times without microseconds, long texts cut, none of numbers that may be NaN."""
    rows = spark.sql(
        "SELECT 1L AS id, date'2024-02-03' AS d, timestamp'1500-01-01 00:00:00.123456' AS t, 1.25BD AS n,"
        f" '{LONG}yz' AS s, double('nan') AS f, named_struct('a', 5, 'b', cast(null as int)) AS o, array(1, 2) AS l"
        f" UNION ALL SELECT 3L, null, null, -2.50BD, '{LONG}', 1D, null, null"
    )
    sink = Delta(str(tmp_path / "t"))
    ways = [way_of(sink, rows.coalesce(1), number, UNKNOWN) for number in (1, 2)]
    [told] = statistics(sink)
    assert ways == ["parquet", "parquet"]
    assert told == {
        "numRecords": 2,
        "minValues": {
            "id": 1, "d": "2024-02-03", "t": "1500-01-01T00:00:00.123Z", "n": -2.5, "s": LONG, "o": {"a": 5},
        },
        "maxValues": {
            "id": 3, "d": "2024-02-03", "t": "1500-01-01T00:00:00.123Z", "n": 1.25, "s": LONG + "\U0010ffff",
            "o": {"a": 5},
        },
        "nullCount": {"id": 0, "d": 1, "t": 1, "n": 0, "s": 0, "f": 0, "o": {"a": 1, "b": 2}},
    }  # fmt: skip


def test_only_the_first_columns_are_in_the_log(spark: SparkSession, tmp_path: Path) -> None:
    """As many as the table says; by name it is left to Spark."""
    rows, sink = spark.sql("SELECT 1 AS a, 2 AS b"), Delta(str(tmp_path / "t"))
    sink.write(rows, batch(1))
    spark.sql(f"ALTER TABLE delta.`{sink.path}` SET TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '1')")
    assert way_of(sink, rows, 2, UNKNOWN) == "parquet"
    assert [each["maxValues"] for each in statistics(sink)] == [{"a": 1}]
    spark.sql(f"ALTER TABLE delta.`{sink.path}` SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'b')")
    assert way_of(sink, rows, 3, UNKNOWN) == "spark"


def test_what_a_killed_attempt_left_goes_with_the_next_commit(
    spark: SparkSession, sink: Delta, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files were never in the table; those of other ledgers, and of whoever comes after, are not touched."""
    more, commit = frame(spark, ID_V, (3, "c")), ParquetWriter.commit
    staging = folder_of(sink) / STAGING
    left = [staging / f"{ParquetWriter(sink, more, batch(2)).name_of_ledger}-{number}-x" for number in (1, 2, 3)]
    others = staging / "another-2-x"
    for folder in (*left, others):
        (folder / "_temporary").mkdir(parents=True)

    def killed(self: ParquetWriter, folder: Path, files: Sequence[DataFile], probe: DeltaProbe | None) -> None:
        raise Killed

    monkeypatch.setattr(ParquetWriter, "commit", killed)
    with pytest.raises(Killed):
        sink.write(more, batch(2))
    assert len(delta_rows(spark, folder_of(sink))) == 2
    monkeypatch.setattr(ParquetWriter, "commit", commit)
    assert sink.write(more, batch(2)) == 1
    assert sorted(path.name for path in staging.iterdir()) == sorted([left[2].name, others.name])
    assert len(delta_rows(spark, folder_of(sink))) == 3


def test_an_attempt_that_dies_between_its_files_and_its_commit_leaves_no_row(
    spark: SparkSession, sink: Delta, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files lie beside the others, but no commit names them; the next attempt brings its own."""
    more, commit = frame(spark, ID_V, (3, "c")), ParquetWriter.commit_files

    def killed(self: ParquetWriter, table: DeltaTable, files: Sequence[DataFile]) -> None:
        raise Killed

    monkeypatch.setattr(ParquetWriter, "commit_files", killed)
    with pytest.raises(Killed):
        sink.write(more, batch(2))
    monkeypatch.setattr(ParquetWriter, "commit_files", commit)
    sink.write(more, batch(2))
    assert delta_rows(spark, folder_of(sink)) == [(1, "a"), (2, "b"), (3, "c")]
    assert len(list(folder_of(sink).glob("*.parquet"))) > len(DeltaTable(folder_of(sink)).file_uris())


def test_files_that_are_gone_when_they_are_to_be_committed_stop_the_batch(
    spark: SparkSession, sink: Delta, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever took them away: a commit without them would lose their rows."""
    commit = ParquetWriter.commit

    def robbed(self: ParquetWriter, folder: Path, files: Sequence[DataFile], probe: DeltaProbe | None) -> None:
        (folder / files[0].path).unlink()
        commit(self, folder, files, probe)

    monkeypatch.setattr(ParquetWriter, "commit", robbed)
    with pytest.raises((SinkFailed, FileNotFoundError)):
        sink.write(frame(spark, ID_V, (3, "c")).coalesce(1), batch(2))
    assert sink.recorded(LEDGER, no_session) == Recorded(1, "d1")


def test_a_number_that_is_taken_meanwhile_stops_the_commit(
    spark: SparkSession, sink: Delta, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By somebody who has no lock, after the question and before the commit."""
    commit = ParquetWriter.commit_files

    def overtaken(self: ParquetWriter, table: DeltaTable, files: Sequence[DataFile]) -> None:
        said = CommitProperties({"userMetadata": note(LEDGER, 9, None)}, app_transactions=[Transaction(LEDGER, 9)])
        nothing = DeltaTable(folder_of(sink)).to_pyarrow_table().slice(0, 0)
        write_deltalake(str(folder_of(sink)), nothing, mode="append", commit_properties=said)
        commit(self, table, files)

    monkeypatch.setattr(ParquetWriter, "commit_files", overtaken)
    with pytest.raises(Overtaken):
        sink.write(frame(spark, ID_V, (3, "zombie")), batch(9))
    assert delta_rows(spark, folder_of(sink)) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("has_committed", [True, False], ids=["after it", "before it"])
def test_a_commit_that_fails_is_left_to_spark_which_asks_whether_it_was_made(
    spark: SparkSession, sink: Delta, monkeypatch: pytest.MonkeyPatch, has_committed: bool
) -> None:
    """An answer that was lost may stand for either; every row is there once, and known to have been read twice."""
    commit = ParquetWriter.commit_files

    def failing(self: ParquetWriter, table: DeltaTable, files: Sequence[DataFile]) -> None:
        if has_committed:
            commit(self, table, files)
        raise DeltaError("the answer was lost")

    monkeypatch.setattr(ParquetWriter, "commit_files", failing)
    made = batch(2)
    assert sink.write(frame(spark, ID_V, (3, "c")), made) == 1
    assert (made.notes.ways["delta"], made.notes.is_partly_observed) == (
        "parquet" if has_committed else "spark",
        True,
    )
    assert delta_rows(spark, folder_of(sink)) == [(1, "a"), (2, "b"), (3, "c")]


def test_another_writer_without_the_lock_costs_no_row(
    spark: SparkSession, sink: Delta, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit and ours both stand."""
    commit = ParquetWriter.commit_files

    def beside_another(self: ParquetWriter, table: DeltaTable, files: Sequence[DataFile]) -> None:
        write_deltalake(str(folder_of(sink)), DeltaTable(folder_of(sink)).to_pyarrow_table(), mode="append")
        commit(self, table, files)

    monkeypatch.setattr(ParquetWriter, "commit_files", beside_another)
    sink.write(frame(spark, ID_V, (3, "c")), batch(2))
    assert delta_rows(spark, folder_of(sink)) == [(1, "a"), (1, "a"), (2, "b"), (2, "b"), (3, "c")]


def test_vacuum_takes_what_no_commit_names_and_nothing_else(spark: SparkSession, sink: Delta) -> None:
    """The files are the table's like any others."""
    sink.write(frame(spark, ID_V, (3, "c")), batch(2))
    (folder_of(sink) / "part-00000-left-c000.snappy.parquet").write_bytes(b"")
    DeltaTable(folder_of(sink)).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert not (folder_of(sink) / "part-00000-left-c000.snappy.parquet").exists()
    assert len(delta_rows(spark, folder_of(sink))) == 3


@pytest.mark.parametrize(
    "setting",
    [
        ("spark.sql.parquet.outputTimestampType", "INT96"),
        ("spark.databricks.delta.optimizeWrite.enabled", "true"),
    ],
    ids=["times", "layout"],
)
def test_a_session_that_asks_for_other_files_is_left_to_spark(
    spark: SparkSession, sink: Delta, setting: tuple[str, str]
) -> None:
    """Files of ours would be without what Spark puts into the log, or be laid out otherwise."""
    own = spark.newSession()
    own.conf.set(*setting)
    assert way_of(sink, frame(own, ID_V, (3, "c")), 2, UNKNOWN) == "spark"


def test_a_sink_that_leaves_known_rows_out_is_left_to_spark(spark: SparkSession, sink: Delta) -> None:
    """They are compared with the table that is committed to, under its lock."""
    known = replace(sink, _known_by=("id",))
    assert way_of(known, frame(spark, ID_V, (2, "again"), (3, "c")), 2, UNKNOWN) == "spark"
    assert delta_rows(spark, folder_of(sink)) == [(1, "a"), (2, "b"), (3, "c")]
