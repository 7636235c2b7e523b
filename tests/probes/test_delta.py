"""Looking at a Delta table through its log: made here by the native writer, so no JVM starts."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from floodmark.errors import DeltaTableMissing, SourceUnreadable
from floodmark.locations import local_path, native_uri
from floodmark.probes.delta import Commit, DeltaProbe, note
from floodmark.probes.rows import open_delta

ROWS = pa.table({"id": [1, 2, 3]})
LEDGER = "floodmark.prod.orders.lake"


def made(folder: Path, **configuration: str) -> DeltaProbe:
    write_deltalake(folder, ROWS, configuration=configuration)
    probe = DeltaProbe(str(folder))
    probe.refresh()
    return probe


def test_a_folder_without_a_log_is_no_table(tmp_path: Path) -> None:
    """Not there is an answer, and another one than could not look."""
    assert DeltaProbe(str(tmp_path)).refresh() is False
    assert DeltaProbe(str(tmp_path / "missing")).refresh() is False


def test_a_log_that_cannot_be_parsed_is_not_taken_for_a_missing_table(tmp_path: Path) -> None:
    """An unreadable table must never look like an empty one."""
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "00000000000000000000.json").write_text("{ not json")
    with pytest.raises(SourceUnreadable):
        DeltaProbe(str(tmp_path)).refresh()


def test_a_question_about_a_missing_table_says_that_it_is_missing(tmp_path: Path) -> None:
    """Asking on without having looked is answered in words."""
    with pytest.raises(SourceUnreadable) as caught:
        DeltaProbe(str(tmp_path)).latest()
    assert caught.value.reason == "there is no such table"


def test_the_hint_about_a_missing_delta_table_is_about_its_path(tmp_path: Path) -> None:
    """It has no schema like public.orders, and a job of the project may have yet to fill it."""
    with pytest.raises(DeltaTableMissing) as caught:
        open_delta(str(tmp_path))
    assert caught.value.place == str(tmp_path)
    assert caught.value.hint.startswith("fix `path:`, or run the job first that fills it")


def test_a_refresh_sees_the_next_version(tmp_path: Path) -> None:
    """The handle is kept and brought up to date."""
    probe = made(tmp_path)
    write_deltalake(tmp_path, ROWS, mode="append")
    assert (probe.latest(), probe.refresh(), probe.latest(), probe.rows()) == (0, True, 1, 6)


def test_a_log_that_has_not_grown_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages over hundreds of tables look every few seconds, and reading one log takes milliseconds."""
    probe = made(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "update_incremental", _refuse)
        assert (probe.refresh(), probe.latest()) == (True, 0)
        write_deltalake(tmp_path, ROWS, mode="append")
        with pytest.raises(SourceUnreadable):
            probe.refresh()
    assert (probe.refresh(), probe.latest()) == (True, 1)


