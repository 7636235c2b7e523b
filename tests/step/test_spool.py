"""Counts on the receipt: read in the pass that writes, whatever the sink makes of the plan."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

import floodmark as fm
from floodmark.errors import SinkFailed, SpoolLost
from floodmark.sources.contract import Reading
from floodmark.step import spool as counting
from floodmark.testing import ListSink, RowsSource

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Observation, SparkSession

    from floodmark.stores.contract import MarkStore

SCHEMA = "id long, v string"


def rows(first: int, last: int) -> list[dict[str, object]]:
    return [{"id": number, "v": "x"} for number in range(first, last)]


@pytest.fixture
def never_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a counter that never answers: a merge has a session of its own."""

    def checked_wait(observation: Observation, wait: Any = counting.wait_for_observation) -> object:  # noqa: ANN401 - a function
        answer = wait(observation)
        assert answer, "waited in vain"
        return answer

    monkeypatch.setattr(counting, "wait_for_observation", checked_wait)


@pytest.mark.usefixtures("never_in_vain")
@pytest.mark.parametrize(
    "sink",
    [
        {"mode": "append"},
        {"mode": "merge", "key": ("id",)},
        {"mode": "merge", "key": ("id",), "sequence": ("id",)},
        {"mode": "replace", "by": ("v",)},
    ],
    ids=["append", "merge", "merge by sequence", "replace"],
)
def test_a_delta_sink_reports_what_was_read_in_every_mode(spark: SparkSession, tmp_path: Path, sink: dict) -> None:
    """Also into an empty table, and where the transform drops most of the rows."""
    given = rows(0, 10)
    job = fm.Job(
        name="counted",
        source=RowsSource(given, SCHEMA),
        transform="select * from source where id % 5 = 0",
        sinks=[fm.sinks.Delta(str(tmp_path / "lake"), **sink)],
    )
    store = fm.stores.open("sqlite:///marks.db", folder=tmp_path)
    first = job.run(spark, store)
    given.extend(rows(10, 30))
    second = job.run(spark, store)
    assert [(r.rows_read, r.rows_written["delta"]) for r in (first, second)] == [(10, 2), (20, 4)]


def test_a_transform_that_reads_its_source_twice_does_not_count_it_twice(spark: SparkSession, tmp_path: Path) -> None:
    """A self-join is one source."""
    job = fm.Job(
        name="counted",
        source=RowsSource(rows(0, 10), SCHEMA),
        transform="select a.id, b.v from source a join source b on a.id = b.id",
        sinks=[sink := ListSink()],
    )
    receipt = job.run(spark, fm.stores.open("sqlite:///marks.db", folder=tmp_path))
    assert (receipt.rows_read, len(sink.rows)) == (10, 10)


def test_a_console_that_shows_a_few_rows_does_not_spoil_the_count(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It takes its rows from the spool."""
    console = fm.sinks.Console(limit=2)
    job = fm.Job("counted", RowsSource(rows(0, 10), SCHEMA), [console])
    receipt = job.run(spark, fm.stores.open("sqlite:///marks.db", folder=tmp_path))
    assert (receipt.rows_read, receipt.rows_written, len(capsys.readouterr().out.splitlines())) == (
        10,
        {"console": 2},
        2,
    )


def test_rows_that_are_counted_on_their_own_leave_no_observation_open(spark: SparkSession) -> None:
    """A merge runs in another session: this one would keep what it was to observe for ever, one for each batch."""
    frame = spark.createDataFrame(rows(0, 3), SCHEMA)
    counter = counting.observe_rows(Reading(frame), frame)
    assert counter.result(was_executed=False).read == 3
    assert counting.wait_for_observation(counter.observation) == {"read": 3, "dead": 0}


def half_written(spark: SparkSession, home: Path) -> tuple[ListSink, ListSink, fm.Job, MarkStore]:
    """A frozen batch that the first sink has and the second has not."""
    first, second = ListSink("first"), ListSink("second", fail_times=1)
    source, store = RowsSource(rows(0, 3), SCHEMA), fm.stores.open("sqlite:///marks.db", folder=home)
    job = fm.Job("frozen", source, [first, second], lambda found: found.where("id > 0"), spool=str(home / "spool"))
    with pytest.raises(SinkFailed):
        job.run(spark, store)
    return first, second, job, store


def test_spool_lost(spark: SparkSession, tmp_path: Path) -> None:
    """The spool is not there: the second sink would get what the source holds now."""
    first, second, job, store = half_written(spark, tmp_path)
    shutil.rmtree(tmp_path / "spool")
    with pytest.raises(SpoolLost) as stop:
        job.run(spark, store)
    assert (stop.value.number, stop.value.confirmed, second.rows) == (1, ("first",), [])
    job.run(spark, store, finish=True)
    assert (len(first.rows), len(second.rows)) == (2, 2)


def test_a_page_that_was_altered_on_the_disk_never_reaches_a_sink(spark: SparkSession, tmp_path: Path) -> None:
    """Reading compares the checksum of every page; from then on the spool counts as lost."""
    _, second, job, store = half_written(spark, tmp_path)
    part = next(file for file in tmp_path.glob("spool/frozen/*/part-*.parquet") if b"x" in file.read_bytes()[:200])
    for file in part.parent.glob(".part-*.crc"):
        file.unlink()  # as on an object store: only the page's own checksum is left
    content = bytearray(part.read_bytes())
    content[content.index(b"x")] ^= 1
    part.write_bytes(content)
    with pytest.raises(SinkFailed):
        job.run(spark, store)
    with pytest.raises(SpoolLost):
        job.run(spark, store)
    assert second.rows == []


def test_a_folder_whose_name_looks_like_a_pattern_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """A project may lie in `orders [2]`: to Spark's reader that would be `orders 2`."""
    spool = counting.Spool(str(tmp_path / "orders [2]{a,b}" / "1-attempt"))
    spool.write(spark.range(3))
    spool.finish(counting.RowCounts(3))
    assert sorted(row.id for row in spool.read(spark).collect()) == [0, 1, 2]
