"""Holes, put back into the code for a moment: one function without one of its lines."""

from __future__ import annotations
import __future__

import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from tests.model.world import Setting


@dataclass(frozen=True)
class Edit:
    """A line of a function (`module:name`), and what stands there instead."""

    function: str
    line: str
    instead: str

    @contextmanager
    def open(self) -> Iterator[None]:
        """Within this block the function is the one with the hole, wherever it was imported to."""
        module_name, _, path = self.function.partition(":")
        module = importlib.import_module(f"floodmark.{module_name}")
        *owners, name = path.split(".")
        owner: Any = module
        for each in owners:
            owner = getattr(owner, each)
        function = getattr(owner, name)
        changed = self._changed(function, vars(module))
        places = [owner] if owners else [each for each in modules() if getattr(each, name, None) is function]
        with ExitStack() as stack:
            for place in places:
                stack.enter_context(patch.object(place, name, changed))
            yield

    def _changed(self, function: Any, names: dict[str, Any]) -> Any:  # noqa: ANN401 - a function
        text = textwrap.dedent(inspect.getsource(function))
        assert text.count(self.line) == 1, f"{self.function} has no such line any more: {self.line}"
        made: dict[str, Any] = {}
        code = compile(
            text.replace(self.line, self.instead), self.function, "exec", __future__.annotations.compiler_flag
        )
        exec(code, names, made)  # noqa: S102 - our own code, without one line
        return made[function.__name__]


@dataclass(frozen=True)
class Hole:
    """The lines that it takes, and the case that finds it."""

    setting: Setting
    edits: tuple[Edit, ...]

    @contextmanager
    def open(self) -> Iterator[None]:
        with ExitStack() as stack:
            for edit in self.edits:
                stack.enter_context(edit.open())
            yield


def modules() -> list[Any]:
    return [module for name, module in list(sys.modules.items()) if name.startswith(("floodmark", "tests.model"))]
