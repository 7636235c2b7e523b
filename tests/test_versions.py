"""The script behind `make test-versions`: it tries what it finds, and names what it does not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "test_versions.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("versions_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "versions_script", module)  # where a dataclass looks for its own module
    spec.loader.exec_module(module)
    return module


def pretend(folder: Path, name: str, text: str) -> Path:
    """A program of this name that does what the text says."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return program


def test_a_version_that_is_nowhere_is_named_as_not_tested(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody takes its silence for a pass; where nothing was tested at all, the command fails."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert script.main(["3.10"]) == 1
    assert capsys.readouterr().out == "Python 3.10: not tested: no python3.10 on PATH or under pyenv\n"


def test_a_program_that_does_not_start_is_passed_over_for_pyenvs_own(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pyenv puts a program on PATH for every version that it has, and most of them refuse to start."""
    pretend(tmp_path / "bin", "python3.10", "exit 127")
    real = pretend(tmp_path / "versions" / "3.10.9" / "bin", "python", "echo 3.10.9")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert script.find_interpreter("3.10") == script.Interpreter("3.10.9", str(real))


def test_a_version_that_fails_fails_the_command_and_says_where(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what was printed last."""
    pretend(
        tmp_path / "bin", "python3.10", 'case "$2" in *version_info*) echo 3.10.1;; *) echo no venv >&2; exit 1;; esac'
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("FLOODMARK_CACHE", str(tmp_path / "cache"))
    assert script.main(["3.10"]) == 1
    assert "FAILED with 3.10.1" in (shown := capsys.readouterr().out)
    assert "no venv" in shown


def test_the_versions_are_those_that_the_package_says(script: ModuleType) -> None:
    """From what `requires-python` names on."""
    assert script.SUPPORTED[0] == "3.10"
    assert 'requires-python = ">=3.10"' in (SCRIPT.parent.parent / "pyproject.toml").read_text()
