"""What the model can see: each hole that a rule of the step closes, put back, is found within seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.holes import Edit, Hole
from tests.model.test_model import CASES
from tests.model.world import Setting, Violation, explore

KILLED = {"kills": 1, "pauses": 0, "thaws": 0}
OTHER_CODE = ("other code",)

PAUSED = Setting(batches_before=1, changes=OTHER_CODE, thaws=0)


def hole(setting: Setting, *edits: tuple[str, str, str]) -> Hole:
    return Hole(setting, tuple(Edit(*edit) for edit in edits))


HOLES = {
    "a look that is older than the lease is used": hole(
        Setting(points=("look", "store", "guard")),
        ("step.engine:Engine.run_held", "if current != record:", "if False:"),
    ),
    "rows are written before the intent is durable": hole(
        Setting(**KILLED),
        ("step.engine:Engine.write_batch", "self.store.intend(", "(lambda *a, **k: None)("),
    ),
    "a dropped number is used again": hole(
        PAUSED,
        (
            "step.engine:Engine.drop",
            "self.store.commit(dropped,",
            "dropped = replace(dropped, number=record.number)\n    self.store.intend(dropped,",
        ),
    ),
    "a batch is dropped without a fence": hole(
        PAUSED,
        (
            "step.run:Step.fence_batch",
            "ledgers = fence(named_as_begun(self.work, intent), self.store.namespace, intent.number, self.session)",
            "ledgers = read_ledgers(self.work, self.store.namespace, self.session)",
        ),
    ),
    "it is decided before the fence": hole(
        PAUSED,
        (
            "step.run:Step.recover",
            "        again = self.attempt_to_finish(record, ledgers)\n    return",
            "        return None\n    return",
        ),
    ),
    "a fence counts as the batch": hole(
        Setting("aa", **KILLED, runs=3, changes=OTHER_CODE),
        ("step.looking:has_batch", "not entry.is_fence and ", ""),
    ),
    "an overtaken run goes on": hole(
        Setting("a", kills=1, runs=3, changes=(*OTHER_CODE, "the code as it was"), points=("fence", "guard")),
        ("sinks.contract:require_own_number", "raise Overtaken(", "return; Overtaken("),
    ),
    "half a batch in a sink is not counted": hole(
        Setting("p", **KILLED, batches_before=1, changes=OTHER_CODE),
        ("step.looking:Ledgers.sinks_touched_by", "if part == number", "if False"),
    ),
    "dead letters are written before the last sink's commit, and not counted": hole(
        Setting("t", **KILLED, has_malformed_row=True, changes=OTHER_CODE),
        ("step.commit:JoinedCommit.commit_within", "if not self.commit.puts_rows_aside():", "if True:"),
        ("step.looking:Ledgers.sinks_touched_by", "if has_batch(entry, number)", "if False"),
    ),
    "dead letters are written after the mark": hole(
        Setting("a", **KILLED, has_malformed_row=True),
        (
            "step.commit:BatchCommit.save",
            "dead = write_dead_letters(self.work, self.prepared, counts, batch)",
            (
                "dead, raise_mark = None, save\n"
                "    def save(*arguments, **more):\n"
                "        raise_mark(*arguments, **more)\n"
                "        write_dead_letters(self.work, self.prepared, counts, batch)"
            ),
        ),
    ),
    "dead letters go to the table of today": hole(
        Setting("a", **KILLED, has_malformed_row=True, changes=("the dead letters are moved",)),
        ("step.work:Work.fingerprints", "**letters,", ""),
    ),
    "what could not be parsed is read again from a table": hole(
        Setting("aa", is_immutable=False, **KILLED, has_malformed_row=True, changes=("malformed rows are corrected",)),
        ("step.batch:freeze_dead", "work.dead_letters is None", "True"),
    ),
    "a table whose rows cannot all be parsed is not frozen": hole(
        Setting("a", is_immutable=False, **KILLED, has_malformed_row=True, changes=("malformed rows are corrected",)),
        ("step.work:Work.why_spooled", "reason is None", "False"),
    ),
    "a sink that is behind is not noticed": hole(
        Setting("a", **KILLED, batches_before=1, changes=("a sink is restored",)),
        ("step.looking:require_agreement", "raise behind", "pass"),
        ("sinks.contract:require_confirmed", "raise SinkBehind(", "return; SinkBehind("),
    ),
    "a sink that falls behind under a paused run is not noticed": hole(
        Setting("a", batches_before=1, changes=("a sink is restored",)),
        ("sinks.contract:require_confirmed", "raise SinkBehind(", "return; SinkBehind("),
    ),
    "a sink is known by its name of today": hole(
        Setting("a", **KILLED, batches_before=1, changes=("a sink is renamed",)),
        ("step.intents:named_by_target", "if not known:", "if True:"),
        ("step.intents:require_all_asked", "if now.get(name) != ledger.target:", "if False:"),
    ),
    "the code is not compared": hole(
        Setting("aa", **KILLED, changes=OTHER_CODE),
        ("step.intents:open_intent", "(not changed or", "(True or"),
    ),
    "the source is not compared": hole(
        Setting("a", **KILLED, changes=("another source",)),
        ("step.work:Work.changes_since", "s.fingerprint(session) != known[s.name]", "False"),
    ),
    "a finished spool is not used again": hole(
        Setting("aa", is_immutable=False, **KILLED, changes=("other rows",)),
        ("step.intents:next_attempt", "intent.spool is None or ", "intent.spool is None or not "),
    ),
    "a lost spool is read anew while a sink has the batch": hole(
        Setting("aa", is_immutable=False, **KILLED, changes=("the spool is lost, and other rows",)),
        ("step.intents:has_rows", "if touched and", "if False and"),
    ),
    "a lost spool is read anew while a paused run has its rows": hole(
        Setting("aa", is_immutable=False, thaws=0, changes=("the spool is lost, and other rows",)),
        ("step.intents:has_rows", "Spool(intent.spool).may_be_in_use()", "False"),
    ),
    "a run that is done removes its successor's spool": hole(
        Setting("aa", is_immutable=False, changes=("new rows",), points=("remove", "before the guard")),
        ("step.run:Step.carry_out", "batch.intent.number)", "10**9)"),
    ),
    "rows handed over and rows written are not compared": hole(
        Setting("aa", is_immutable=False, loses_rows=True, **KILLED),
        ("step.commit:BatchCommit.save", "self.require_agreement(written)", "pass"),
    ),
    "a small batch of a mutable table is not frozen for two sinks": hole(
        Setting("as", is_immutable=False, has_dead_letters=False, **KILLED, changes=("other rows",)),
        ("step.intents:at_once_options", "work.sinks[-1] if len(work.sinks) == 1 else None", "work.sinks[-1]"),
        ("step.work:why_spooled", "len(sinks) == 1 and ", ""),
    ),
    "a mutable table is not frozen": hole(
        Setting("aa", is_immutable=False, **KILLED, changes=("other rows",)),
        ("step.intents:new_intent", "if not at_once and work.why_spooled() else None", "if False else None"),
    ),
}


@pytest.mark.parametrize("name", HOLES)
def test_the_model_finds_a_hole(name: str, tmp_path: Path) -> None:
    """The same case passes without the hole: see the next test, and `test_model.py`."""
    with HOLES[name].open(), pytest.raises(Violation):
        explore(HOLES[name].setting, tmp_path / "spool")


OTHER_CASES = {each.setting for each in HOLES.values()} - set(CASES.values())
"""Those that `test_model.py` does not tell anyway."""


@pytest.mark.slow
@pytest.mark.parametrize("setting", sorted(OTHER_CASES, key=str), ids=str)
def test_without_a_hole_the_same_case_is_exact(setting: Setting, tmp_path: Path) -> None:
    """What the model objects to is the hole, and not the case."""
    assert explore(setting, tmp_path / "spool") > 3
