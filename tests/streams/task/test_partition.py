"""What a task carries to the next turn, and what a worker has to load before its first record."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from floodmark.streams import Stream, healing_batch
from floodmark.streams.elements import RecordId
from floodmark.streams.program import compile_program
from floodmark.streams.task.journal import RawRecord
from floodmark.streams.task.kept import CarriedState
from tests.streams.rows import element_of

if TYPE_CHECKING:
    from pathlib import Path

UUID = {"topic": "t", "partition": 0, "offset": 7}


def carried(run: str) -> CarriedState:
    """A stream of pairs that holds one record."""
    source = Stream()
    source.partition(2).sink(healing_batch, stream=source)
    plan_run = compile_program(source.node).tasks.start()
    plan_run.push(element_of(UUID, b"1"))
    return CarriedState(run, plan_run, {RecordId("t", 0, 7): RawRecord(None, b"1", None, 0)})


def test_only_the_run_that_carried_a_state_takes_it_back(tmp_path: Path) -> None:
    """Another run may have other code; it reads the records again."""
    carried("mine").save(tmp_path / "state")
    state = CarriedState.load(tmp_path / "state", "mine")
    assert state is not None
    assert [record.offset for record in state.plan_run.pending()] == [7]
    assert CarriedState.load(tmp_path / "state", "another") is None
    assert CarriedState.load(tmp_path / "none", "mine") is None


def test_a_state_that_an_older_version_carried_is_not_taken_back(tmp_path: Path) -> None:
    """Its classes have other homes now: the stream goes on, and the records are read again."""
    (tmp_path / "state").write_bytes(b"cfloodmark.streams.carried\nCarried\n.")
    assert CarriedState.load(tmp_path / "state", "mine") is None


def test_a_worker_loads_neither_the_drivers_side_nor_the_step() -> None:
    """Every Python worker of Spark pays for what it imports, before its first record."""
    code = "import sys, floodmark.streams.task; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = ("floodmark.step", "floodmark.spark", "floodmark.sources", "floodmark.streams.healer", "pyspark")
    assert [name for name in loaded if name.startswith(heavy)] == []
