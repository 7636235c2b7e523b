"""The spool is what was finished, or it does not stand for the batch: parts, counts, order on the disk, and removal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from floodmark.errors import DiskNotShared, SpoolLost
from floodmark.spark.faults import fault_text
from floodmark.step import Step
from floodmark.step.intents import has_rows, next_attempt, spool_flaw, spool_folder
from floodmark.step.spool import RowCounts, Spool, remove_spools
from floodmark.step.work import RunRequest, Work
from floodmark.stores.memory import MemoryMarkStore
from floodmark.stores.record import Intent, JobRecord
from floodmark.testing.laws.records import ME
from tests.disk import note_disk
from tests.sinks.batches import no_session

HAVE_IT, NONE_HAS_IT = ("a",), ()


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """Two finished parts of ten rows each."""
    folder = tmp_path / "spool" / "orders" / "3-a1"
    folder.mkdir(parents=True)
    for part in (0, 1):
        pq.write_table(pa.table({"id": list(range(part * 10, part * 10 + 10))}), folder / f"part-{part}.parquet")
    finished = Spool(str(folder))
    finished.finish(RowCounts(read=20))
    return finished


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work("orders", (), (), spool_folder=str(tmp_path / "spool"))


def intent_of(spool: Spool) -> Intent:
    return Intent(3, "batch", {}, datetime(2024, 5, 1, tzinfo=timezone.utc), "a1", spool.folder, {})


def empty(path: Path) -> None:
    path.write_bytes(b"")


def alter(path: Path) -> None:
    """Another footer of the same length: as many bytes, other statistics."""
    pq.write_table(pa.table({"id": list(range(20, 30))}), path)


def remove_all(path: Path) -> None:
    remove_spools(str(path.parent.parent), 99)


DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a part is gone": ("part-1.parquet", Path.unlink),
    "a part is empty": ("part-1.parquet", empty),
    "a part is another": ("part-1.parquet", alter),
    "a part was added": ("part-2.parquet", alter),
    "the counts are gone": ("_floodmark.json", Path.unlink),
    "the counts are empty": ("_floodmark.json", empty),
    "the counts are half": ("_floodmark.json", lambda path: path.write_text(path.read_text()[:40])),
    "all of it is gone, as on another host": ("_floodmark.json", remove_all),
}


def test_a_finished_spool_is_kept_by_the_next_attempt(spool: Spool, work: Work) -> None:
    """It stands for the batch, whoever has it by then."""
    assert spool.counts() == RowCounts(read=20)
    assert has_rows(work, intent_of(spool), HAVE_IT, RunRequest(), spool_flaw(intent_of(spool)))
    again = next_attempt(work, intent_of(spool), spool.flaw())
    assert (again.spool, again.attempt != "a1") == (spool.folder, True)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_spool_that_is_lost_while_a_sink_has_the_batch_is_a_decision(spool: Spool, work: Work, damage: str) -> None:
    """Exit 5 with the place, what is wrong with it and the sinks that have the batch; `--finish` reads anew."""
    file, act = DAMAGES[damage]
    act(Path(spool.folder) / file)
    assert spool.counts() is None
    with pytest.raises(SpoolLost) as caught:
        has_rows(work, intent_of(spool), HAVE_IT, RunRequest(), spool_flaw(intent_of(spool)))
    assert (caught.value.spool, caught.value.confirmed, caught.value.exit_code) == (spool.folder, ("a",), 5)
    assert has_rows(work, intent_of(spool), HAVE_IT, RunRequest(finish=True), spool_flaw(intent_of(spool)))
    anew = next_attempt(work, intent_of(spool), spool.flaw())
    assert (anew.number, anew.spool) == (3, spool_folder(work, 3, anew.attempt))


@pytest.mark.parametrize(
    ("damage", "is_finished_here"),
    [
        ("the counts are gone", True),
        ("all of it is gone, as on another host", False),
        ("a part is empty", False),
        ("the counts are empty", False),
    ],
)
def test_a_spool_that_is_lost_while_no_sink_has_the_batch(
    spool: Spool, work: Work, damage: str, *, is_finished_here: bool
) -> None:
    """Never finished here: it is made anew. One that was, or is gone, may be in a paused run's hands: it is dropped."""
    file, act = DAMAGES[damage]
    act(Path(spool.folder) / file)
    assert has_rows(work, intent_of(spool), NONE_HAS_IT, RunRequest(), spool_flaw(intent_of(spool))) is is_finished_here


def test_a_batch_whose_spool_lies_on_another_host_is_dropped_while_no_sink_has_it(work: Work) -> None:
    """Whoever began it may be paused there, with rows that nobody here can see."""
    here = spool_folder(work, 3, "a1")
    Spool(here).begin()
    elsewhere = f"{here.rpartition('@')[0]}@other-host"
    kept = [
        has_rows(work, intent_of(Spool(each)), NONE_HAS_IT, RunRequest(), spool_flaw(intent_of(Spool(each))))
        for each in (here, elsewhere)
    ]
    assert kept == [True, False]


