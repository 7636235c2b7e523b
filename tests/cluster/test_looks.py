"""Tables, spools and files in a bucket, looked at without a JVM through the settings that Spark would get."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from floodmark.errors import SourceUnreadable
from floodmark.locations import arrow_place
from floodmark.object_stores import SETTINGS
from floodmark.probes.delta import DeltaProbe, missing_files, state_at
from floodmark.probes.files import list_files
from floodmark.step.spool import RowCounts, Spool, remove_spools
from tests.cluster.objects import SECRET, Bucket

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True)
def spark_settings(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a project file sets them; forgotten afterwards."""
    monkeypatch.setattr(SETTINGS, "_known", {})
    SETTINGS.remember(
        {
            "hadoop.fs.s3a.endpoint": bucket.endpoint,
            "hadoop.fs.s3a.endpoint.region": "us-east-1",
            "hadoop.fs.s3a.path.style.access": "true",
            "hadoop.fs.s3a.access.key": "ann",
            "hadoop.fs.s3a.secret.key": SECRET,
        }
    )


def write(bucket: Bucket, table: str, ids: list[int], **options: str) -> None:
    rows = pa.table({"id": ids})
    write_deltalake(f"s3://lake/{table}", rows, storage_options=bucket.access.delta_options(), **options)  # type: ignore[call-overload]


def test_a_table_in_a_bucket_is_looked_at(bucket: Bucket) -> None:
    """One that is not there is no error; a later version is seen by the same probe."""
    probe = DeltaProbe("s3a://lake/looks/orders")
    before = probe.refresh()
    write(bucket, "looks/orders", [1, 2, 3])
    is_there, first = probe.refresh(), (probe.latest(), probe.rows(), probe.columns())
    write(bucket, "looks/orders", [4], mode="overwrite")
    probe.refresh()
    assert (before, is_there, first) == (False, True, (0, 3, {"id": "long"}))
    assert (probe.latest(), probe.rows()) == (1, 1)


def test_an_earlier_version_is_looked_at_and_its_files_are_looked_for(bucket: Bucket) -> None:
    """As before a table is read as of a version, or rolled back."""
    write(bucket, "looks/past", [1, 2])
    write(bucket, "looks/past", [3], mode="overwrite")
    state = state_at("s3a://lake/looks/past", 0)
    assert state is not None
    [file] = state.files
    assert missing_files("s3a://lake/looks/past", 0, 1) == ()
    bucket.system().delete_file(f"lake/looks/past/{file}")
    assert missing_files("s3a://lake/looks/past", 0, 1) == (file,)


def test_a_spool_in_a_bucket_is_finished_known_and_removed(bucket: Bucket) -> None:
    """Its counts come last: without them it was never finished."""
    spool = Spool("s3a://lake/looks/spool/7-attempt")
    system, path = arrow_place(spool.folder)
    pq.write_table(pa.table({"id": [1, 2]}), f"{path}/part-0.parquet", filesystem=system)
    unfinished = spool.flaw()
    spool.finish(RowCounts(2))
    assert unfinished == "it holds no _floodmark.json: it was not finished"
    assert (spool.counts(), spool.rows()) == (RowCounts(2), 2)
    remove_spools("s3a://lake/looks/spool", 7)
    assert bucket.names("looks/spool") == []


def test_a_spool_that_lost_a_part_is_not_taken_for_the_batch(bucket: Bucket) -> None:
    """Here as on a disk."""
    spool = Spool("s3a://lake/looks/lost/7-attempt")
    system, path = arrow_place(spool.folder)
    pq.write_table(pa.table({"id": [1, 2]}), f"{path}/part-0.parquet", filesystem=system)
    spool.finish(RowCounts(2))
    system.delete_file(f"{path}/part-0.parquet")
    assert spool.counts() is None
    assert spool.flaw() == "part-0.parquet in it is missing"


def test_files_in_a_bucket_are_listed_as_marks_name_them(bucket: Bucket) -> None:
    """By the scheme that the project file has, whatever the reader calls it."""
    with bucket.system().open_output_stream("lake/looks/in/day 1.json") as stream:
        stream.write(b"{}")
    assert [(seen.path, seen.size) for seen in list_files("s3a://lake/looks/in")] == [
        ("s3a://lake/looks/in/day 1.json", 2)
    ]


def test_of_two_writers_of_one_version_the_second_is_refused(bucket: Bucket) -> None:
    """By the store itself, which takes the name of a commit once: both had seen the same version."""
    write(bucket, "looks/raced", [1])
    options = bucket.access.delta_options()
    first, second = (DeltaTable("s3://lake/looks/raced", storage_options=options) for _ in range(2))
    first.delete("id = 1")
    with pytest.raises(DeltaError):
        second.delete("id = 1")
    assert DeltaProbe("s3a://lake/looks/raced").latest() == 1


def test_a_store_that_cannot_be_reached_is_no_empty_store() -> None:
    """And says so without a secret."""
    SETTINGS.remember({"hadoop.fs.s3a.endpoint": "http://127.0.0.1:9"})
    with pytest.raises(SourceUnreadable) as refused:
        DeltaProbe("s3a://lake/looks/orders").refresh()
    assert SECRET not in str(refused.value)
