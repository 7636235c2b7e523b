"""Starting the children of the process tests."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


@contextmanager
def child(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A child with a pipe for what it says; it is gone at the end."""
    command = [sys.executable, "-m", "tests.stores.child", *map(str, arguments)]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "FLOODMARK_LEASE_SECONDS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def next_line(process: subprocess.Popen[str]) -> str:
    """The next line."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def remaining_lines(process: subprocess.Popen[str]) -> list[str]:
    """Every whole line that is left."""
    assert process.stdout is not None
    return [line.strip() for line in process.stdout if line.endswith("\n")]
