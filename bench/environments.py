"""Pythons that have a peer, each in an environment of its own under the cache folder; none touches ours."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import venv
from pathlib import Path

from run import NotInstalled

from floodmark.spark.java import cache_folder

MINUTES = 10
DONE = "installed.txt"


def python_with(peer: str, *requirements: str) -> Path:
    """The Python of an environment that has these packages; it is made once. Raises NotInstalled."""
    key = hashlib.sha256("\n".join(requirements).encode()).hexdigest()[:12]
    folder = cache_folder() / "bench" / f"{peer}-{key}"
    python = folder / "bin" / "python"
    if (folder / DONE).exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    asked = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=60 * MINUTES, check=False)
    except subprocess.TimeoutExpired as error:
        raise NotInstalled(f"{peer}: pip was not done after {MINUTES} minutes") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["pip said nothing"]
        raise NotInstalled(f"{peer}: {lines[-1]}")
    (folder / DONE).write_text("\n".join(requirements))
    return python
