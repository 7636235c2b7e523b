"""Jobs of Python through the command line: a module that is missing, and one that needs Spark while it is imported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from floodmark.cli.invocation import LazySession, Tools
from tests.cli.conftest import CommandResult

Floodmark = Callable[..., CommandResult]
NEEDY = """\
import os
import floodmark as fm

if "SPARK_IS_THERE" not in os.environ:
    raise RuntimeError("no active session")
job = fm.Job("needy", fm.sources.Files("in"), [fm.sinks.Files("out")])
"""
OWN = "{name: own, source: {type: files, path: in}, sinks: [{type: files, path: out/own}]}"


@pytest.fixture
def project(folder: Path) -> Path:
    (folder / "in").mkdir()
    module = f"needy_{abs(hash(str(folder)))}"  # of this test alone: a module is imported once in a process
    (folder / f"{module}.py").write_text(NEEDY)
    (folder / "floodmark.yaml").write_text(f'store: memory\njobs: [{{python: "{module}:job"}}, {OWN}]\n')
    return folder


def starting(monkeypatch: pytest.MonkeyPatch) -> Tools:
    """Tools whose session only says that it has started."""

    def start() -> object:
        monkeypatch.setenv("SPARK_IS_THERE", "1")
        return object()

    class Session(LazySession):
        """Nothing to stop."""

        def stop(self) -> None:
            """As it says."""

    return Tools(session=lambda _settings: Session(start))  # type: ignore[arg-type]


@pytest.mark.usefixtures("project")
def test_a_module_that_needs_spark_is_imported_once_it_has_started(
    floodmark: Floodmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whoever has to have its jobs: a run must not leave them out."""
    said = floodmark("run", tools=starting(monkeypatch))
    assert [line.partition(":")[0] for line in said.out.splitlines()[:-1]] == ["needy", "own"]


@pytest.mark.usefixtures("project")
def test_commands_without_spark_say_what_they_could_not_look_into_and_go_on(floodmark: Floodmark) -> None:
    """`lint` by a finding, the others by a line of the log."""
    linted, lineage = floodmark("lint"), floodmark("lineage")
    assert "warning FM112 could not look inside needy_" in linted.out
    assert (linted.code, lineage.code, lineage.out.splitlines()[0]) == (0, 0, "own")
    assert "could not look inside Python jobs" in lineage.err


def test_a_module_that_is_not_there_starts_no_spark(floodmark: Floodmark, project: Path) -> None:
    """Spark would not bring it."""
    (project / "floodmark.yaml").write_text('store: memory\njobs: {python: "no_such_module:jobs"}\n')
    no_spark = LazySession(lambda: pytest.fail("no session is needed"))
    said = floodmark("run", tools=Tools(session=lambda _settings: no_spark))
    assert (said.code, "there is no module 'no_such_module'" in said.err) == (2, True)
