"""What a person does to a job while a run may be paused: numbers and fences, with the doubles of the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from floodmark.errors import MarkMissing
from floodmark.sinks.contract import Recorded, ledger_id
from floodmark.step.run import reset_marks
from floodmark.step.work import RunRequest
from floodmark.stores.memory import MemoryPages
from floodmark.stores.record import Receipt
from tests.model.doubles import without_spark
from tests.model.scheduling import Choices
from tests.model.targets import Target
from tests.model.world import JOB, Setting, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A job with one batch behind it, in whose next batch nothing happens by itself."""
    with without_spark():
        made = World(Setting(), Choices(), tmp_path / "spool")
        made.add_rows(2)
        made.run()
        yield made


def entry(target: Target, sink: str) -> Recorded | None:
    return target.ledger.get(ledger_id("default", JOB, sink))


def begin_a_batch(world: World) -> None:
    """A run is killed under the guard of its sink."""
    world.add_rows(2)
    world.scheduler.kills_at = "sink-1: under the guard"
    world.run()
    world.scheduler.kills_at = ""


def test_a_reset_fences_every_sink_above_its_own_number(world: World) -> None:
    """A run that is paused with an older number finds it taken."""
    reset_marks(world.step())
    assert entry(world.targets[0], "sink-1") == Recorded(2, is_fence=True)
    assert entry(world.letters, "dead-letters") is None


def test_a_reset_closes_an_open_batch_in_the_dead_letters_too(world: World) -> None:
    """The run that had begun it could still bury its letters, and the batch is read again."""
    begin_a_batch(world)
    reset_marks(world.step())
    assert entry(world.targets[0], "sink-1") == Recorded(3, is_fence=True)
    assert entry(world.letters, "dead-letters") == Recorded(2, is_fence=True)


def test_a_store_that_begins_anew_asks_first_where_the_target_holds_rows(world: World) -> None:
    """Delivered from the beginning, they would be there twice."""
    world.pages = MemoryPages()
    assert isinstance(world.run().error, MarkMissing)


def test_a_batch_that_was_killed_before_its_spool_was_written_is_finished_under_its_number(tmp_path: Path) -> None:
    """Its place was made before it was begun, so it is not taken for one that was lost."""
    with without_spark():
        world = World(Setting("aa", is_immutable=False), Choices(), tmp_path / "spool")
        world.add_rows(2)
        world.scheduler.kills_at = "write the spool"
        world.run()
        world.scheduler.kills_at = ""
        receipt = world.run().result
    assert isinstance(receipt, Receipt)
    assert (receipt.number, receipt.recovered, receipt.rows_written) == (1, True, {"sink-1": 2, "sink-2": 2})


def test_after_a_reset_nobody_is_asked_again(world: World) -> None:
    """Whoever resets a mark knows that everything comes again."""
    reset_marks(world.step())
    receipt = world.run().result
    assert isinstance(receipt, Receipt)
    assert (receipt.status, receipt.number, receipt.rows_written) == ("done", 3, {"sink-1": 2})


def test_nothing_of_a_spool_stays_once_its_batch_is_committed(tmp_path: Path) -> None:
    """Else a disk fills up batch by batch."""
    with without_spark():
        world = World(Setting("aa", is_immutable=False), Choices(), tmp_path / "spool")
        world.add_rows(2)
        world.run()
    assert list((tmp_path / "spool" / JOB).iterdir()) == []


@pytest.mark.parametrize(("sink", "letters"), [(9, 4), (4, 9)])
def test_a_store_that_begins_anew_goes_on_above_every_number_that_is_recorded(
    world: World, sink: int, letters: int
) -> None:
    """Else a batch would be taken for one that a sink has, or a paused run of the old store could write."""
    world.targets[0].ledger[ledger_id("default", JOB, "sink-1")] = Recorded(sink, "of the old store")
    world.letters.ledger[ledger_id("default", JOB, "dead-letters")] = Recorded(letters, "of the old store")
    world.pages = MemoryPages()
    world.request = replace(RunRequest(), abandon=True)
    world.add_rows(1)
    run = world.run()
    assert (run.error, getattr(run.result, "number", None)) == (None, 10)
