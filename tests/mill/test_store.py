"""Where a mill keeps its marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.mill import JsonFileMessageBroker, WaterMill
from tests.mill.cases import Joined, L, identity

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_mill_in_a_projects_folder_keeps_its_marks_in_the_projects_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So `floodmark marks` and `health` see it; outside of any project they are in a file of the working folder."""
    inside, outside = tmp_path / "project", tmp_path / "elsewhere"
    inside.mkdir()
    outside.mkdir()
    (inside / "floodmark.yaml").write_text("store: sqlite:///state/own.db\n")
    broker = JsonFileMessageBroker({L: "l.json", Joined: "joined.json"})
    monkeypatch.chdir(inside)
    WaterMill(broker, identity).reset()
    monkeypatch.chdir(outside)
    WaterMill(broker, identity).reset()
    assert (inside / "state" / "own.db").exists()
    assert (outside / "floodmark.db").exists()
