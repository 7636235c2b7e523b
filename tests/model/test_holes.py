"""What the model can see: each hole that a rule of the step closes, put back, is found within seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.holes import Hole
from tests.model.world import Setting, Violation, explore

KILLED = {"kills": 1, "pauses": 0, "thaws": 0}
OTHER_CODE = ("other code",)

HOLES = {
    "a look that is older than the lease is used": Hole(
        "step.engine:Engine.run_held", "if current != record:", "if False:", Setting()
    ),
    "rows are written before the intent is durable": Hole(
        "step.engine:Engine.write_batch", "self.store.intend(", "(lambda *a, **k: None)(", Setting(**KILLED)
    ),
    "a dropped number is used again": Hole(
        "step.engine:Engine.drop",
        "self.store.commit(dropped,",
        "dropped = replace(dropped, number=record.number)\n    self.store.intend(dropped,",
        Setting(batches_before=1, changes=OTHER_CODE, thaws=0),
    ),
    "a batch is dropped without a fence": Hole(
        "step.run:Step.fence_batch",
        "ledgers = fence(self.work, self.store.namespace, intent.number, self.session)",
        "ledgers = read_ledgers(self.work, self.store.namespace, self.session)",
        Setting(batches_before=1, changes=OTHER_CODE, thaws=0),
    ),
    "it is decided before the fence": Hole(
        "step.run:Step.recover",
        "        intent = self.intent_to_finish(record, ledgers)\n    if intent is None:\n        return None",
        "        return None",
        Setting(batches_before=1, changes=OTHER_CODE, thaws=0),
    ),
    "a fence counts as the batch": Hole(
        "step.looking:has_batch", "not entry.is_fence and ", "", Setting("aa", **KILLED, runs=3, changes=OTHER_CODE)
    ),
    "an overtaken run goes on": Hole(
        "sinks.contract:require_own_number",
        "raise Overtaken(",
        "return; Overtaken(",
        Setting("aa", changes=OTHER_CODE),
    ),
    "half a batch in a sink is not counted": Hole(
        "step.looking:Ledgers.sinks_touched_by",
        "if part == number",
        "if False",
        Setting("p", **KILLED, batches_before=1, changes=OTHER_CODE),
    ),
    "dead letters are not counted": Hole(
        "step.looking:Ledgers.sinks_touched_by",
        "if has_batch(entry, number)",
        "if False",
        Setting("t", **KILLED, has_malformed_row=True, changes=OTHER_CODE),
    ),
    "the code is not compared": Hole(
        "step.intents:open_intent", "if not changed or", "if True or", Setting("aa", **KILLED, changes=OTHER_CODE)
    ),
    "a finished spool is not used again": Hole(
        "step.intents:next_attempt",
        "intent.spool is None or ",
        "intent.spool is None or not ",
        Setting("aa", is_immutable=False, **KILLED, changes=("other rows",)),
    ),
    "a mutable table is not frozen": Hole(
        "step.intents:new_intent",
        "if work.why_spooled() else None",
        "if False else None",
        Setting("aa", is_immutable=False, **KILLED, changes=("other rows",)),
    ),
}


@pytest.mark.parametrize("name", HOLES)
def test_the_model_finds_a_hole(name: str, tmp_path: Path) -> None:
    """The same case passes without the hole: see the next test, and `test_model.py`."""
    hole = HOLES[name]
    with hole.open(), pytest.raises(Violation):
        explore(hole.setting, tmp_path / "spool")


@pytest.mark.parametrize("setting", sorted({hole.setting for hole in HOLES.values()}, key=str), ids=str)
def test_without_a_hole_the_same_case_is_exact(setting: Setting, tmp_path: Path) -> None:
    """What the model objects to is the hole, and not the case."""
    explore(setting, tmp_path / "spool")
