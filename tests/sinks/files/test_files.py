"""The files sink: folders that appear whole, each with its page of the ledger."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import socket
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.errors import ColumnUnfit, ConfigError, Overtaken, SinkFailed
from floodmark.sinks import Files
from floodmark.sinks.contract import POSITION, Recorded
from floodmark.sinks.files.folders import FileFormat
from floodmark.spark.faults import FolderMarker, fault_in
from tests.sinks.batches import batch, frame, on_disk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
LEDGER = "floodmark.prod.orders.files"
ID_V = "id long, v string"


@pytest.fixture
def ab(spark: SparkSession) -> DataFrame:
    return frame(spark, ID_V, (1, "a"), (2, None))


def no_session() -> SparkSession:
    raise AssertionError("this needs no Spark")


def json_lines(folder: Path) -> list[dict[str, Any]]:
    lines = [line for file in folder.glob("batch=*/part-*") for line in file.read_text().splitlines()]
    return sorted((json.loads(line) for line in lines), key=lambda record: int(record["id"]))


def test_a_batch_is_a_folder_with_its_rows_and_its_page(ab: DataFrame, tmp_path: Path) -> None:
    """Data and ledger are published by the same rename; nothing else is left in the folder."""
    sink = Files(str(tmp_path))
    assert sink.write(ab, batch(1)) == 2
    assert json_lines(tmp_path) == [{"id": 1, "v": "a"}, {"id": 2, "v": None}]
    assert sink.recorded(LEDGER, no_session) == Recorded(1, "d1")
    assert [path.name for path in tmp_path.iterdir()] == ["batch=1"]
    assert {path.name.split("-")[0] for path in (tmp_path / "batch=1").iterdir()} == {"part", "_floodmark.json"}


def test_a_line_is_a_value_or_it_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Of a value with a line break two lines would be read, and of NULL an empty one."""
    sink = Files(str(tmp_path), format="text")
    assert sink.write(frame(spark, "v string", ("a b",), ("",)), batch(1)) == 2
    for text in ("a\nb", "a\rb", None):
        with pytest.raises(SinkFailed, match="column 'v' holds NULL or a line break"):
            sink.write(frame(spark, "v string", (text,)), batch(2))
    with pytest.raises(ColumnUnfit, match="column 'id'"):
        sink.write(frame(spark, "id long", (1,)), batch(2))
    assert [path.name for path in tmp_path.glob("batch=*")] == ["batch=1"]


def test_a_repeated_number_changes_no_byte(spark: SparkSession, ab: DataFrame, tmp_path: Path) -> None:
    """The folder is there, so the batch is; the count of then is given again."""
    sink = Files(str(tmp_path))
    sink.write(ab, batch(1))
    before = on_disk(tmp_path)
    assert sink.write(frame(spark, ID_V, (9, "x")), batch(1, attempt="a2")) == 2
    assert on_disk(tmp_path) == before


def test_what_a_killed_attempt_left_is_invisible_and_cleaned_by_the_next(ab: DataFrame, tmp_path: Path) -> None:
    """Half a batch never counts as one."""
    torn = tmp_path / "_floodmark" / "1-a0-ffff"
    torn.mkdir(parents=True)
    (torn / "part-0.json").write_text('{"id": 1}\n')
    sink = Files(str(tmp_path))
    assert (sink.recorded(LEDGER, no_session), sink.holds_rows(no_session)) == (None, False)
    sink.write(ab, batch(1))
    assert [path.name for path in tmp_path.iterdir()] == ["batch=1"]


def test_a_fence_is_an_empty_batch(ab: DataFrame, tmp_path: Path) -> None:
    """It holds the number, and no row; what is at or below it is not this batch's any more."""
    sink = Files(str(tmp_path))
    sink.fence(LEDGER, 5, no_session)
    assert (sink.recorded(LEDGER, no_session), sink.holds_rows(no_session)) == (
        Recorded(5, None, is_fence=True),
        False,
    )
    for number in (4, 5):
        with pytest.raises(Overtaken):
            sink.write(ab, batch(number))
    assert sink.write(ab, batch(6)) == 2


def test_two_ledgers_on_one_folder_are_refused_with_both_names(ab: DataFrame, tmp_path: Path) -> None:
    """Batch 3 of one job is not batch 3 of another."""
    Files(str(tmp_path)).write(ab, batch(1))
    with pytest.raises(ConfigError) as caught:
        Files(str(tmp_path), name="other").write(ab, batch(2))
    assert LEDGER in caught.value.message
    assert "floodmark.prod.orders.other" in caught.value.message


def test_a_batch_folder_without_a_page_is_not_taken_for_ours(ab: DataFrame, tmp_path: Path) -> None:
    """A damaged ledger stops the run; it is never read as no batch."""
    sink = Files(str(tmp_path))
    sink.write(ab, batch(1))
    (tmp_path / "batch=1" / "_floodmark.json").write_text("{")
    with pytest.raises(ConfigError):
        sink.recorded(LEDGER, no_session)


def test_files_of_others_count_as_rows(tmp_path: Path) -> None:
    """A reader of the folder sees them as well."""
    sink = Files(str(tmp_path))
    before = sink.holds_rows(no_session)
    (tmp_path / "old.jsonl").write_text("{}\n")
    assert (before, sink.holds_rows(no_session)) == (False, True)