def test_a_log_whose_folder_did_not_change_is_not_even_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a month has hundreds of thousands of names; a folder that has just changed is listed again."""
    probe = made(tmp_path)
    listed: list[object] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: [listed.append(path), scandir(path)][1])
    assert ([probe.refresh() for _ in range(3)], len(listed)) == ([True] * 3, 3)
    long_ago = time.time() - 60
    os.utime(tmp_path / "_delta_log", (long_ago, long_ago))
    assert ([probe.refresh() for _ in range(3)], len(listed)) == ([True] * 3, 4)
    write_deltalake(tmp_path, ROWS, mode="append")
    assert (probe.refresh(), probe.latest(), len(listed)) == (True, 1, 5)


def _refuse(_table: DeltaTable) -> None:
    raise OSError("the log was read")


def test_a_commit_behind_a_missing_one_is_met(tmp_path: Path) -> None:
    """The next commit alone does not tell whether the log has grown: one of a damaged log may be lost."""
    probe = made(tmp_path)
    for _ in range(2):
        write_deltalake(tmp_path, ROWS, mode="append")
    (tmp_path / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(SourceUnreadable):
        probe.refresh()


def test_a_table_that_was_made_anew_is_seen_as_another_one(tmp_path: Path) -> None:
    """A handle that is only updated would go on showing the table that is gone."""
    probe = made(tmp_path / "t")
    before = probe.table_id()
    shutil.rmtree(tmp_path / "t")
    write_deltalake(tmp_path / "t", ROWS)
    probe.refresh()
    assert probe.table_id() != before


def test_a_deleted_table_is_seen_as_gone(tmp_path: Path) -> None:
    """The kept handle does not hide that the folder went away."""
    probe = made(tmp_path / "t")
    shutil.rmtree(tmp_path / "t")
    assert probe.refresh() is False


def test_the_number_of_a_ledger_comes_from_the_tables_transactions(tmp_path: Path) -> None:
    """A ledger nobody wrote for has no number."""
    made(tmp_path)
    properties = CommitProperties(app_transactions=[Transaction(LEDGER, 7)])
    write_deltalake(tmp_path, ROWS, mode="append", commit_properties=properties)
    probe = DeltaProbe(str(tmp_path))
    assert (probe.recorded(LEDGER), probe.recorded("other")) == (7, None)


def test_the_commit_of_a_batch_is_found_by_its_note(tmp_path: Path) -> None:
    """Ledger, number and digest stand in the commit's user metadata, wherever in the log it is."""
    made(tmp_path)
    text = note(LEDGER, 7, "abc", job="orders")
    write_deltalake(
        tmp_path, ROWS, mode="append", commit_properties=CommitProperties(custom_metadata={"userMetadata": text})
    )
    [write_deltalake(tmp_path, ROWS, mode="append") for _ in range(8)]
    probe = DeltaProbe(str(tmp_path))
    found = probe.commit_of(LEDGER, 7)
    assert found is not None
    assert (found.version, found.digest) == (1, "abc")
    assert probe.commit_of(LEDGER, 6) is None


def test_commits_come_oldest_first_and_without_the_lower_bound(tmp_path: Path) -> None:
    """The bound is what was read already."""
    made(tmp_path)
    write_deltalake(tmp_path, ROWS, mode="append")
    write_deltalake(tmp_path, ROWS, mode="append")
    assert [commit.version for commit in DeltaProbe(str(tmp_path)).commits(0, 2)] == [1, 2]


def test_a_cleaned_log_names_its_oldest_version(tmp_path: Path) -> None:
    """Versions whose commits are gone are missing at the front."""
    made(tmp_path)
    write_deltalake(tmp_path, ROWS, mode="append")
    write_deltalake(tmp_path, ROWS, mode="append")
    DeltaTable(tmp_path).create_checkpoint()
    (tmp_path / "_delta_log" / "00000000000000000000.json").unlink()
    (tmp_path / "_delta_log" / "00000000000000000001.json").unlink()
    probe = DeltaProbe(str(tmp_path))
    assert (probe.oldest(), [commit.version for commit in probe.commits(0, 2)]) == (2, [2])


def test_the_change_feed_is_on_where_the_property_says_so(tmp_path: Path) -> None:
    """The property is read as it is written."""
    on = made(tmp_path / "on", **{"delta.enableChangeDataFeed": "true"})
    assert (on.feed_is_on(), made(tmp_path / "off").feed_is_on()) == (True, False)


def test_an_emptied_table_holds_no_rows(tmp_path: Path) -> None:
    """Counts come from the files that the newest version still has."""
    probe = made(tmp_path)
    held = probe.holds_rows()
    DeltaTable(tmp_path).delete()
    probe.refresh()
    assert (held, probe.holds_rows()) == (True, False)


def test_notes_of_other_writers_are_not_ours() -> None:
    """User metadata is free text: whatever it is, it does not stop a look."""
    told = ["free text", '"a string"', "[1]", json.dumps({"floodmark": "x"}), None]
    assert [Commit.parse({"version": 1, "userMetadata": text}).ledger for text in told] == [None] * 5


