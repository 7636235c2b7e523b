"""Change feeds and snapshots as the events of a table with history."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark.errors import SnapshotRefused
from floodmark.sinks import Scd1, Scd2
from tests.sinks.batches import batch, frame, on_disk
from tests.sinks.scd.histories import version_lines
from tests.tables import rows_of, sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
FEED = "k string, v string, note string, _change_type string, _commit_version long, _commit_timestamp timestamp"
MONDAY, TUESDAY = datetime(2024, 5, 6, tzinfo=timezone.utc), datetime(2024, 5, 7, tzinfo=timezone.utc)
SNAPSHOT = "k string, v string, note string, at int"


def test_a_change_feed_gives_versions_by_its_commits(spark: SparkSession, tmp_path: Path) -> None:
    """A key that was exchanged in one commit changed; one whose key column was changed is gone under its old name."""
    sink = Scd2(str(tmp_path), key=("k",), changes="feed", track=("v",))
    sink.write(
        frame(
            spark,
            FEED,
            ("x", "a", None, "insert", 1, MONDAY),
            ("y", "a", None, "insert", 1, MONDAY),
            ("z", "a", None, "insert", 1, MONDAY),
            ("x", "a", None, "delete", 2, TUESDAY),
            ("x", "b", None, "insert", 2, TUESDAY),
            ("y", "a", None, "update_preimage", 2, TUESDAY),
            ("y", "c", None, "update_postimage", 2, TUESDAY),
            ("z", "a", None, "update_preimage", 2, TUESDAY),
            ("zz", "a", None, "update_postimage", 2, TUESDAY),
        ),
        batch(1),
    )
    found = sorted(rows_of(tmp_path), key=lambda row: (row.k, row.committed_version))
    assert [(row.k, row.v, row.committed_version, row.is_current) for row in found] == [
        ("x", "a", 1, False),
        ("x", "b", 2, True),
        ("y", "a", 1, False),
        ("y", "c", 2, True),
        ("z", "a", 1, False),
        ("zz", "a", 2, True),
    ]


def test_absence_from_a_snapshot_is_a_delete(spark: SparkSession, tmp_path: Path) -> None:
    """Two snapshots in one batch, then a third: what is unchanged is no event, what returns is a new version."""
    sink = Scd2(str(tmp_path / "t"), key=("k",), sequence=("at",), changes="snapshot")
    first = [("x", "a", None, 1), ("y", "a", None, 1), ("x", "a", None, 2), ("z", "a", None, 2)]
    sink.write(frame(spark, SNAPSHOT, *first), batch(1))
    assert version_lines(tmp_path) == {"x": "a[1,)", "y": "a[1,2)", "z": "a[2,)"}
    came = sink.write(frame(spark, SNAPSHOT, ("x", "b", None, 3), ("y", "a", None, 3), ("z", "a", None, 3)), batch(2))
    assert came == 2
    assert version_lines(tmp_path) == {"x": "a[1,3) b[3,)", "y": "a[1,2) a[3,)", "z": "a[2,)"}
    with pytest.raises(SnapshotRefused, match="it is of 1, and the table has one of 3"):
        sink.write(frame(spark, SNAPSHOT, ("x", "a", None, 1)), batch(3))


def test_an_empty_snapshot_is_refused_unless_it_is_allowed(spark: SparkSession, tmp_path: Path) -> None:
    """It would delete everything, and mostly means that something else is wrong."""
    rows = frame(spark, "k string, v string", ("x", "a"))
    sink = Scd1(str(tmp_path), key=("k",), changes="snapshot")
    sink.write(rows, batch(1))
    before = on_disk(tmp_path)
    with pytest.raises(SnapshotRefused, match="it is empty"):
        sink.write(rows.limit(0), batch(2))
    assert on_disk(tmp_path) == before
    Scd1(str(tmp_path), key=("k",), changes="snapshot", allow_empty=True).write(rows.limit(0), batch(2))
    assert sorted_rows(tmp_path) == []
