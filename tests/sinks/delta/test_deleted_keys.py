"""Keys that a merge deleted: an older row that comes later does not bring one back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from floodmark.probes.delta import DeltaProbe
from floodmark.sinks import Delta
from floodmark.sinks.contract import Batch, is_atomic
from tests.sinks.batches import NOON, batch, frame
from tests.tables import sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SCHEMA = "id long, at int, v string"


def merge(folder: Path, **options: Any) -> Delta:  # noqa: ANN401 - the sink's own options
    settings = {"mode": "merge", "key": ("id",), "sequence": ("at",), "delete_when": "v = 'D'"}
    return Delta(str(folder / "t"), **{**settings, **options})


def write(spark: SparkSession, sink: Delta, number: int, *rows: tuple[Any, ...]) -> int | None:
    return sink.write(frame(spark, SCHEMA, *rows), batch(number))


def on(day: int, number: int) -> Batch:
    return replace(batch(number), batch_time=NOON + timedelta(days=day))


def test_an_older_row_does_not_bring_a_deleted_key_back(spark: SparkSession, tmp_path: Path) -> None:
    """Whether the table had the key or the delete came first; a newer row does."""
    sink = merge(tmp_path)
    write(spark, sink, 1, (1, 1, "a"), (2, 1, "a"))
    write(spark, sink, 2, (1, 5, "D"), (3, 5, "D"))
    write(spark, sink, 3, (1, 3, "late"), (3, 4, "late"), (2, 2, "b"))
    assert sorted_rows(tmp_path / "t") == [(2, 2, "b")]
    write(spark, sink, 4, (1, 6, "again"), (3, 9, "new"))
    assert sorted_rows(tmp_path / "t") == [(1, 6, "again"), (2, 2, "b"), (3, 9, "new")]


def test_a_delete_and_an_upsert_of_one_sequence_end_the_same_in_either_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The delete wins, whichever came first."""
    sink = merge(tmp_path)
    write(spark, sink, 1, (1, 5, "D"), (2, 5, "a"))
    write(spark, sink, 2, (1, 5, "a"), (2, 5, "D"))
    assert sorted_rows(tmp_path / "t") == []


def test_a_first_batch_of_deletes_is_remembered_too(spark: SparkSession, tmp_path: Path) -> None:
    """There was no table to merge with, and the row that it deletes may still come."""
    write(spark, merge(tmp_path), 1, (1, 5, "D"), (2, 1, "a"))
    write(spark, merge(tmp_path), 2, (1, 4, "late"))
    assert sorted_rows(tmp_path / "t") == [(2, 1, "a")]


def test_batches_without_a_delete_make_no_second_table(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is paid for what does not happen; late rows alone are no deletes either."""
    sink = merge(tmp_path)
    write(spark, sink, 1, (1, 5, "a"))
    write(spark, sink, 2, (1, 6, "b"), (2, 1, "a"))
    write(spark, sink, 3, (1, 1, "late"))
    assert not (tmp_path / "t__deleted").exists()


def test_a_repeat_adds_no_entry_and_a_batch_that_lacks_its_deletes_gets_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target is first: killed behind it, the same batch brings the deletes over."""
    sink, entries = merge(tmp_path), tmp_path / "t__deleted"
    write(spark, sink, 1, (1, 1, "a"))
    monkeypatch.setattr("floodmark.sinks.delta.reach", lambda point: (_ for _ in ()).throw(OSError(point)))
    with pytest.raises(OSError, match="after_merge"):
        write(spark, sink, 2, (1, 5, "D"))
    monkeypatch.undo()
    assert (sorted_rows(tmp_path / "t"), entries.exists()) == ([], False)
    write(spark, sink, 2, (1, 5, "D"))
    write(spark, sink, 2, (1, 5, "D"))
    assert [row[:2] for row in sorted_rows(entries)] == [(1, 5)]


def test_deleted_keys_are_kept_for_a_time(spark: SparkSession, tmp_path: Path) -> None:
    """Measured by the time of batches, so that a repeat decides the same."""
    sink = merge(tmp_path, keep_deleted=timedelta(days=7))
    sink.write(frame(spark, SCHEMA, (1, 5, "D"), (2, 1, "a")), on(0, 1))
    sink.write(frame(spark, SCHEMA, (1, 4, "late")), on(7, 2))
    assert sorted_rows(tmp_path / "t") == [(2, 1, "a")]
    sink.write(frame(spark, SCHEMA, (1, 4, "later")), on(8, 3))
    assert sorted_rows(tmp_path / "t") == [(1, 4, "later"), (2, 1, "a")]


def test_what_is_too_old_leaves_the_table_of_deleted_keys(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Now and then, in a commit that is noted as the batch's own, so that a rollback knows it."""
    monkeypatch.setattr("floodmark.sinks.delta.deleted_keys.COMMITS_BETWEEN_PRUNING", 1)
    sink = merge(tmp_path, keep_deleted=timedelta(days=7))
    sink.write(frame(spark, SCHEMA, (1, 5, "D"), (2, 1, "a")), on(0, 1))
    sink.write(frame(spark, SCHEMA, (2, 5, "D")), on(30, 2))
    probe = DeltaProbe(str(tmp_path / "t__deleted"))
    assert [row[:2] for row in sorted_rows(tmp_path / "t__deleted")] == [(2, 5)]
    assert probe.commits(probe.latest() - 1, probe.latest())[0].number == 2


def test_a_refresh_begins_with_its_own_deletes(spark: SparkSession, tmp_path: Path) -> None:
    """What an earlier history deleted says nothing about this one."""
    sink = merge(tmp_path)
    write(spark, sink, 1, (1, 5, "D"), (2, 1, "a"))
    sink.write(frame(spark, SCHEMA, (1, 1, "a"), (2, 5, "D")), batch(2, kind="refresh"))
    write(spark, sink, 3, (1, 2, "b"), (2, 4, "late"))
    assert sorted_rows(tmp_path / "t") == [(1, 2, "b")]


def test_only_a_merge_that_keeps_deleted_keys_takes_two_commits(tmp_path: Path) -> None:
    """It has to be given the same rows again; the others are all or nothing."""
    assert not is_atomic(merge(tmp_path))
    assert is_atomic(merge(tmp_path, keep_deleted=timedelta(0)))
    assert is_atomic(merge(tmp_path, sequence=()))
    assert is_atomic(Delta(str(tmp_path)))