@pytest.mark.parametrize(
    ("operation", "metrics", "changes", "rewrites"),
    [
        ("WRITE", {"numOutputRows": 2}, True, False),
        ("WRITE", {"numOutputRows": 0}, False, False),
        ("WRITE", {"numOutputRows": 1, "numRemovedFiles": 1}, True, True),
        ("WRITE", {"numOutputRows": 9, "numCopiedRows": 7, "numDeletedRows": 3}, True, True),
        ("OPTIMIZE", {"numRemovedFiles": 4, "numAddedFiles": 1}, False, False),
        ("VACUUM END", {"numDeletedFiles": 3}, False, False),
        ("SET TBLPROPERTIES", {}, False, False),
        ("DELETE", {"numDeletedRows": 0}, False, False),
        ("DELETE", {"numDeletedRows": 1, "numRemovedFiles": 1}, True, True),
        ("DELETE", {"numRemovedFiles": 1}, True, True),
        ("UPDATE", {"numUpdatedRows": 1, "numCopiedRows": 3}, True, True),
        ("MERGE", {"numTargetRowsInserted": 2, "numTargetRowsUpdated": 0, "numTargetRowsDeleted": 0}, True, False),
        ("MERGE", {"numTargetRowsInserted": 0, "numTargetRowsUpdated": 0, "numTargetRowsDeleted": 0}, False, False),
        ("MERGE", {"numTargetRowsInserted": 0, "numTargetRowsUpdated": 1, "numTargetRowsDeleted": 0}, True, True),
        ("RESTORE", {"numRestoredFiles": 1}, True, True),
        ("SOMETHING NEW", {}, True, False),
        ("CREATE TABLE", {}, False, False),
    ],
)
def test_the_log_tells_what_a_commit_did(
    operation: str, metrics: dict[str, int], changes: bool, rewrites: bool
) -> None:
    """Maintenance is not new data; an operation nobody knows is looked at rather than passed over."""
    commit = Commit(1, operation, metrics=metrics)
    assert (commit.changes_rows, commit.rewrites) == (changes, rewrites)


@pytest.mark.parametrize(
    ("metrics", "changes"), [({}, True), ({"numOutputRows": 2}, True), ({"numOutputRows": 0}, False)]
)
def test_a_table_that_deltalake_made_may_have_rows_from_the_start(metrics: dict[str, int], changes: bool) -> None:
    """Spark's CREATE TABLE never has: with rows, it goes by another name there."""
    commit = Commit(0, "CREATE TABLE", metrics=metrics, engine="delta-rs:py-1.6.6")
    assert (commit.changes_rows, commit.rewrites) == (changes, False)


@pytest.mark.parametrize(
    ("where", "local", "native"),
    [
        ("file:/lake/t", "/lake/t", "/lake/t"),
        ("file:///lake/a%20b", "/lake/a b", "/lake/a b"),
        ("/lake/t", "/lake/t", "/lake/t"),
        ("s3a://lake/t", None, "s3://lake/t"),
        ("gs://lake/t", None, "gs://lake/t"),
    ],
)
def test_a_place_is_local_or_has_its_drivers_name(where: str, local: str | None, native: str) -> None:
    """Hadoop and native drivers call the same store differently."""
    assert (local_path(where), native_uri(where)) == (Path(local) if local else None, native)


def test_the_files_that_commits_added_are_told_by_their_log(tmp_path: Path) -> None:
    """With partitions and version; what compaction moves is no addition, and a delete is a rewrite."""
    folder = tmp_path / "a table é+"
    write_deltalake(folder, pa.table({"id": [1], "day": ["a b"]}), partition_by=["day"])
    write_deltalake(folder, pa.table({"id": [2], "day": ["a b"]}), mode="append")
    DeltaTable(folder).optimize.compact()
    DeltaTable(folder).delete("id = 2")
    first, second, compaction, delete = DeltaProbe(str(folder)).file_actions(0, 3)
    [file] = second.added
    assert (file.partition, file.version, file.name in file.path) == ({"day": "a b"}, 1, True)
    assert (len(first.added), compaction.added, compaction.rewrites) == (1, (), False)
    assert [each.rewrites for each in (first, second, delete)] == [False, False, True]
    assert file.timestamp_ms > 0


def test_a_commit_whose_log_was_cleaned_away_has_no_files_to_tell(tmp_path: Path) -> None:
    """It must not look like a commit that added none."""
    probe = made(tmp_path / "t")
    (tmp_path / "t" / "_delta_log" / "00000000000000000000.json").unlink()
    with pytest.raises(FileNotFoundError):
        probe.file_actions(0, 0)
