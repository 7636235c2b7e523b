"""The files sink between attempts: who holds the number publishes, swaps and removes, and nobody touches another's."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.sql.types import StructType

from floodmark.errors import Overtaken, SinkDisagrees, SinkUnreachable
from floodmark.machine import file_lock
from floodmark.sinks import Files, files
from floodmark.sinks.contract import Recorded
from floodmark.spark.faults import FolderMarker, fault_in
from tests.disk import note_disk
from tests.sinks.batches import batch, no_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LEDGER = "floodmark.prod.orders.files"


@dataclass(frozen=True)
class Lines:
    """Rows that are written without Spark; `meanwhile` happens between the first part and the second."""

    ids: tuple[int, ...]
    meanwhile: Callable[[], object] = lambda: None
    columns: tuple[str, ...] = ()
    schema: StructType = field(default_factory=StructType)
    sparkSession: object = field(  # noqa: N815 - Spark's name for it
        default_factory=lambda: SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: "local[2]"))
    )

    def drop(self, *names: str) -> Lines:
        return self

    def select(self, *columns: object) -> Lines:
        return self


def rows(*ids: int, meanwhile: Callable[[], object] = lambda: None) -> DataFrame:
    return cast("DataFrame", Lines(ids, meanwhile))


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two parts, each made with its folders, as Spark's tasks do."""

    def write_lines(lines: Lines, folder: Path, file_format: str) -> None:
        half = len(lines.ids) // 2
        for part, ids in enumerate((lines.ids[:half], lines.ids[half:])):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"part-{part}.json").write_text("".join(f'{{"id": {each}}}\n' for each in ids))
            if part == 0:
                lines.meanwhile()

    monkeypatch.setattr(files, "write_files", write_lines)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "out"


def ids_in(target: Path) -> list[int]:
    lines = [line for file in target.glob("batch=*/part-*") for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["id"] for line in lines)


def folders(target: Path) -> list[str]:
    return sorted(path.name for path in target.iterdir())


def test_a_writer_that_goes_on_removes_nothing_of_its_successor(target: Path) -> None:
    """It was paused in batch 2, which another attempt finished; batch 3 is being written when it goes on."""
    paused, second, third = Files(str(target)), Files(str(target)), Files(str(target))
    written: dict[str, int | None] = {}

    def goes_on() -> None:
        with pytest.raises(Overtaken):
            paused.write(rows(1, 2), batch(1, attempt="a1"))

    second.write(rows(1, 2), batch(1, attempt="a2"))
    second.write(rows(3, 4), batch(2))
    written["third"] = third.write(rows(5, 6, 7, 8, meanwhile=goes_on), batch(3))
    assert (written, ids_in(target)) == ({"third": 4}, [1, 2, 3, 4, 5, 6, 7, 8])


def test_an_attempt_whose_batch_was_finished_by_another_reports_that_one(target: Path) -> None:
    """Its own files were removed while it was paused; what it wrote after that is no batch."""
    sink = Files(str(target))
    other = lambda: Files(str(target)).write(rows(1, 2, 3, 4), batch(1, attempt="a2"))  # noqa: E731
    assert sink.write(rows(1, 2, 3, 4, meanwhile=other), batch(1, attempt="a1")) == 4
    assert (ids_in(target), folders(target)) == ([1, 2, 3, 4], ["batch=1"])


@pytest.mark.parametrize("kind", ["batch", "refresh"])
def test_an_attempt_whose_number_was_fenced_meanwhile_is_overtaken(target: Path, kind: Any) -> None:  # noqa: ANN401
    """Also the first one, whose folder was not there, and a refresh, which asks for the number before it swaps."""
    sink = Files(str(target))
    fence = lambda: Files(str(target)).fence(LEDGER, 1, no_session)  # noqa: E731
    with pytest.raises(Overtaken):
        sink.write(rows(1, 2, meanwhile=fence), batch(1, kind=kind))
    assert sink.recorded(LEDGER, no_session) == Recorded(1, None, is_fence=True)
    assert (ids_in(target), folders(target)) == ([], ["batch=1"])


def test_a_refresh_that_goes_on_does_not_swap_its_old_folder_back(target: Path) -> None:
    """Another run finished it and wrote the next batch: those rows stay."""

    def others() -> None:
        Files(str(target)).write(rows(1, 2), batch(2, kind="refresh", attempt="a2"))
        Files(str(target)).write(rows(3, 4), batch(3))

    Files(str(target)).write(rows(1, 2), batch(1))
    with pytest.raises(Overtaken):
        Files(str(target)).write(rows(1, 2, meanwhile=others), batch(2, kind="refresh", attempt="a1"))
    assert (ids_in(target), folders(target)) == ([1, 2, 3, 4], ["batch=2", "batch=3"])


def test_files_that_vanish_while_they_are_written_fail_the_batch(target: Path) -> None:
    """A folder that Spark made again holds the rows of its last tasks only."""
    sink = Files(str(target))
    with pytest.raises(FileNotFoundError):
        sink.write(rows(1, 2, meanwhile=lambda: shutil.rmtree(target / "_floodmark")), batch(1))
    assert (sink.recorded(LEDGER, no_session), ids_in(target)) == (None, [])


