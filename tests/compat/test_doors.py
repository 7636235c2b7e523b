"""`scripts/doors.py`: the originals' files are run with their import lines changed, and with nothing else changed."""

from __future__ import annotations

import ast
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "doors.py"
COMPAT = Path(__file__).parents[2] / "src" / "floodmark" / "compat"
RENAMED = {"etl_entities": "floodmark.compat.etl_entities"}


@pytest.fixture
def doors(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module."""
    spec = spec_from_file_location("doors", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "doors", module)  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_import_lines_alone_are_changed(doors: ModuleType, tmp_path: Path) -> None:
    """A text that names the original stays, and a name that only begins like it too."""
    file = tmp_path / "test_it.py"
    file.write_text(
        "import etl_entities\nfrom etl_entities.hwm import HWM\nimport etl_entities_more\nname = 'from etl_entities'\n"
    )
    doors.change_imports(tmp_path, RENAMED)
    assert file.read_text().splitlines() == [
        "import floodmark.compat.etl_entities as etl_entities",
        "from floodmark.compat.etl_entities.hwm import HWM",
        "import etl_entities_more",
        "name = 'from etl_entities'",
    ]


def code_lines(file: Path) -> int:
    """The lines of a module that hold code: no blank ones, no comments, no docstrings."""
    tree = ast.parse(file.read_text())
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    prose = {line for text in texts for line in range(text.lineno, (text.end_lineno or text.lineno) + 1)}
    lines = enumerate(map(str.strip, file.read_text().splitlines()), start=1)
    return sum(number not in prose and bool(line) and not line.startswith("#") for number, line in lines)


@pytest.mark.parametrize("door", ["etl_entities", "waterhealer", "watermill"])
def test_a_door_is_thin(door: str) -> None:
    """An adapter and not a second engine: what it needs of an engine is in the core, where every user has it."""
    assert sum(map(code_lines, (COMPAT / door).glob("*.py"))) < 800


def test_a_promise_is_broken_by_one_failure_too_many(doors: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """The failed ones are named, and the exit code tells."""
    failing = doors.Check("two tests", lambda _: doors.Tally(1, ("test_b",)), may_fail=0)
    doors.Environment.of = lambda _: None
    doors.DOORS = {"original": doors.Door("original", (), (failing,))}
    assert doors.main(["original"]) == 1
    printed = capsys.readouterr().out
    assert "original: two tests: 1 of 2 pass; promised: all but 0: BROKEN\n    failed: test_b\n" in printed


def test_a_door_that_is_not_there_is_a_usage_error(doors: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """With the names of those that are."""
    with pytest.raises(SystemExit, match="2"):
        doors.main(["nobody"])
    assert (
        "no door 'nobody'; there are: etl-entities, onetl, streamz, water-healer, watermill" in capsys.readouterr().err
    )


def test_a_door_whose_packages_cannot_be_installed_says_so(
    doors: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """The row is there, with pip's own words, and the promise is not kept."""

    def refuse(_: object) -> None:
        raise doors.NotInstalled("pip install original==9 failed.")

    doors.Environment.of = refuse
    doors.DOORS = {"original": doors.Door("original", ())}
    assert doors.main(["original"]) == 1
    assert capsys.readouterr().out == "original: NOT RUN: pip install original==9 failed.\n"


def test_lines_of_a_comparison_are_counted(doors: ModuleType, tmp_path: Path) -> None:
    """A line for each thing says whether it is the same, or differs."""
    program = tmp_path / "compare.py"
    program.write_text("print('same     map')\nprint('differs  zip: 1')\nprint('         more of it')\nexit(1)\n")
    environment = SimpleNamespace(python=sys.executable)
    assert doors.line_tally(environment, program) == doors.Tally(1, ("zip: 1",))


def test_a_comparison_that_says_nothing_is_no_success(doors: ModuleType, tmp_path: Path) -> None:
    """It may have failed to start."""
    program = tmp_path / "compare.py"
    program.write_text("raise SystemExit(3)")
    environment = SimpleNamespace(python=sys.executable)
    assert doors.line_tally(environment, program) == doors.Tally(0, ("compare.py ended with 3",))
