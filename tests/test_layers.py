"""Imports go one way: whatever is not in the table of CONTRIBUTING.md is refused."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "floodmark"
FREE = frozenset({
    "errors", "failpoints", "fields", "formats", "inputs", "lazy", "locations", "logs", "machine", "notebook",
    "object_stores", "patience", "phases", "postgres",
})  # fmt: skip
LAYERS = FREE | {
    "hwm", "stores", "probes", "spark", "sources", "sinks", "rules", "step", "streams", "jobs", "mill", "medallion",
    "project", "lineage", "health", "cli", "web", "compat", "testing",
}  # fmt: skip


def table() -> dict[str, frozenset[str]]:
    """The layers of CONTRIBUTING.md and what each may import."""
    section = (ROOT / "CONTRIBUTING.md").read_text().split("## Layers")[1].split("\n## ")[0]
    rows = [line.strip("| ").split("|") for line in section.splitlines() if line.startswith("| `")]
    return {
        name.strip(" `"): frozenset(part.strip(" `–") for part in allowed.split(",")) - {""}
        for name, _, allowed in rows
    }


def layer_of(module: Path) -> str:
    """The folder or file right under the package; the package's own file is called floodmark."""
    first = module.relative_to(PACKAGE).parts[0]
    return "floodmark" if first == "__init__.py" else first.removesuffix(".py")


def imported_layers(source: str, package: str) -> Iterator[str]:
    """Every layer a module imports: at the top, inside functions, for types only, or relatively."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name for alias in node.names for name in _layer(alias.name))
        elif isinstance(node, ast.ImportFrom):
            home = ".".join(filter(None, [*_parents(package, node.level), node.module]))
            yield from (name for alias in node.names for name in _layer(f"{home}.{alias.name}"))


def _parents(package: str, level: int) -> list[str]:
    return package.split(".")[: len(package.split(".")) - level + 1] if level else []


def _layer(name: str) -> list[str]:
    parts = name.split(".")
    return [parts[1]] if parts[0] == "floodmark" and len(parts) > 1 else []


def package_of(module: Path) -> str:
    return ".".join(module.relative_to(PACKAGE.parent).parts[:-1])


def wrong_imports(module: Path) -> list[str]:
    """What this module imports and its layer may not."""
    layer = layer_of(module)
    allowed = table().get(layer, frozenset()) | FREE | {layer, "__version__"}
    found = imported_layers(module.read_text(), package_of(module))
    return [f"{module.relative_to(PACKAGE)} imports {name}" for name in found if name not in allowed]


def modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if layer_of(path) not in ("floodmark", "__main__")]


def test_every_import_is_in_the_table() -> None:
    """A new import across layers is a decision: change the table, or the code."""
    assert [line for module in modules() for line in wrong_imports(module)] == []


def test_every_folder_is_in_the_table() -> None:
    """A new folder has to say what it may import."""
    assert {layer_of(module) for module in modules()} <= set(table())


def test_the_table_names_the_layers_of_the_design() -> None:
    """The table is read from prose: a broken line in it must not pass for an empty table."""
    assert set(table()) == LAYERS
    assert table()["sources"] == {"hwm", "probes", "spark"}
    assert table()["hwm"] == frozenset()


def test_nothing_imports_testing() -> None:
    """Doubles are for users' tests, not for the product."""
    assert [layer for layer, allowed in table().items() if "testing" in allowed] == []


def test_nothing_is_imported_by_a_name_in_a_string() -> None:
    """The table above could not see it, so it would be a way around every layer."""
    names = re.compile(r"[\"']floodmark(\.\w+)+:\w+[\"']")
    assert [str(module.relative_to(PACKAGE)) for module in modules() if names.search(module.read_text())] == []


@pytest.mark.parametrize(
    ("source", "layers"),
    [
        ("import floodmark.jobs.job", ["jobs"]),
        ("from floodmark.jobs import job", ["jobs"]),
        ("from floodmark import jobs, cli", ["jobs", "cli"]),
        ("def f():\n    from floodmark.cli import main", ["cli"]),
        ("if TYPE_CHECKING:\n    import floodmark.web", ["web"]),
        ("from ..step import run", ["step"]),
        ("from .span import Span", ["hwm"]),
        ("import json", []),
    ],
)
def test_every_way_to_import_is_seen(source: str, layers: list[str]) -> None:
    """An import inside a function couples two layers as much as one at the top."""
    assert list(imported_layers(source, "floodmark.hwm")) == layers


WITHOUT_PYSPARK = """
import importlib, pkgutil, sys
for layer in ("errors", "failpoints", "hwm", "stores", "probes", "spark.session", "sources", "sinks", "rules"):
    module = importlib.import_module(f"floodmark.{layer}")
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), f"{module.__name__}."):
        importlib.import_module(found.name)
print(sorted(name for name in sys.modules if name.split(".")[0] in ("pyspark", "py4j", "pandas")))
"""


def test_marks_stores_and_probes_import_without_pyspark() -> None:
    """`floodmark marks show` answers without Spark; sources and sinks load it only when they are used."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYSPARK], cwd=ROOT / "src", capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_package_itself_imports_nothing_until_asked() -> None:
    """`import floodmark` is free: every name loads on first use, and only what does this is there."""
    script = "import sys, floodmark; print(sorted(name for name in sys.modules if name.startswith('floodmark.')))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT / "src", capture_output=True, text=True, check=True)
    assert done.stdout == "['floodmark.lazy']\n"