def test_the_same_number_with_another_digest_is_refused(target: Path) -> None:
    """The number stands for other rows, and nothing is written."""
    sink = Files(str(target))
    sink.write(rows(1), batch(1, digest="x"))
    with pytest.raises(SinkDisagrees):
        sink.write(rows(2), batch(1, digest="y"))
    assert (ids_in(target), folders(target)) == ([1], ["batch=1"])


def test_what_a_higher_number_is_writing_outlives_a_publication_and_a_swap(target: Path) -> None:
    """Only what can never be published any more is removed: leftovers of this number and lower ones."""
    work = target / "_floodmark"
    for label in ("1-dead-a", "2-dead-b", "9-alive-c"):
        (work / label).mkdir(parents=True)
    Files(str(target)).write(rows(1), batch(1))
    after_publication = folders(work)
    Files(str(target)).write(rows(1), batch(2, kind="refresh"))
    assert (after_publication, folders(work)) == (["2-dead-b", "9-alive-c"], ["9-alive-c"])


def test_a_swap_that_an_older_one_left_open_is_never_taken_for_the_newer(target: Path) -> None:
    """Of two complete folders the one with the higher number takes the place; by text, 9 would be above 10."""
    for number in (9, 10):
        Files(str(target.parent / f".out.new-{number}-a1")).write(rows(number), batch(number))
    assert Files(str(target)).recorded(LEDGER, no_session) == Recorded(10, "d10")
    assert ids_in(target) == [10]


def test_files_are_on_the_disk_before_they_have_a_name(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, manifest and their folder, then the rename, then the folder that holds the new name."""

    def name(path: Path) -> str:
        return path.name.split("-a1-")[0]

    sink = Files(str(target))
    sink.write(rows(1, 2), batch(1))
    acts = note_disk(monkeypatch, "rename", name, lambda _, to: f"rename to {name(to)}")
    sink.write(rows(3, 4), batch(2))
    staged, published = acts[:4], acts[4:]
    assert sorted(staged[:3]) == ["sync _floodmark.json", "sync part-0.json", "sync part-1.json"]
    assert (staged[3], published) == ("sync 2", ["rename to batch=2", "sync out"])
    acts.clear()
    sink.write(rows(5, 6), batch(3, kind="refresh"))
    assert acts[3:] == [
        "sync 3",
        "rename to batch=3",
        "sync .out.building-3",
        "rename to .out.new-3",
        f"sync {target.parent.name}",
        "rename to .out.old-3",
        "rename to out",
        f"sync {target.parent.name}",
    ]


def test_a_lock_that_a_stopped_process_holds_is_named(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for ever; the error says who is waited for and what to do."""
    monkeypatch.setattr(files, "LOCK_SECONDS", 0.05)
    sink = Files(str(target))
    sink.write(rows(1), batch(1))
    with file_lock(target.parent / ".out.lock"), pytest.raises(SinkUnreachable) as caught:
        sink.fence(LEDGER, 2, no_session)
    assert ".out.lock" in caught.value.message


def test_executors_elsewhere(tmp_path: Path) -> None:
    """It looks for the driver's marker, and its error names the host and the folder."""
    marker = FolderMarker.put_into(tmp_path / "work")
    assert list(marker.look_first(iter([cast("Any", "batch")]))) == ["batch"]
    shutil.rmtree(tmp_path / "work")
    (tmp_path / "work").mkdir()
    with pytest.raises(RuntimeError) as caught:
        next(marker.look_first(iter([cast("Any", "batch")])))
    assert str(tmp_path / "work") in (fault_in(caught.value, "disk") or "")


@dataclass(frozen=True)
class PlannedRows:
    """Rows of a session at some master; what would be asked of each task is kept."""

    master: str
    schema: str = "id long"
    asked: list[Any] = field(default_factory=list)

    @property
    def sparkSession(self) -> object:  # noqa: N802 - Spark's name for it
        return SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: self.master))

    def mapInArrow(self, function: object, schema: str) -> PlannedRows:  # noqa: N802
        self.asked.append(function)
        return self


@pytest.mark.parametrize(("master", "times"), [("local[2]", 0), ("local", 0), ("yarn", 1), ("spark://head:7077", 1)])
def test_only_tasks_that_may_run_elsewhere_look_for_the_marker(tmp_path: Path, master: str, times: int) -> None:
    """Where driver and tasks are one process, nothing is added to the plan."""
    marker, planned = FolderMarker.put_into(tmp_path / "work"), PlannedRows(master)
    marker.guard(cast("Any", planned))
    assert planned.asked == [marker.look_first] * times


def test_a_machine_that_does_not_see_the_folder_is_named(tmp_path: Path) -> None:
    """What `check` asks of every task: the name of its machine, if the marker is not there."""
    marker = FolderMarker.put_into(tmp_path / "work")
    seen = list(marker.host_without(iter([cast("Any", "range")])))
    shutil.rmtree(tmp_path / "work")
    unseen = list(marker.host_without(iter([cast("Any", "range")])))
    hosts = [batch.column("host").to_pylist() for batch in (*seen, *unseen)]
    assert hosts == [[], [socket.gethostname()]]
