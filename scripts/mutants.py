"""Break the code in one place at a time and see whether a test notices: `make mutants`.

Each mutant is one small change of one module, tried in a copy of `src` against the tests that are mapped to the module
and come to the function that is changed (`scripts/reached.py` sees which), or start processes, in which nobody sees it;
none of them needs Spark or a server. What was tried is kept in `.mutants/results.json`, so the work can be stopped and
goes on where it was: a mutant of a function that did not change since is not tried again if a test noticed it, nor if
the tests are the same; `--again` tries all of them. What no test noticed is listed at the end; `--write` puts the list
into CONTRIBUTING.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import reached
from forks import Ended, ForkingTests
from mutations import Mutant, hashed, mutants_of
from reached import ReachedFunctions

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / ".mutants" / "results.json"
BEGIN, END = "<!-- mutants that no test notices -->", "<!-- end of mutants -->"
DURABLE = "tests/test_durable.py"
FORMATS = "tests/formats/test_formats.py"
MODEL = "tests/model/test_model.py"
ACTS = "tests/model/test_acts.py"
STEP = (
    "tests/step/test_fencing.py",
    "tests/step/test_sink_behind.py",
    "tests/step/test_pieces.py",
    "tests/step/test_renamed_sinks.py",
    "tests/step/test_source_changed.py",
    "tests/step/test_verbs.py",
    "tests/step/test_run_remember.py",
    "tests/step/test_spool_parts.py",
    "tests/step/test_shared_sinks.py",
    "tests/step/test_aside.py",
    "tests/step/test_commit.py",
    "tests/step/test_numbers.py",
    "tests/step/test_run_errors.py",
    "tests/step/test_listeners.py",
    ACTS,
)
RUN_INDEX = "tests/stores/test_run_index.py"
PAGED = (
    "tests/stores/test_pages.py",
    RUN_INDEX,
    *(f"tests/stores/test_paged.py::{name}" for name in ("TestMemory", "TestFile", "TestSqlite", "TestLayered")),
    "tests/stores/test_layered.py",
)
TESTS: dict[str, tuple[str, ...]] = {
    "step/engine.py": (
        "tests/step/test_engine.py",
        "tests/step/test_verbs.py",
        "tests/step/test_fencing.py",
        "tests/step/test_listeners.py",
        MODEL,
    ),
    "step/run.py": (*STEP, MODEL),
    "step/intents.py": ("tests/step/test_outlook.py", *STEP, MODEL),
    "step/looking.py": ("tests/step/test_outlook.py", "tests/step/test_looking.py", *STEP, MODEL),
    "step/commit.py": (*STEP, MODEL),
    "stores/lease.py": ("tests/stores/test_lease.py", "tests/stores/test_lease_owner.py"),
    "stores/memory.py": (DURABLE, RUN_INDEX, "tests/stores/test_paged.py::TestMemory"),
    "stores/file.py": (
        DURABLE,
        "tests/stores/test_file.py",
        RUN_INDEX,
        "tests/stores/test_paged.py::TestFile",
        FORMATS,
    ),
    "stores/sqlite.py": (
        DURABLE,
        "tests/stores/test_sqlite.py",
        RUN_INDEX,
        "tests/stores/test_paged.py::TestSqlite",
        FORMATS,
    ),
    "stores/paged.py": (*PAGED, "tests/stores/test_lease.py", FORMATS),
    "stores/wire.py": (*PAGED, "tests/stores/test_record.py", FORMATS),
    "stores/extras.py": ("tests/stores/test_extras.py", "tests/stores/test_record.py", *STEP, MODEL),
    "sinks/contract.py": ("tests/sinks/test_ledger.py", "tests/sinks/test_contract.py", *STEP, MODEL),
}
"""The tests of a module, quickest first; files that are not there are left out."""
PLUGINS = ("-p", "no:cacheprovider", "-p", "reached", "-W", "ignore::pytest.PytestAssertRewriteWarning")
"""The warning: hypothesis is imported before the fork."""
WITHOUT_SERVERS = "not crash and not cluster and not faults and not spark and not server"
PATIENCE = 10
"""A machine that has much to do gives a process a tenth of its CPU."""


@dataclass
class Trial:
    """A copy of `src` in which mutants are tried one after another."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="floodmark-mutants-")))
    runner: ForkingTests = field(init=False)

    @property
    def compiled(self) -> Path:
        """What Python compiles of modules and tests is kept from one mutant to the next: half of the time."""
        return self.folder / "compiled"

    def __post_init__(self) -> None:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "src" / "floodmark", self.folder / "floodmark", ignore=ignore)
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        compiled = {"PYTHONPATH": f"{self.folder}:{ROOT}", "PYTHONPYCACHEPREFIX": str(self.compiled)}
        self.runner = ForkingTests({**inherited, **compiled}, ROOT)

    def outcome(self, mutant: Mutant, tests: list[str], seconds: int) -> str:
        """noticed, unnoticed, or too slow (noticed, too): more CPU than was expected, however busy the machine is."""
        path = self.folder / "floodmark" / mutant.module
        before = path.read_text()
        self.put(path, mutant.text)
        try:
            return "noticed" if tests and self.fails(tests, seconds) else "unnoticed"
        except TimeoutError:
            return "too slow"
        finally:
            self.put(path, before)

    def put(self, path: Path, text: str) -> None:
        """The text of a module, and no code of an earlier one: Python would take it for this one within a second."""
        path.write_text(text)
        for compiled in (self.compiled / path.parent.relative_to("/")).glob(f"{path.stem}.*.pyc"):
            compiled.unlink()

    def fails(self, tests: list[str], seconds: int) -> bool:
        """Whether one of these tests fails; the copy is what they import. Who waits for ever is given up, too."""
        ended = self.run(tests, seconds)
        if ended.code is None:
            raise TimeoutError(f"{seconds} seconds of CPU")
        return bool(ended.code)

    def run(self, tests: list[str], seconds: int, settings: Mapping[str, str] | None = None) -> Ended:
        """The tests, until the first that fails."""
        options = ["-x", "-q", *PLUGINS, "-m", WITHOUT_SERVERS]
        return self.runner.run([*options, *tests], settings or {}, seconds, PATIENCE)

    def remove(self) -> None:
        self.runner.close()
        shutil.rmtree(self.folder)


