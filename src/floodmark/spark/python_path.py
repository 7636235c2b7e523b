"""Where this program imports modules of its own from, so that Spark's Python workers can import them too."""

from __future__ import annotations

import site
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

INSTALLED = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")


def own_folders(path: Sequence[str] | None = None) -> tuple[str, ...]:
    """The folders of `sys.path` that are not Python's or a package manager's: a script's, a project's, PYTHONPATH.

    A worker runs the same Python, so what is installed it finds by itself; put in front of the standard library, an
    installed backport would take the place of a module there.
    """
    folders = [Path(entry).absolute() for entry in (sys.path if path is None else path)]  # '' is the working folder
    installed = _installed()
    own = [each for each in folders if each.is_dir() and installed.isdisjoint((each, *each.parents))]
    return tuple(dict.fromkeys(map(str, own)))


def _installed() -> set[Path]:
    """Where Python and package managers put modules."""
    named = (sysconfig.get_path(name) for name in INSTALLED)
    return {Path(found) for found in (*named, *site.getsitepackages(), site.getusersitepackages())}
