"""A plugin for pytest that notes which functions of one module each test calls, and how long the test takes.

`scripts/mutants.py` asks it, to try a change of a function by the tests that come there, the quickest first. What a
test does in other processes is not seen.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pytest

MODULE, RESULT = "FLOODMARK_REACHED_MODULE", "FLOODMARK_REACHED"
STARTS_PROCESSES = re.compile(r"subprocess|processes|child")


class CallRecorder:
    """By test, its seconds and the functions of the module."""

    def __init__(self, module: str, result: Path) -> None:
        self.module, self.result = module, result
        self.names: set[str] = set()
        self.tests: dict[str, tuple[float, list[str]]] = {}

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        """Called by the interpreter at every call."""
        if event == "call" and frame.f_code.co_filename == self.module:
            self.names.add(frame.f_code.co_name)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.names, started = set(), time.monotonic()
        threading.setprofile(self.note)
        sys.setprofile(self.note)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            self.tests[item.nodeid] = (round(time.monotonic() - started, 3), sorted(self.names))

    def pytest_sessionfinish(self) -> None:
        self.result.write_text(json.dumps(self.tests))


def pytest_configure(config: pytest.Config) -> None:
    """Where both are said; else nothing is noted."""
    if MODULE in os.environ:
        config.pluginmanager.register(CallRecorder(os.environ[MODULE], Path(os.environ[RESULT])))


@dataclass(frozen=True)
class ReachedFunctions:
    """What was noted of a module, and which files of tests start processes."""

    tests: dict[str, tuple[float, list[str]]]
    with_processes: frozenset[str]

    @classmethod
    def read(cls, result: Path, root: Path) -> ReachedFunctions:
        tests = json.loads(result.read_text())
        files = {test.split("::", maxsplit=1)[0] for test in tests}
        return cls(tests, frozenset(file for file in files if STARTS_PROCESSES.search((root / file).read_text())))

    def tests_of(self, function: str) -> list[str]:
        """Those that come to the function, and those that may in another process; the quickest first."""
        found = {
            test: seconds
            for test, (seconds, functions) in self.tests.items()
            if function in functions or test.split("::", maxsplit=1)[0] in self.with_processes
        }
        return sorted(found, key=lambda test: found[test])