@dataclass
class Book:
    """What was tried, on disk after every mutant."""

    outcomes: dict[str, dict[str, object]] = field(default_factory=dict)

    @classmethod
    def open(cls) -> Book:
        return cls(json.loads(RESULTS.read_text())) if RESULTS.exists() else cls()

    def note(self, mutant: Mutant, outcome: str) -> None:
        place = {"module": mutant.module, "line": mutant.line, "function": mutant.function, "change": mutant.change}
        self.outcomes[mutant.key] = {**place, "outcome": outcome, "tests": tests_hash(mutant.module)}
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(self.outcomes, indent=1))

    def is_tried(self, mutant: Mutant) -> bool:
        """Whether the answer is known: other tests may notice what these did not."""
        known = self.outcomes.get(mutant.key)
        return known is not None and (known["outcome"] != "unnoticed" or known["tests"] == tests_hash(mutant.module))


@cache
def tests_hash(module: str) -> str:
    """Of the mapped tests; the model is all files of its folder."""
    files = {test_file(test) for test in TESTS[module]}
    files |= {path for file in files if file.parent.name == "model" for path in file.parent.glob("*.py")}
    return hashed(*(path.read_text() for path in sorted(files) if path.exists()))


def test_file(test: str) -> Path:
    """The file of a test that may be named with its class."""
    return ROOT / test.split("::", maxsplit=1)[0]


def chosen_mutants(modules: list[str], share: float) -> list[Mutant]:
    """The mutants of these modules; a share below one takes the same ones every time."""
    every = [each for module in modules for each in mutants_of(module, (ROOT / "src/floodmark" / module).read_text())]
    return [each for each in every if int(each.key, 16) % 1000 < share * 1000]


def try_all(mutants: list[Mutant], book: Book, minutes: float, workers: int) -> None:
    """Try what is not in the book, until the time is over."""
    deadline, places = time.monotonic() + 60 * minutes, [Trial() for _ in range(workers)]
    left = [mutant for mutant in mutants if not book.is_tried(mutant)]
    reach = {module: reach_of(places[0], module) for module in dict.fromkeys(each.module for each in left)}

    def work(trial: Trial) -> None:
        while left and time.monotonic() < deadline:
            mutant = left.pop(0)
            functions, seconds = reach[mutant.module]
            outcome = trial.outcome(mutant, functions.tests_of(mutant.function), seconds)
            book.note(mutant, outcome)
            print(f"{outcome:10} {mutant.module}:{mutant.line} {mutant.function}: {mutant.change}", flush=True)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, places))
    for trial in places:
        trial.remove()
    if left:
        print(f"{len(left)} mutants are left for the next time")


def reach_of(trial: Trial, module: str) -> tuple[ReachedFunctions, int]:
    """Which tests come to which function, and three times the CPU that they take; they have to pass as they are."""
    mapped = [test for test in TESTS[module] if test_file(test).exists()]
    result = trial.folder / "reached.json"
    settings = {reached.MODULE: str(trial.folder / "floodmark" / module), reached.RESULT: str(result)}
    ended = trial.run(mapped, 900, settings)
    if ended.code != 0:
        sys.exit(f"the tests of {module} fail without any change: {', '.join(mapped)}")
    return ReachedFunctions.read(result, ROOT), int(10 + 3 * ended.cpu_seconds)


def table(mutants: list[Mutant], book: Book) -> str:
    """Who was not noticed, and how many were."""
    outcomes = [(mutant, book.outcomes.get(mutant.key, {}).get("outcome")) for mutant in mutants]
    tried = [mutant for mutant, outcome in outcomes if outcome]
    unnoticed = [mutant for mutant, outcome in outcomes if outcome == "unnoticed"]
    rows = [f"| `{each.module}` | `{each.function}` | `{each.change.replace('|', '/')}` |" for each in unnoticed]
    noticed = len(tried) - len(unnoticed)
    head = f"{len(tried)} of {len(mutants)} mutants were tried, and {noticed} noticed by a test. Not noticed:"
    return "\n".join([head, "", "| module | function | change |", "|---|---|---|", *rows])


def main() -> None:
    """Try the mutants of the modules that are named, or of all that have tests here."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help=f"of {', '.join(TESTS)}")
    parser.add_argument("--minutes", type=float, default=55, help="stop after so many (default: 55)")
    parser.add_argument("--share", type=float, default=1.0, help="try only this share of them, always the same")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--again", action="store_true", help="also try those again that a test has noticed")
    parser.add_argument("--write", action="store_true", help="put the list into CONTRIBUTING.md")
    options = parser.parse_args()
    mutants = chosen_mutants(options.modules or list(TESTS), options.share)
    book = Book() if options.again else Book.open()
    try_all(mutants, book, options.minutes, options.workers)
    found = table(mutants, book)
    print(found)
    if options.write:
        path = ROOT / "CONTRIBUTING.md"
        before, rest = path.read_text().split(BEGIN)
        path.write_text(f"{before}{BEGIN}\n{found}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
