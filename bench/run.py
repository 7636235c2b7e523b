"""`make bench`: how much Floodmark adds to plain Spark, as ratios against a reference in the same run.

python bench/run.py [--scale|--peers] [NAME …] [SIZE=NUMBER …]

All benchmarks of the kind, or those whose names hold one of these words; sizes as their `run` takes them. `--scale` is
for what grows (rows, cores, partitions, jobs), `--peers` for other programs, each installed into an environment of its
own.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, fields
from inspect import signature
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
KINDS = {"--bench": "bench_", "--scale": "scale_", "--peers": "peers_"}
"""How the files of a kind of benchmarks begin."""
ALONE = "--alone"


@dataclass(frozen=True)
class Result:
    """One line of the report: a ratio and the bound it must keep; the times behind it where they were measured."""

    name: str
    ratio: float
    at_most: float
    detail: str
    bench: str = ""
    ours: tuple[float, ...] = ()
    reference: tuple[float, ...] = ()
    """What each round took, in the order of the rounds."""
    series: str = ""
    at: float | None = None
    """Of a benchmark that grows something: the line that this is a point of, and how much there was of it."""

    @property
    def holds(self) -> bool:
        return self.ratio <= self.at_most


@dataclass(frozen=True)
class Failure:
    """A benchmark that did not get to its end, and the last thing that it said."""

    bench: str
    reason: str
    is_absence: bool = False
    """Whether it only could not be installed."""


class NotInstalled(Exception):
    """A peer that cannot be had on this machine: its row says so, and nothing is wrong."""


NOT_INSTALLED = 3
"""The exit code of a benchmark whose peer cannot be had."""


def main(words: list[str]) -> int:
    if words[:1] == [ALONE]:
        return measure_here(words[1], Path(words[2]), words[3:])
    kind = KINDS[words.pop(0)] if words[:1] and words[0] in KINDS else KINDS["--bench"]
    known = sorted(path.stem for path in HERE.glob(f"{kind}*.py"))
    names, sizes = [word for word in words if "=" not in word], [word for word in words if "=" in word]
    unknown = [name for name in names if not any(name in bench for bench in known)]
    if unknown:
        shown = ", ".join(bench.removeprefix(kind) for bench in known)
        print(f"Error: no benchmark is called {unknown[0]!r}.\nTry: {shown}", file=sys.stderr)
        return 2
    chosen = [bench for bench in known if not names or any(name in bench for name in names)]
    begun = time.monotonic()
    found = [each for bench in chosen for each in measure(bench, sizes)]
    return report(found, sizes, time.monotonic() - begun)


def measure(bench: str, sizes: list[str]) -> list[Result] | list[Failure]:
    """One benchmark in a process of its own: none warms another up, and one that fails costs no other."""
    print(f"… {bench}", file=sys.stderr, flush=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.json"
        command = [sys.executable, str(HERE / "run.py"), ALONE, bench, str(file), *sizes]
        done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode or not file.exists():
            lines = done.stderr.strip().splitlines() or ["it said nothing"]
            absent = done.returncode == NOT_INSTALLED
            return [Failure(bench, f"not installed: {lines[-1]}" if absent else lines[-1], is_absence=absent)]
        return [Result(**{**each, "bench": bench}) for each in json.loads(file.read_text())]


def measure_here(bench: str, file: Path, sizes: list[str]) -> int:
    run = importlib.import_module(bench).run
    numbers = {name: int(number) for name, number in (word.split("=") for word in sizes)}
    try:
        results = run(**{name: number for name, number in numbers.items() if name in signature(run).parameters})
    except NotInstalled as reason:
        print(reason, file=sys.stderr)
        return NOT_INSTALLED
    file.write_text(json.dumps([{f.name: getattr(each, f.name) for f in fields(each)} for each in results]))
    return 0


def report(found: list[Result | Failure], sizes: list[str], seconds: float) -> int:
    """The table in the terminal; JSON and plots for later, of this run and of each benchmark by its name."""
    from report import facts, show, write

    results = [each for each in found if isinstance(each, Result)]
    failures = [each for each in found if isinstance(each, Failure)]
    around = facts(sizes, seconds)
    RESULTS.mkdir(exist_ok=True)
    write(RESULTS / "latest.json", results, failures, around)
    for bench in sorted({each.bench for each in results}):
        write(RESULTS / f"{bench}.json", [each for each in results if each.bench == bench], [], around)
    show(results, failures, around, RESULTS / "latest.json")
    return 0 if all(each.is_absence for each in failures) and all(each.holds for each in results) else 1


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    sys.modules["run"] = sys.modules["__main__"]  # benchmarks import Result from here, and there is one of it
    sys.exit(main(sys.argv[1:]))
