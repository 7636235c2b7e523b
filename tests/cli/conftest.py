"""The command line, called in this process: quick, and with tools of the test's own where it hands them in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from floodmark.cli.app import run
from floodmark.cli.invocation import Tools


@dataclass(frozen=True)
class CommandResult:
    """How a command ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of the command."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def floodmark(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., CommandResult]:
    """Call it like the program: floodmark("marks", "show")."""

    def call(*arguments: str, tools: Tools | None = None) -> CommandResult:
        code = run(arguments, tools)
        out, err = capsys.readouterr()
        return CommandResult(code, out, err)

    return call
