"""Public names that load on first use, so that importing a package costs nothing and needs no Spark.

A package's `__init__` imports its public names for the type checker alone, each as itself, and ends with a call:

    if TYPE_CHECKING:
        from floodmark.streams.stream import Stream as Stream

    export_lazily(__name__)

So a name is written once. At run time the same lines are read from the source, which is why the package has to ship
it (a wheel and a zip do).
"""

from __future__ import annotations

import ast
import sys
from importlib import import_module


def export_lazily(package: str, *own: str) -> None:
    """Give the package whose `__init__` calls this its `__getattr__`, `__dir__` and `__all__`.

    `own` are the public names that the `__init__` defines itself.
    """
    module, homes = sys.modules[package], _homes(package)

    def load(name: str) -> object:
        """Import the module behind a public name when it is first used."""
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, original = homes[name]
        if home == package:
            return import_module(f"{package}.{name}")
        value: object = getattr(import_module(home), original)
        setattr(module, name, value)
        return value

    names = sorted([*homes, *own])
    # set from here and not assigned in the package: a type checker would believe that any name is there
    vars(module).update(__getattr__=load, __dir__=names.copy, __all__=names)


def _homes(package: str) -> dict[str, tuple[str, str]]:
    """Public name → module and the name there, from the imports of the package's source that say `as`."""
    source: str = sys.modules[package].__spec__.loader.get_source(package)  # type: ignore[union-attr]
    return {
        alias.asname: (str(node.module), alias.name)
        for block in ast.parse(source).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
