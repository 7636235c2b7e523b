"""What a test sees of a disk: in which order files are synced and take their names."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pytest


def note_disk(
    monkeypatch: pytest.MonkeyPatch,
    renames_by: Literal["rename", "replace"],
    name: Callable[[Path], str],
    renaming: Callable[[Path, Path], str],
) -> list[str]:
    """Every sync of this process from now on, with the name of the file, and every renaming in these words."""
    acts: list[str] = []
    sync, rename = os.fsync, getattr(Path, renames_by)

    def noted_sync(descriptor: int) -> None:
        acts.append(f"sync {name(Path(f'/proc/self/fd/{descriptor}').readlink())}")
        sync(descriptor)

    def noted_rename(path: Path, target: Path) -> Path:
        acts.append(renaming(path, target))
        renamed: Path = rename(path, target)
        return renamed

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, renames_by, noted_rename)
    return acts