def test_a_repair_whose_rows_are_gone_is_dropped(spool: Spool, work: Work) -> None:
    """They were nowhere else; `--finish` has nothing to read them from."""
    remove_all(Path(spool.folder) / "_floodmark.json")
    repair = replace(intent_of(spool), kind="repair")
    assert not has_rows(work, repair, NONE_HAS_IT, RunRequest(), spool_flaw(repair))
    with pytest.raises(SpoolLost):
        has_rows(work, repair, HAVE_IT, RunRequest(finish=True), spool_flaw(repair))


def test_what_was_frozen_beside_the_batch_belongs_to_it(spool: Spool) -> None:
    """Without the records that failed, its dead letters would be forgotten."""
    outcomes = Spool(f"{spool.folder}-outcomes")
    Path(outcomes.folder).mkdir()
    pq.write_table(pa.table({"id": [1]}), f"{outcomes.folder}/part-0.parquet")
    outcomes.finish(RowCounts(read=0, dead=1))
    spool.finish(RowCounts(read=20))
    assert spool.flaw() is None
    outcomes.remove()
    assert spool.flaw() == "it is not there"


def test_a_spool_that_a_page_of_failed_is_not_finished_any_more(spool: Spool) -> None:
    """The next run decides as if it had never been."""
    spool.condemn()
    spool.condemn()
    assert (spool.counts(), spool.flaw()) == (None, "it holds no _floodmark.json: it was not finished")


@pytest.mark.parametrize(("attempt", "is_kept"), [("a1", False), ("a2", True)])
def test_only_the_attempt_that_has_the_batch_gives_its_spool_up(
    spool: Spool, work: Work, attempt: str, *, is_kept: bool
) -> None:
    """A run that was overtaken meets a page that it cannot read: to its successor the spool may be all there is."""
    store, intent = MemoryMarkStore(), intent_of(spool)
    lease = store.take_lease("orders", ME, over=None)
    store.intend(JobRecord("orders", intent=replace(intent, attempt=attempt)), expected=0, lease=lease)
    damage = RuntimeError(f"CRC checksum verification failed in {spool.folder}/part-0.parquet")
    Step(store, no_session, work).error_for(damage, "lake", intent, cast("Any", None))
    assert spool.has_counts() is is_kept


def test_a_recovery_looks_at_the_parts_of_a_spool_once(
    spool: Spool, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look reads the foot of every part; whoever reads its rows looks once more."""
    looks: list[str] = []
    found = Spool.flaw
    monkeypatch.setattr(Spool, "flaw", lambda each: [looks.append(each.folder), found(each)][1])
    record = JobRecord("orders", 2, intent=replace(intent_of(spool), fingerprints=work.fingerprints()))
    again = Step(MemoryMarkStore(), no_session, work).recover(record)
    assert (again.intent.spool if again else None, looks) == (spool.folder, [spool.folder])


def test_the_place_of_a_spool_does_not_depend_on_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run starts elsewhere, and finds it or misses it by its whole path."""
    monkeypatch.chdir(tmp_path)
    here = Work("orders", (), (), spool_folder="state/spool")
    assert spool_folder(here, 3, "a1").startswith(str(tmp_path / "state/spool/orders/3-a1@"))
    assert spool_folder(replace(here, spool_folder="s3://lake/spool"), 3, "a1") == "s3://lake/spool/orders/3-a1"


def test_a_committed_batch_removes_its_own_spools_and_older_ones(tmp_path: Path) -> None:
    """One that went on after a pause leaves its successor's alone."""
    for label in ("2-old", "3-a1", "3-a1-outcomes", "3-a2", "4-next", "10-later"):
        (tmp_path / label).mkdir()
    remove_spools(str(tmp_path), 3)
    remove_spools(str(tmp_path / "never-there"), 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["10-later", "4-next"]


def test_parts_are_on_the_disk_before_the_spool_is_called_finished(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts and their folder; then the counts under another name, the rename, and the folder once more."""
    (Path(spool.folder) / "_floodmark.json").unlink()
    acts = note_disk(
        monkeypatch, "replace", lambda path: path.name.split(".json.")[0], lambda _, to: f"rename to {to.name}"
    )
    spool.finish(RowCounts(read=20))
    assert sorted(acts[:2]) == ["sync part-0.parquet", "sync part-1.parquet"]
    assert acts[2:] == ["sync 3-a1", "sync _floodmark", "rename to _floodmark.json", "sync 3-a1", "sync orders"]


@pytest.mark.parametrize("sink", ["spool", "files"])
def test_a_task_that_does_not_see_the_driver_s_disk_stops_the_run_by_name(work: Work, spool: Spool, sink: str) -> None:
    """Executors elsewhere: the host and the folder are told, and what to do, for sinks and spool alike."""
    step: Step = Step(MemoryMarkStore(), no_session, work)
    fault = RuntimeError(f"Job aborted: {fault_text('disk', 'node7 does not see /data/out')} at org.apache")
    error = step.error_for(fault, sink, intent_of(spool), cast("Any", None))
    assert isinstance(error, DiskNotShared)
    assert (error.sink, "node7 does not see /data/out" in error.message) == (sink, True)


def test_rows_of_a_spool_are_those_of_its_parts(spool: Spool) -> None:
    """Before it is finished too, and without reading a page."""
    assert spool.rows() == 20
    spool.condemn()
    assert spool.rows() == 20
