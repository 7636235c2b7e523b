"""Runs the examples in the docstrings of a package, against the package itself or against a door with its names.

    docstring_examples.py SOURCES MODULE NAME

SOURCES is the folder of the package's files, MODULE its name there, NAME what is imported in its place. One line per
docstring: `passed FILE:OBJECT` or `failed FILE:OBJECT`. `scripts/doors.py` runs this in a door's environment.
"""

from __future__ import annotations

import ast
import doctest
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from importlib import import_module
from pathlib import Path

CLASS = re.compile(r"<class '(?:[\w]+\.)*(\w+)'>")
FROZEN = re.compile(r"frozendict\.frozendict\((.*)\)")
"""How the original prints a map that cannot be changed."""


class Checker(doctest.OutputChecker):
    """A door's classes live in other modules, and its maps print as plain ones: neither is a difference."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return super().check_output(_without_home(want), _without_home(got), optionflags)


def _without_home(text: str) -> str:
    return FROZEN.sub(r"\1", CLASS.sub(r"<class '\1'>", text))


def examples(sources: Path, module: str, name: str) -> Iterator[tuple[str, str]]:
    """Every docstring with an example, by file and object; imports name what stands in for the module."""
    for file in sorted(sources.rglob("*.py")):
        text = re.sub(rf"(from|import) {module}(?=[. ])", rf"\1 {name}", file.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and ">>>" in (ast.get_docstring(node) or ""):
                yield f"{file.relative_to(sources)}:{node.lineno}:{node.name}", ast.get_docstring(node) or ""


def main(sources: Path, module: str, name: str) -> None:
    """Print a line for every docstring that has an example."""
    public = [import_module(f"{name}.hwm"), import_module(f"{name}.hwm_store")]
    names = {"datetime": datetime} | {each: getattr(home, each) for home in public for each in home.__all__}
    for place, docstring in examples(sources, module, name):
        test = doctest.DocTestParser().get_doctest(docstring, dict(names), place, None, 0)
        runner = doctest.DocTestRunner(Checker(), optionflags=doctest.ELLIPSIS)
        failed = runner.run(test, out=lambda _: None).failed
        print(f"{'failed' if failed else 'passed'} {place}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