@pytest.mark.parametrize(
    ("file_format", "reader", "options"),
    [
        ("jsonl", "json", {}),
        ("json", "json", {"multiLine": "true"}),
        ("csv", "csv", {"header": "true", "escape": '"', "multiLine": "true"}),
        ("parquet", "parquet", {}),
    ],
)
def test_every_format_is_read_back_as_it_was_written(
    spark: SparkSession, tmp_path: Path, file_format: FileFormat, reader: str, options: dict[str, str]
) -> None:
    """Quotes, line breaks, separators and NULL survive, and the rows are counted exactly."""
    rows = frame(spark, ID_V, (1, 'a "quoted", b'), (2, "two\nlines"), (3, None), (4, "ü→"), (5, '"\n"'))
    assert Files(str(tmp_path), format=file_format).write(rows.repartition(2), batch(1)) == 5
    found = spark.read.format(reader).options(**options).load(f"{tmp_path}/batch=1")
    back = found.selectExpr("cast(id AS long) AS id", "v").orderBy("id").collect()
    assert [tuple(row) for row in back] == [tuple(row) for row in rows.orderBy("id").collect()]


@pytest.mark.parametrize("file_format", ["jsonl", "json", "csv", "parquet"])
def test_a_batch_without_rows_is_published_and_can_be_read(
    spark: SparkSession, ab: DataFrame, tmp_path: Path, file_format: FileFormat
) -> None:
    """The number is recorded, and no file is there that a reader would choke on."""
    sink = Files(str(tmp_path), format=file_format)
    assert sink.write(ab.where("id > 100"), batch(1)) == 0
    assert sink.write(spark.createDataFrame([], ID_V), batch(2)) == 0
    assert sink.recorded(LEDGER, no_session) == Recorded(2, "d2")
    [json.loads(file.read_text()) for file in tmp_path.glob("batch=*/part-*") if file_format == "json"]


def test_a_json_file_is_one_list(ab: DataFrame, tmp_path: Path) -> None:
    """Any JSON parser reads it in one go."""
    Files(str(tmp_path), format="json").write(ab.coalesce(1), batch(1))
    (file,) = tmp_path.glob("batch=1/part-*")
    assert json.loads(file.read_text()) == [{"id": 1, "v": "a"}, {"id": 2, "v": None}]


def test_values_that_json_has_no_type_for_are_text(spark: SparkSession, tmp_path: Path) -> None:
    """Dates and moments are written so that they sort, decimals with every digit."""
    rows = frame(spark, "id int, d date, n decimal(20,2)", (1, dt.date(2024, 5, 1), Decimal("12345678901234567.89")))
    Files(str(tmp_path)).write(rows, batch(1))
    (file,) = [file for file in tmp_path.glob("batch=1/part-*") if file.stat().st_size]
    assert file.read_text() == '{"id":1,"d":"2024-05-01","n":12345678901234567.89}\n'


def test_own_columns_are_not_written(spark: SparkSession, tmp_path: Path) -> None:
    """The position is the step's."""
    Files(str(tmp_path)).write(frame(spark, f"id long, {POSITION} long", (1, 9)), batch(1))
    assert json_lines(tmp_path) == [{"id": 1}]


def test_a_refresh_leaves_only_its_own_batch(spark: SparkSession, ab: DataFrame, tmp_path: Path) -> None:
    """Old batches and their ledger go in the same swap, and nothing stays beside the folder but its lock."""
    target = tmp_path / "out"
    sink = Files(str(target))
    sink.write(ab, batch(1))
    sink.write(ab, batch(2))
    assert sink.write(frame(spark, ID_V, (7, "new")), batch(3, kind="refresh")) == 1
    assert sink.write(frame(spark, ID_V, (8, "again")), batch(3, kind="refresh")) == 1
    assert json_lines(target) == [{"id": 7, "v": "new"}]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.lock", "out"]


def test_a_refresh_may_be_the_first_batch(ab: DataFrame, tmp_path: Path) -> None:
    """There is nothing to replace yet."""
    sink = Files(str(tmp_path / "out"))
    assert sink.write(ab, batch(1, kind="refresh")) == 2
    assert sink.recorded(LEDGER, no_session) == Recorded(1, "d1")


def test_a_swap_that_was_killed_between_its_renames_is_finished_at_the_next_look(ab: DataFrame, tmp_path: Path) -> None:
    """The old folder was moved away and the complete new one waits: it takes the place."""
    target = tmp_path / "out"
    sink = Files(str(target))
    sink.write(ab, batch(1))
    shutil.copytree(target, tmp_path / ".out.old-2-a1")
    target.rename(tmp_path / ".out.new-2-a1")
    assert sink.recorded(LEDGER, no_session) == Recorded(1, "d1")
    sink.write(ab, batch(2))
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.lock", "out"]
    assert sorted(path.name for path in target.iterdir()) == ["batch=1", "batch=2"]


def test_a_folder_with_odd_characters_in_its_name_works(ab: DataFrame, tmp_path: Path) -> None:
    """Spaces and percent signs are part of a name."""
    sink = Files(str(tmp_path / "a b%20c"))
    assert (sink.write(ab, batch(1)), len(json_lines(tmp_path / "a b%20c"))) == (2, 2)


@pytest.mark.parametrize(
    "options", [{"path": "s3://lake/out"}, {"path": "o", "format": "xml"}, {"path": "o", "mode": "merge"}]
)
def test_what_this_sink_cannot_do_is_refused_at_once(options: dict[str, Any]) -> None:
    """An object store has no rename that publishes a folder, and the error says what to use there."""
    with pytest.raises(ConfigError):
        Files(**options)


def test_tasks_of_a_cluster_look_for_the_marker_on_their_way(
    ab: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that see it write what they would have written; one that does not says where it is."""
    monkeypatch.setattr("floodmark.spark.faults.runs_here", lambda spark: False)
    assert Files(str(tmp_path / "out")).write(ab, batch(1)) == 2
    with pytest.raises(Exception, match="does not see") as caught:
        FolderMarker(tmp_path / "elsewhere", "other").guard(ab).collect()
    assert fault_in(caught.value, "disk") == f"{socket.gethostname()} does not see {tmp_path / 'elsewhere'}"
