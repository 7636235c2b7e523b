"""Try every supported Python that is found here: import all modules, `floodmark init`, and a run: `make test-versions`.

Each interpreter gets an environment of its own in the cache folder, with the pinned packages; the second time it is
there already. One that is missing is named as not tested, never passed over.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUPPORTED = ("3.10", "3.11", "3.12", "3.13")
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
STAMP = "floodmark-stamp"
SECONDS = 600
IMPORT_ALL = """
import importlib, pkgutil, floodmark
names = [module.name for module in pkgutil.walk_packages(floodmark.__path__, "floodmark.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names))
"""
VERSION = "import sys; print('.'.join(map(str, sys.version_info[:3])))"


@dataclass(frozen=True)
class Interpreter:
    """A Python of this machine, by the version that it says itself."""

    version: str
    program: str


class Failed(Exception):
    """A step that did not end well; the text is what it printed last."""


def main(wanted: Sequence[str]) -> int:
    """Try each version; 1 if one failed, or if none was found."""
    results = [(version, outcome_of(version)) for version in wanted or SUPPORTED]
    for version, outcome in results:
        print(f"Python {version}: {outcome}")
    tested = [outcome for _, outcome in results if not outcome.startswith("not tested")]
    return 0 if tested and not any(outcome.startswith("FAILED") for outcome in tested) else 1


def outcome_of(version: str) -> str:
    """What came of one version, in a line or more."""
    found = find_interpreter(version)
    if found is None:
        return f"not tested: no python{version} on PATH or under pyenv"
    try:
        python = environment(found)
        return f"{found.version} passed ({import_all(python)} modules imported, init, {first_run(python)})"
    except Failed as failure:
        return f"FAILED with {found.version}\n{failure}"


def find_interpreter(version: str) -> Interpreter | None:
    """The first one of this version that really starts: what stands on PATH may be pyenv's empty promise."""
    for program in candidates(version):
        asked = subprocess.run([program, "-c", VERSION], capture_output=True, text=True, check=False)
        if asked.returncode == 0 and asked.stdout.strip().startswith(f"{version}."):
            return Interpreter(asked.stdout.strip(), program)
    return None


def candidates(version: str) -> Iterator[str]:
    """Where an interpreter may be."""
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))) / "versions"
    yield from (str(folder / "bin" / "python") for folder in sorted(pyenv.glob(f"{version}.*"), reverse=True))


def environment(interpreter: Interpreter) -> str:
    """The Python of an environment with the pinned packages and this checkout, made if it is not there yet."""
    content = b"".join((ROOT / name).read_bytes() for name in ("requirements.lock", "pyproject.toml"))
    key = hashlib.sha256(content + str(ROOT).encode()).hexdigest()
    folder = cache_folder() / "versions" / interpreter.version
    python, stamp = str(folder / "bin" / "python"), folder / STAMP
    if stamp.exists() and stamp.read_text() == key:
        return python
    run([interpreter.program, "-m", "venv", "--clear", str(folder)])
    lock = str(ROOT / "requirements.lock")
    run([python, *PIP, "-r", lock], seconds=3 * SECONDS)
    run([python, *PIP, "--no-build-isolation", "-c", lock, "-e", f"{ROOT}[onetl]"])  # every module has to import
    stamp.write_text(key)  # last: an interrupted installation starts over
    return python


def cache_folder() -> Path:
    """The cache folder of Floodmark, as its own code finds it."""
    sys.path.insert(0, str(ROOT / "src"))
    from floodmark.spark.java import cache_folder as own

    return own()


def import_all(python: str) -> int:
    """Import every module of the package, and say how many there are."""
    return int(run([python, "-W", "error", "-c", IMPORT_ALL]).strip())


def first_run(python: str) -> str:
    """What a newcomer does: make a project, and run it."""
    with tempfile.TemporaryDirectory(prefix="floodmark-versions-") as folder:
        command = [python, "-m", "floodmark.cli"]
        run([*command, "init", folder])
        document = json.loads(run([*command, "run", "--json"], cwd=folder))
    rows = sum(receipt["rows_read"] for receipt in document["runs"])
    if not rows:
        raise Failed(f"the run of a new project read no row: {document}")
    return f"a run that read {rows} rows"


def run(command: Sequence[str], *, cwd: str | None = None, seconds: int = SECONDS) -> str:
    """What a program printed. Raises Failed with its last lines if it did not end well."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command[:6])} …\n{(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
