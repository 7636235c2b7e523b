"""Every package that loads its names on first use gives exactly them, by name, by star and by dir()."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "floodmark"


def lazy_packages() -> list[str]:
    """The packages whose `__init__` calls `export_lazily`."""
    inits = [path for path in sorted(PACKAGE.rglob("__init__.py")) if "\nexport_lazily(__name__" in path.read_text()]
    return [".".join(path.parent.relative_to(PACKAGE.parent).parts) for path in inits]


@pytest.mark.parametrize("package", lazy_packages())
def test_every_public_name_is_written_once_and_loads(package: str) -> None:
    """What the type checker sees as imported is `__all__`, is `dir()`, and is there."""
    module = importlib.import_module(package)
    assert module.__all__
    assert dir(module) == sorted(module.__all__)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


@pytest.mark.parametrize("package", lazy_packages())
def test_a_star_import_brings_every_public_name(package: str) -> None:
    """`from floodmark.streams import *` is how a notebook begins."""
    names: dict[str, object] = {}
    exec(f"from {package} import *", names)  # noqa: S102 - a star import is allowed at the top of a module alone
    assert set(names) - {"__builtins__"} == set(importlib.import_module(package).__all__)


@pytest.mark.parametrize("package", lazy_packages())
def test_a_name_nobody_exports_is_missing(package: str) -> None:
    """hasattr and getattr with a default rely on AttributeError."""
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        importlib.import_module(package).nothing  # noqa: B018


def test_the_packages_are_reached_from_the_root() -> None:
    """One import is enough: `import floodmark as fm`, then `fm.mill.WaterMill`."""
    script = "import floodmark as fm; print(fm.mill.WaterMill, fm.medallion.Layer, fm.testing.ListSink)"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=PACKAGE.parent, capture_output=True, text=True, check=True)
    assert done.stdout.count("<class 'floodmark.") == 3


def test_packages_are_found() -> None:
    """An empty list of packages would pass every test above."""
    assert {"floodmark", "floodmark.streams", "floodmark.mill", "floodmark.stores"} <= set(lazy_packages())
